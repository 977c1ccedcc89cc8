//! The host side as a library: build, boot and feed the image.
