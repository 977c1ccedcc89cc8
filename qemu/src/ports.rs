//! What a port of the virtual machine is plugged into.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

/// The first PCI slot of a port: 0 is the host bridge, 1 the ISA bridge of `pc`.
const FIRST_SLOT: usize = 2;
/// The last PCI slot of a port: 31 holds the ISA bridge of `q35`.
const LAST_SLOT: usize = 30;
/// How many ports a machine can have.
pub const MAX_PORTS: usize = LAST_SLOT - FIRST_SLOT + 1;
/// The most queue pairs of a tap that QEMU and Linux agree on.
const MAX_TAP_QUEUES: u16 = 256;

/// One network port of the machine, as given to `--port`.
///
/// Written `dgram:LOCAL,REMOTE`, `tap:NAME[,queues=N]` or `user`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortSpec {
    /// A datagram unix socket: one frame per datagram, without root.
    Dgram {
        /// The path that QEMU binds.
        local: PathBuf,
        /// The path that QEMU sends to.
        remote: PathBuf,
    },
    /// A tap interface that exists already; usually needs root.
    Tap {
        /// The interface's name.
        name: String,
        /// Queue pairs, 1 for a tap without `multi_queue`.
        queues: u16,
    },
    /// QEMU's own user-mode network: a NAT with DHCP, without root.
    User,
}

impl PortSpec {
    /// The arguments of QEMU for this port as the machine's `index`-th: a network backend and the card in front of it.
    ///
    /// Ports get ascending PCI slots, so that their order in the image is the order in which they were given.
    pub(crate) fn arguments(&self, index: usize) -> [String; 4] {
        ["-netdev".into(), self.backend(index), "-device".into(), self.card(index)]
    }

    fn backend(&self, index: usize) -> String {
        match self {
            Self::Dgram { local, remote } => format!(
                "dgram,id=port{index},local.type=unix,local.path={},remote.type=unix,remote.path={}",
                escape(&local.to_string_lossy()),
                escape(&remote.to_string_lossy()),
            ),
            Self::Tap { name, queues } => {
                let queues = if *queues > 1 { format!(",queues={queues}") } else { String::new() };
                format!(
                    "tap,id=port{index},ifname={},script=no,downscript=no,vhost=off{queues}",
                    escape(name)
                )
            }
            Self::User => format!("user,id=port{index}"),
        }
    }

    /// A modern virtio card without boot ROM: the firmware would spend time on it and never use it.
    fn card(&self, index: usize) -> String {
        let slot = FIRST_SLOT + index;
        let multiqueue = match self {
            // One vector per ring, one for the configuration and one for the control queue.
            Self::Tap { queues, .. } if *queues > 1 => format!(",mq=on,vectors={}", 2 * queues + 2),
            _ => String::new(),
        };
        format!(
            "virtio-net-pci,netdev=port{index},mac={},addr={slot:#x},disable-legacy=on,romfile={multiqueue}",
            mac(index),
        )
    }
}

/// The address of the machine's `index`-th port, in colon notation.
pub fn mac(index: usize) -> String {
    let [a, b, c, d, e, f] = mac_octets(index);
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

/// The address of the machine's `index`-th port.
pub fn mac_octets(index: usize) -> [u8; 6] {
    let [.., high, low] = (0x3456 + index as u64).to_be_bytes();
    [0x52, 0x54, 0x00, 0x12, high, low]
}

/// A comma ends an option of QEMU; two stand for one.
pub(crate) fn escape(value: &str) -> String {
    value.replace(',', ",,")
}

impl FromStr for PortSpec {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        match kind {
            "dgram" => parse_dgram(rest),
            "tap" => parse_tap(rest),
            "user" if rest.is_empty() => Ok(Self::User),
            _ => bail!("unknown port \"{text}\"; allowed: dgram:LOCAL,REMOTE, tap:NAME[,queues=N], user"),
        }
    }
}

fn parse_dgram(rest: &str) -> Result<PortSpec> {
    match rest.split_once(',') {
        Some((local, remote)) if !local.is_empty() && !remote.is_empty() && !remote.contains(',') => {
            Ok(PortSpec::Dgram { local: local.into(), remote: remote.into() })
        }
        _ => bail!("a dgram port names two paths: dgram:LOCAL,REMOTE"),
    }
}

fn parse_tap(rest: &str) -> Result<PortSpec> {
    let (name, option) = rest.split_once(',').map_or((rest, None), |(name, option)| (name, Some(option)));
    ensure!(!name.is_empty(), "a tap port names its interface: tap:NAME[,queues=N]");
    let queues =
        match option {
            None => 1,
            Some(option) => {
                let number = option.strip_prefix("queues=").with_context(|| {
                    format!("unknown option \"{option}\" of a tap port; allowed: queues=N")
                })?;
                number.parse().ok().filter(|queues| (1..=MAX_TAP_QUEUES).contains(queues)).with_context(
                    || format!("queues=\"{number}\" is not a number from 1 to {MAX_TAP_QUEUES}"),
                )?
            }
        };
    Ok(PortSpec::Tap { name: name.into(), queues })
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dgram { local, remote } => write!(f, "dgram:{},{}", local.display(), remote.display()),
            Self::Tap { name, queues: 1 } => write!(f, "tap:{name}"),
            Self::Tap { name, queues } => write!(f, "tap:{name},queues={queues}"),
            Self::User => f.write_str("user"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spec_reads_as_it_is_written() {
        for text in ["dgram:/run/a,/run/b", "tap:tap0", "tap:tap0,queues=4", "user"] {
            assert_eq!(text.parse::<PortSpec>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_spec_that_is_wrong_is_refused_with_what_is_allowed() {
        for (text, reason) in [
            ("bridge:br0", "allowed: dgram:LOCAL,REMOTE"),
            ("user:x", "allowed: dgram:LOCAL,REMOTE"),
            ("dgram:/run/a", "names two paths"),
            ("dgram:/run/a,/run/b,/run/c", "names two paths"),
            ("tap:", "names its interface"),
            ("tap:tap0,mq=on", "allowed: queues=N"),
            ("tap:tap0,queues=0", "from 1 to 256"),
            ("tap:tap0,queues=many", "from 1 to 256"),
        ] {
            let error = text.parse::<PortSpec>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn ports_follow_each_other_in_pci_slots_and_addresses() {
        let [_, _, _, first] = PortSpec::User.arguments(0);
        let [_, _, _, second] = PortSpec::User.arguments(1);
        assert!(first.contains("mac=52:54:00:12:34:56,addr=0x2,"), "{first}");
        assert!(second.contains("mac=52:54:00:12:34:57,addr=0x3,"), "{second}");
    }

    #[test]
    fn a_tap_with_queues_gets_a_vector_for_each_ring() {
        let [_, backend, _, card] = PortSpec::Tap { name: "t".into(), queues: 2 }.arguments(0);
        assert!(backend.ends_with("vhost=off,queues=2"), "{backend}");
        assert!(card.ends_with("mq=on,vectors=6"), "{card}");
    }

    #[test]
    fn a_comma_in_a_path_stays_in_the_path() {
        let spec = PortSpec::Dgram { local: "/run/a,b".into(), remote: "/run/c".into() };
        let [_, backend, ..] = spec.arguments(0);
        assert!(backend.contains("local.path=/run/a,,b,remote.type=unix"), "{backend}");
    }
}
