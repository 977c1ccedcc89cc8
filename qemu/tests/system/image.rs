//! The artefacts under test, built once for all tests.

use std::sync::OnceLock;

use anyhow::{Result, anyhow};
use qemu::Artefact;

/// The image as people get it.
pub(crate) fn image() -> Result<&'static Artefact> {
    static IMAGE: OnceLock<Result<Artefact, String>> = OnceLock::new();
    built_once(&IMAGE, Artefact::build)
}

/// The image that crashes on purpose.
pub(crate) fn crash_image() -> Result<&'static Artefact> {
    static IMAGE: OnceLock<Result<Artefact, String>> = OnceLock::new();
    built_once(&IMAGE, Artefact::build_crash)
}

fn built_once(
    cell: &'static OnceLock<Result<Artefact, String>>,
    build: fn() -> Result<Artefact>,
) -> Result<&'static Artefact> {
    cell.get_or_init(|| build().map_err(|error| format!("{error:#}")))
        .as_ref()
        .map_err(|error| anyhow!("{error}"))
}
