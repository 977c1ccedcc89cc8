//! What a port of the virtual machine is plugged into.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use anyhow::{Context, Result, bail, ensure};

use crate::Accel;
use crate::vhost::MAX_QUEUE_PAIRS;

/// The first PCI slot of a port: 0 is the host bridge, 1 the ISA bridge of `pc`.
const FIRST_SLOT: usize = 2;
/// The last PCI slot of a port: 31 holds the ISA bridge of `q35`.
const LAST_SLOT: usize = 30;
/// How many ports a machine can have.
pub const MAX_PORTS: usize = LAST_SLOT - FIRST_SLOT + 1;
/// The most queue pairs of a tap that QEMU and Linux agree on.
const MAX_TAP_QUEUES: u16 = 256;
/// How ports are written.
const ALLOWED: &str = "dgram:LOCAL,REMOTE, tap:NAME[,queues=N], vhost-user:SOCKET[,queues=N], vfio-user:SOCKET, vfio:ADDRESS, user";

/// One network port of the machine, as given to `--port`.
///
/// Written `dgram:LOCAL,REMOTE`, `tap:NAME[,queues=N]`, `vhost-user:SOCKET[,queues=N]`, `vfio-user:SOCKET`, `vfio:ADDRESS`
/// or `user`.
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
    /// The socket of a vhost-user backend that listens already, such as a [`TrafficPort`](crate::vhost::TrafficPort).
    VhostUser {
        /// The path of the socket.
        socket: PathBuf,
        /// Queue pairs, at most as many as the backend has.
        queues: u16,
    },
    /// The socket of a whole card that another process holds, such as a [`CardPort`](crate::vfio::CardPort). It takes
    /// QEMU 10.1 or later, and a PCI Express machine.
    VfioUser {
        /// The path of the socket.
        socket: PathBuf,
    },
    /// A card of this machine, bound to Linux's `vfio-pci`; usually needs root.
    Vfio {
        /// Its PCI address, as in `0000:03:00.0`.
        address: String,
    },
    /// QEMU's own user-mode network: a NAT with DHCP, without root.
    User,
}

impl PortSpec {
    /// The arguments of QEMU for this port as the machine's `index`-th: a network backend and the card in front of it.
    ///
    /// Ports get ascending PCI slots, so that their order in the image is the order in which they were given.
    pub(crate) fn arguments(&self, index: usize, machine: Surroundings) -> Vec<String> {
        let slot = FIRST_SLOT + index;
        let (bridge, place) = match machine.bus {
            Bus::Common => (None, format!("addr={slot:#x}")),
            Bus::Own => {
                let number = index + 1;
                let port =
                    format!("pcie-root-port,id=root{index},chassis={number},slot={number},addr={slot:#x}");
                (Some(["-device".into(), port]), format!("bus=root{index}"))
            }
        };
        let card = match self {
            Self::VfioUser { socket } => whole_card(index, socket),
            // The firmware need not run what the card brings to boot from the network.
            Self::Vfio { address } => format!("vfio-pci,host={address},{place},rombar=0"),
            _ => self.card(index, machine, &place),
        };
        let backend = self.backend(index).map(|backend| ["-netdev".into(), backend]);
        let parts = [bridge, self.socket(index), backend, Some(["-device".into(), card])];
        parts.into_iter().flatten().flatten().collect()
    }

    /// Whether this is a card that another process holds.
    pub(crate) fn is_whole_card(&self) -> bool {
        matches!(self, Self::VfioUser { .. })
    }

    /// Whether what the port is plugged into is there, as far as QEMU's own complaint would not say what to do.
    pub(crate) fn check(&self) -> Result<()> {
        let Self::Vfio { address } = self else { return Ok(()) };
        let card = Path::new("/sys/bus/pci/devices").join(address);
        ensure!(card.exists(), "there is no PCI device {address}; lspci lists those that there are");
        let driver = card.join("driver").read_link().unwrap_or_default();
        ensure!(
            driver.ends_with("vfio-pci"),
            "{address} is not bound to vfio-pci: docs/real-cards.md says how that is done"
        );
        Ok(())
    }

