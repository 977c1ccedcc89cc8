//! What a test is, and what becomes of one that this machine cannot run.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use anyhow::Result;
use libtest_mimic::{Failed, Trial};
use qemu::emulator;

/// Something that a test cannot do without.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Need {
    /// A program on the `PATH`.
    Program(&'static str),
    /// A file of an installed package.
    File(&'static str),
    /// The right to make taps and network namespaces.
    Root,
    /// A QEMU that plugs in cards which this process holds.
    CardsFromOutside,
    /// Debian's kernel and drivers in a guest.
    LinuxGuest,
}

/// The emulator: what every test here needs.
const QEMU: Need = Need::Program("qemu-system-x86_64");

/// What it takes to write an ISO.
pub(crate) const ISO_TOOLS: [Need; 5] = [
    Need::Program("grub-mkrescue"),
    Need::Program("xorriso"),
    Need::Program("mformat"),
    Need::File("/usr/lib/grub/i386-pc/multiboot2.mod"),
    Need::File("/usr/lib/grub/x86_64-efi/multiboot2.mod"),
];

/// A test that needs nothing but QEMU.
pub(crate) fn test(name: impl Into<String>, body: impl FnOnce() -> Result<()> + Send + 'static) -> Trial {
    test_with(&[], name, body)
}

/// A test that needs QEMU and more.
///
/// Where something is missing the test is listed as ignored, with what is missing before its name: it does not
/// pretend to have passed. In CI (where `CI` is set) it fails: there, everything has been installed.
pub(crate) fn test_with(
    needs: &[Need],
    name: impl Into<String>,
    body: impl FnOnce() -> Result<()> + Send + 'static,
) -> Trial {
    let missing: Vec<_> =
        [QEMU].iter().chain(needs).filter(|need| !need.is_met()).map(Need::describe).collect();
    if missing.is_empty() {
        return Trial::test(name, || body().map_err(failed));
    }
    let missing = missing.join(", ");
    if std::env::var_os("CI").is_some() {
        return Trial::test(name, move || Err(format!("{missing}: nothing may be skipped in CI").into()));
    }
    Trial::test(name, || Ok(())).with_kind(format!("SKIPPED: {missing}")).with_ignored_flag(true)
}

impl Need {
    fn is_met(&self) -> bool {
        match self {
            Self::CardsFromOutside => emulator::path_for_whole_cards().is_ok(),
            Self::LinuxGuest => emulator::cache().is_ok_and(|cache| cache.join("guest/vmlinuz").is_file()),
            Self::Program("qemu-system-x86_64") if std::env::var_os("SLUICE_QEMU").is_some() => true,
            Self::Program(name) => qemu::process::find(name).is_some(),
            Self::File(path) => Path::new(path).exists(),
            // The owner of a process's folder in /proc is its effective user.
            Self::Root => std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0),
        }
    }

    fn describe(&self) -> String {
        match self {
            Self::Program(name) => format!("no {name}, see scripts/setup.sh --tests"),
            Self::File(path) => format!("no {path}, see scripts/setup.sh --tests"),
            Self::Root => "not root".into(),
            Self::CardsFromOutside => "no QEMU with vfio-user-pci, see scripts/setup.sh --tests".into(),
            Self::LinuxGuest => "no Linux guest, see scripts/setup.sh --tests".into(),
        }
    }
}

/// The whole chain of causes in one line: the first alone seldom tells enough.
fn failed(error: anyhow::Error) -> Failed {
    format!("{error:#}").into()
}
