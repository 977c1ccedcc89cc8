//! Which QEMU is started.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::process;

const NAME: &str = "qemu-system-x86_64";

/// `$SLUICE_QEMU`, or `qemu-system-x86_64` in `PATH`.
///
/// # Errors
/// When there is none.
pub fn path() -> Result<PathBuf> {
    if let Some(path) = std::env::var_os("SLUICE_QEMU").map(PathBuf::from) {
        ensure!(path.is_file(), "SLUICE_QEMU={} is no file", path.display());
        return Ok(path);
    }
    process::find(NAME).with_context(|| {
        format!("{NAME} is missing (Debian package qemu-system-x86); {} installs it", process::SETUP)
    })
}

/// A QEMU that can plug in a card which another process holds (10.1 or later): `$SLUICE_QEMU`, the one that the set-up has
/// unpacked where the system's own cannot, or the one in `PATH`.
///
/// # Errors
/// When there is none.
pub fn path_for_whole_cards() -> Result<PathBuf> {
    let unpacked = cache()?.join("qemu").join(NAME);
    if std::env::var_os("SLUICE_QEMU").is_none() && unpacked.is_file() {
        return Ok(unpacked);
    }
    let path = path()?;
    if !takes_whole_cards(&path) {
        bail!(
            "{} has no vfio-user-pci (QEMU 10.1 or later has); {} --tests unpacks one that has",
            path.display(),
            process::SETUP
        );
    }
    Ok(path)
}

/// QEMU lists the options of a device that it has, and ends without failure in any case.
fn takes_whole_cards(qemu: &Path) -> bool {
    let options = Command::new(qemu)
        .args(["-nodefaults", "-display", "none", "-device", "vfio-user-pci,help"])
        .stderr(Stdio::null())
        .output();
    options.is_ok_and(|output| output.stdout.windows(6).any(|word| word == b"socket"))
}

/// Where the set-up keeps what it has built or unpacked: `$SLUICE_CACHE`, or `~/.cache/sluice`.
///
/// # Errors
/// When there is no home.
pub fn cache() -> Result<PathBuf> {
    if let Some(cache) = std::env::var_os("SLUICE_CACHE") {
        return Ok(cache.into());
    }
    let home = std::env::var_os("HOME").context("neither SLUICE_CACHE nor HOME is set")?;
    Ok(Path::new(&home).join(".cache/sluice"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_qemu_takes_no_cards() {
        assert!(!takes_whole_cards(Path::new("/bin/true")));
        assert!(!takes_whole_cards(Path::new("/nonexistent")));
    }
}