    /// Whether another process reads and writes the guest's memory.
    pub(crate) fn needs_shared_memory(&self) -> bool {
        matches!(self, Self::VhostUser { .. } | Self::VfioUser { .. })
    }

    /// What the backend talks through, where that is an object of its own.
    fn socket(&self, index: usize) -> Option<[String; 2]> {
        let Self::VhostUser { socket, .. } = self else { return None };
        let path = escape(&socket.to_string_lossy());
        Some(["-chardev".into(), format!("socket,id=socket{index},path={path}")])
    }

    /// What frames come from and go to, where QEMU has to know.
    fn backend(&self, index: usize) -> Option<String> {
        Some(match self {
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
            Self::VhostUser { queues, .. } => {
                format!("vhost-user,id=port{index},chardev=socket{index},queues={queues}")
            }
            Self::VfioUser { .. } | Self::Vfio { .. } => return None,
            Self::User => format!("user,id=port{index}"),
        })
    }

    /// A modern virtio card without boot ROM: the firmware would spend time on it and never use it.
    fn card(&self, index: usize, machine: Surroundings, place: &str) -> String {
        let mut card = format!(
            "virtio-net-pci,netdev=port{index},mac={},{place},disable-legacy=on,romfile=",
            mac(index),
        );
        let queues = self.queues();
        if queues > 1 {
            card.push_str(",mq=on");
        }
        if let Self::VhostUser { .. } = self {
            // The largest that QEMU has; the driver chooses.
            card.push_str(",rx_queue_size=1024,tx_queue_size=1024");
        }
        if machine.rings == Rings::Packed {
            card.push_str(",packed=on");
        }
        match (self, machine.accel) {
            // QEMU before 10 crashes with the vectors of a vhost-user card under TCG.
            (Self::VhostUser { .. }, Accel::Tcg) => card.push_str(",vectors=0"),
            // One vector per ring, one for the configuration and one for the control queue.
            _ if queues > 1 => card.push_str(&format!(",vectors={}", 2 * queues + 2)),
            _ => {}
        }
        card
    }

    fn queues(&self) -> u16 {
        match self {
            Self::Tap { queues, .. } | Self::VhostUser { queues, .. } => *queues,
            Self::Dgram { .. } | Self::VfioUser { .. } | Self::Vfio { .. } | Self::User => 1,
        }
    }
}

/// What is the same for all ports of a machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Surroundings {
    pub(crate) accel: Accel,
    pub(crate) bus: Bus,
    pub(crate) rings: Rings,
}

/// The rings of virtio cards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Rings {
    /// Split rings: what QEMU offers by default.
    #[default]
    Split,
    /// Packed rings, where what the card is plugged into has them too.
    Packed,
}

/// Where the ports of a machine are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bus {
    /// All on the first bus.
    Common,
    /// Each behind a root port of its own, as PCI Express cards are in a real machine.
    Own,
}

/// A card that is a process of its own, behind the `index`-th root port; JSON, because the socket is a structure.
fn whole_card(index: usize, socket: &Path) -> String {
    let socket = serde_json::json!({ "type": "unix", "path": socket.to_string_lossy() });
    let card =
        serde_json::json!({ "driver": "vfio-user-pci", "bus": format!("root{index}"), "socket": socket });
    card.to_string()
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
            "vhost-user" => parse_vhost_user(rest),
            "vfio" => parse_vfio(rest),
            "vfio-user" if !rest.is_empty() => Ok(Self::VfioUser { socket: rest.into() }),
            "user" if rest.is_empty() => Ok(Self::User),
            _ => bail!("unknown port \"{text}\"; allowed: {ALLOWED}"),
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
    let (name, queues) = parse_queues(rest, MAX_TAP_QUEUES)?;
    ensure!(!name.is_empty(), "a tap port names its interface: tap:NAME[,queues=N]");
    Ok(PortSpec::Tap { name: name.into(), queues })
}

