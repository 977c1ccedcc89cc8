//! What tells flows apart: the two sides that speak with each other.
//!
//! The answer is the same for every packet of a flow, whatever stands before the ports: VLAN tags and IPv6 extension
//! headers are walked past. It is also the same for all fragments of a datagram, of which only the first has the ports: a
//! fragment is told by its addresses alone.

/// Bytes of the station addresses, destination first.
const STATIONS_LEN: usize = 12;

/// EtherTypes (IEEE 802 numbers), as they lie in a frame.
mod ethertype {
    pub(super) const IPV4: [u8; 2] = [0x08, 0x00];
    pub(super) const IPV6: [u8; 2] = [0x86, 0xdd];
    pub(super) const VLAN: [u8; 2] = [0x81, 0x00];
    pub(super) const SERVICE_VLAN: [u8; 2] = [0x88, 0xa8];
}

/// VLAN tags that are walked past: a customer's inside a provider's (IEEE 802.1ad).
const MOST_TAGS: usize = 2;

/// Protocols and IPv6 extension headers (IANA protocol numbers).
mod protocol {
    pub(super) const HOP_BY_HOP: u8 = 0;
    pub(super) const TCP: u8 = 6;
    pub(super) const UDP: u8 = 17;
    pub(super) const DCCP: u8 = 33;
    pub(super) const ROUTING: u8 = 43;
    pub(super) const AUTHENTICATION: u8 = 51;
    pub(super) const DESTINATION_OPTIONS: u8 = 60;
    pub(super) const SCTP: u8 = 132;
    pub(super) const UDP_LITE: u8 = 136;
}

/// IPv6 extension headers that are walked past: as many as RFC 8200, 4.1, knows to stand before the ports.
const MOST_EXTENSIONS: usize = 5;

/// Who speaks with whom.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Flow {
    /// The sender.
    pub source: Side,
    /// The receiver.
    pub destination: Side,
}

/// One side of a flow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Side {
    /// The IP address; where a frame is not IP, the station's.
    pub address: u128,
    /// The port, or 0 where there is none.
    pub port: u16,
}

impl Flow {
    /// The flow of `frame`, or `None` where it ends within the Ethernet header.
    #[inline]
    pub fn of(frame: &[u8]) -> Option<Flow> {
        let (stations, rest) = frame.split_first_chunk::<STATIONS_LEN>()?;
        let (ethertype, packet) = untagged(rest)?;
        let ip = match ethertype {
            ethertype::IPV4 => of_ipv4(packet),
            ethertype::IPV6 => of_ipv6(packet),
            _ => None,
        };
        ip.or_else(|| of_stations(stations))
    }

    #[inline]
    fn new(source: u128, destination: u128, ports: Option<[u16; 2]>) -> Flow {
        let [from, to] = ports.unwrap_or_default();
        Flow {
            source: Side { address: source, port: from },
            destination: Side { address: destination, port: to },
        }
    }
}

/// The EtherType behind the VLAN tags, and what it announces.
#[inline]
fn untagged(mut rest: &[u8]) -> Option<([u8; 2], &[u8])> {
    for _ in 0..MOST_TAGS {
        match rest.split_first_chunk()? {
            (&(ethertype::VLAN | ethertype::SERVICE_VLAN), tag) => rest = tag.get(2..)?,
            (&ethertype, packet) => return Some((ethertype, packet)),
        }
    }
    rest.split_first_chunk().map(|(&ethertype, packet)| (ethertype, packet))
}

fn of_stations(stations: &[u8; STATIONS_LEN]) -> Option<Flow> {
    let (destination, source) = stations.split_first_chunk::<6>()?;
    Some(Flow::new(address::<6>(source.try_into().ok()?), address(destination), None))
}

/// RFC 791, 3.1.
#[inline]
fn of_ipv4(packet: &[u8]) -> Option<Flow> {
    const MORE_FRAGMENTS_OR_OFFSET: u16 = 0x3fff;
    let header = packet.first_chunk::<20>()?;
    let header_len = usize::from(header[0] & 0x0f) * 4;
    if header[0] >> 4 != 4 || header_len < header.len() {
        return None;
    }
    let is_fragment = u16::from_be_bytes([header[6], header[7]]) & MORE_FRAGMENTS_OR_OFFSET != 0;
    let ports = if is_fragment { None } else { ports(header[9], packet.get(header_len..)?) };
    let [.., a, b, c, d, e, f, g, h] = *header;
    Some(Flow::new(address(&[a, b, c, d]), address(&[e, f, g, h]), ports))
}

/// RFC 8200, 3.
#[inline]
fn of_ipv6(packet: &[u8]) -> Option<Flow> {
    let (header, payload) = packet.split_first_chunk::<40>()?;
    if header[0] >> 4 != 6 {
        return None;
    }
    let (source, destination) = header[8..].split_first_chunk::<16>()?;
    let ports = ports_behind_extensions(header[6], payload);
    Some(Flow::new(address(source), address::<16>(destination.try_into().ok()?), ports))
}

/// The ports behind at most [`MOST_EXTENSIONS`] extension headers. None of a fragment, where the walk ends at the fragment
/// header, in the first fragment as in the others.
fn ports_behind_extensions(mut next: u8, mut payload: &[u8]) -> Option<[u16; 2]> {
    for _ in 0..MOST_EXTENSIONS {
        let &[following, len, ..] = payload else { return None };
        let len = usize::from(len);
        let bytes = match next {
            protocol::HOP_BY_HOP | protocol::ROUTING | protocol::DESTINATION_OPTIONS => 8 * (len + 1),
            // Counted in another unit than the others (RFC 4302, 2.2).
            protocol::AUTHENTICATION => 4 * (len + 2),
            _ => break,
        };
        payload = payload.get(bytes..)?;
        next = following;
    }
    ports(next, payload)
}

/// Source and destination port, at the front of what `protocol` carries.
#[inline]
fn ports(protocol: u8, payload: &[u8]) -> Option<[u16; 2]> {
    match (protocol, payload) {
        (
            protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDP_LITE,
            &[a, b, c, d, ..],
        ) => Some([u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d])]),
        _ => None,
    }
}

/// An address of `N` bytes as a number.
#[inline]
fn address<const N: usize>(bytes: &[u8; N]) -> u128 {
    let mut wide = [0; 16];
    wide[16 - N..].copy_from_slice(bytes);
    u128::from_be_bytes(wide)
}

#[cfg(test)]
mod tests;
