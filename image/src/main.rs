//! The image.
fn main() {}