fn parse_vhost_user(rest: &str) -> Result<PortSpec> {
    let (socket, queues) = parse_queues(rest, MAX_QUEUE_PAIRS)?;
    ensure!(!socket.is_empty(), "a vhost-user port names its socket: vhost-user:SOCKET[,queues=N]");
    Ok(PortSpec::VhostUser { socket: socket.into(), queues })
}

/// `DOMAIN:BUS:DEVICE.FUNCTION` in hexadecimal digits; without the domain it is in the first one, as with `lspci`.
fn parse_vfio(rest: &str) -> Result<PortSpec> {
    const FORM: &str = "0000:00:00.0";
    let address = if rest.len() == FORM.len() { rest.to_owned() } else { format!("0000:{rest}") };
    let fits = |(byte, form): (u8, u8)| if form == b'0' { byte.is_ascii_hexdigit() } else { byte == form };
    let is_address = address.len() == FORM.len() && address.bytes().zip(FORM.bytes()).all(fits);
    ensure!(is_address, "a vfio port names a PCI address such as vfio:0000:03:00.0, not \"{rest}\"");
    Ok(PortSpec::Vfio { address })
}

/// What is before the option `queues=N`, and the number, 1 where the option is absent.
fn parse_queues(rest: &str, most: u16) -> Result<(&str, u16)> {
    let Some((name, option)) = rest.split_once(',') else { return Ok((rest, 1)) };
    let number = option
        .strip_prefix("queues=")
        .with_context(|| format!("unknown option \"{option}\" of a port; allowed: queues=N"))?;
    let queues = number
        .parse()
        .ok()
        .filter(|queues| (1..=most).contains(queues))
        .with_context(|| format!("queues=\"{number}\" is not a number from 1 to {most}"))?;
    Ok((name, queues))
}

