//! Which accelerator QEMU uses.

use std::fs;
use std::fs::OpenOptions;

/// How QEMU executes the guest's instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Accel {
    /// The processor's own virtualisation.
    Kvm,
    /// Translation in software, one host thread per virtual core.
    Tcg,
}

impl Accel {
    /// KVM where the processor says that it can (`vmx` or `svm` in `/proc/cpuinfo`) and `/dev/kvm` opens; TCG otherwise.
    ///
    /// Both are asked: in a container `/dev/kvm` may exist on a processor that hides the feature, and a guest started
    /// there would hang or crash. No guest is started to find out.
    pub fn detect() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let kvm_opens = || OpenOptions::new().read(true).write(true).open("/dev/kvm").is_ok();
        if has_virtualisation(&cpuinfo) && kvm_opens() { Self::Kvm } else { Self::Tcg }
    }

    /// The value of QEMU's `-accel`.
    pub fn argument(self) -> &'static str {
        match self {
            Self::Kvm => "kvm",
            Self::Tcg => "tcg,thread=multi",
        }
    }
}

/// Whether a processor of this `/proc/cpuinfo` offers hardware virtualisation.
fn has_virtualisation(cpuinfo: &str) -> bool {
    cpuinfo
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter(|(key, _)| key.trim() == "flags")
        .any(|(_, flags)| flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flags_of_either_vendor_count() {
        assert!(has_virtualisation("processor\t: 0\nflags\t\t: fpu vmx sse2\n"));
        assert!(has_virtualisation("flags : fpu svm\n"));
    }

    #[test]
    fn a_flag_must_stand_alone_and_among_the_flags() {
        assert!(!has_virtualisation("flags : fpu vmx_not sse2\n"));
        assert!(!has_virtualisation("vmx flags : ept vpid\nmodel name : vmx svm\n"));
        assert!(!has_virtualisation(""));
    }
}