impl fmt::Display for PortSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Dgram { local, remote } => write!(f, "dgram:{},{}", local.display(), remote.display()),
            Self::Tap { name, queues: 1 } => write!(f, "tap:{name}"),
            Self::Tap { name, queues } => write!(f, "tap:{name},queues={queues}"),
            Self::VhostUser { socket, queues: 1 } => write!(f, "vhost-user:{}", socket.display()),
            Self::VhostUser { socket, queues } => {
                write!(f, "vhost-user:{},queues={queues}", socket.display())
            }
            Self::VfioUser { socket } => write!(f, "vfio-user:{}", socket.display()),
            Self::Vfio { address } => write!(f, "vfio:{address}"),
            Self::User => f.write_str("user"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(accel: Accel, bus: Bus) -> Surroundings {
        Surroundings { accel, bus, rings: Rings::Split }
    }

    fn arguments(spec: &PortSpec, index: usize, accel: Accel) -> String {
        spec.arguments(index, on(accel, Bus::Common)).join(" ")
    }

    #[test]
    fn a_spec_reads_as_it_is_written() {
        for text in [
            "dgram:/run/a,/run/b",
            "tap:tap0",
            "tap:tap0,queues=4",
            "vhost-user:/run/a",
            "vhost-user:/run/a,queues=64",
            "vfio-user:/run/a",
            "vfio:0000:3b:00.1",
            "user",
        ] {
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
            ("vhost-user:", "names its socket"),
            ("vhost-user:,queues=4", "names its socket"),
            ("vfio-user:", "vfio-user:SOCKET"),
            ("vfio:", "such as vfio:0000:03:00.0"),
            ("vfio:eth0", "such as vfio:0000:03:00.0"),
            ("vfio:0000:03:00.0,id=x", "such as vfio:0000:03:00.0"),
            ("vfio:0000.03.00.0", "such as vfio:0000:03:00.0"),
            ("vhost-user:/run/a,queues=129", "from 1 to 128"),
        ] {
            let error = text.parse::<PortSpec>().unwrap_err().to_string();
            assert!(error.contains(reason), "{text}: {error}");
        }
    }

    #[test]
    fn ports_follow_each_other_in_pci_slots_and_addresses() {
        let [first, second] = [0, 1].map(|index| arguments(&PortSpec::User, index, Accel::Tcg));
        assert!(first.contains("mac=52:54:00:12:34:56,addr=0x2,"), "{first}");
        assert!(second.contains("mac=52:54:00:12:34:57,addr=0x3,"), "{second}");
    }

    #[test]
    fn a_tap_with_queues_gets_a_vector_for_each_ring() {
        let text = arguments(&PortSpec::Tap { name: "t".into(), queues: 2 }, 0, Accel::Tcg);
        assert!(text.contains("vhost=off,queues=2 -device"), "{text}");
        assert!(text.ends_with("mq=on,vectors=6"), "{text}");
    }

    #[test]
    fn a_vhost_user_port_gets_vectors_only_where_qemu_survives_them() {
        let spec = PortSpec::VhostUser { socket: "/run/a".into(), queues: 4 };
        let text = arguments(&spec, 1, Accel::Tcg);
        let backend =
            "-chardev socket,id=socket1,path=/run/a -netdev vhost-user,id=port1,chardev=socket1,queues=4";
        assert!(text.starts_with(backend), "{text}");
        assert!(text.ends_with("mq=on,rx_queue_size=1024,tx_queue_size=1024,vectors=0"), "{text}");
        let text = arguments(&spec, 1, Accel::Kvm);
        assert!(text.ends_with("tx_queue_size=1024,vectors=10"), "{text}");
    }

    #[test]
    fn a_card_of_this_machine_has_no_backend_and_is_looked_for_first() {
        let spec: PortSpec = "vfio:03:00.0".parse().unwrap();
        assert_eq!(arguments(&spec, 1, Accel::Kvm), "-device vfio-pci,host=0000:03:00.0,addr=0x3,rombar=0");
        let [_, _, _, card] = &spec.arguments(1, on(Accel::Kvm, Bus::Own))[..] else {
            panic!("no root port")
        };
        assert_eq!(card, "vfio-pci,host=0000:03:00.0,bus=root1,rombar=0");
        let absent: PortSpec = "vfio:ffff:ff:1f.7".parse().unwrap();
        assert!(absent.check().unwrap_err().to_string().contains("no PCI device ffff:ff:1f.7"));
    }

    #[test]
    fn each_port_can_have_a_root_port_of_its_own() {
        let card = PortSpec::VfioUser { socket: "/run/a\"b".into() };
        let [first, second] = [(&card, 0), (&PortSpec::User, 1)]
            .map(|(spec, index)| spec.arguments(index, on(Accel::Tcg, Bus::Own)));
        assert_eq!(first[..2], ["-device", "pcie-root-port,id=root0,chassis=1,slot=1,addr=0x2"]);
        let device: serde_json::Value = serde_json::from_str(&first[3]).unwrap();
        assert_eq!((&first[2], first.len()), (&"-device".to_owned(), 4));
        assert_eq!((&device["driver"], &device["bus"]), (&"vfio-user-pci".into(), &"root0".into()));
        assert_eq!(device["socket"]["path"], "/run/a\"b");
        let second = second.join(" ");
        assert!(second.starts_with("-device pcie-root-port,id=root1,chassis=2,slot=2,addr=0x3 "), "{second}");
        assert!(second.contains("mac=52:54:00:12:34:57,bus=root1,"), "{second}");
    }

    #[test]
    fn a_comma_in_a_path_stays_in_the_path() {
        let spec = PortSpec::Dgram { local: "/run/a,b".into(), remote: "/run/c".into() };
        let text = arguments(&spec, 0, Accel::Tcg);
        assert!(text.contains("local.path=/run/a,,b,remote.type=unix"), "{text}");
    }
}
