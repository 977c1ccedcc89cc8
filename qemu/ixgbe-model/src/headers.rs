//! The headers of a frame, as far as the card looks at them.

/// Bytes of an Ethernet header without a tag.
pub(crate) const ETHERNET_LEN: usize = 14;
/// Bytes of a VLAN tag.
pub(crate) const TAG_LEN: usize = 4;
/// The ethertype of a VLAN tag, unless software names another.
pub(crate) const VLAN_ETHERTYPE: u16 = 0x8100;

const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;

/// Protocol numbers.
pub(crate) const TCP: u8 = 6;
pub(crate) const UDP: u8 = 17;
pub(crate) const SCTP: u8 = 132;

/// What was found in a frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Headers {
    /// The tag's control information, where the frame has a VLAN tag.
    pub(crate) vlan: Option<u16>,
    /// What follows the Ethernet header and the tag.
    pub(crate) ethertype: u16,
    /// The network layer, where it is one that the card knows and it is complete.
    pub(crate) ip: Option<Ip>,
}

/// An IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ip {
    pub(crate) version: Version,
    /// Where the header begins in the frame.
    pub(crate) start: usize,
    /// Where its payload begins.
    pub(crate) payload: usize,
    /// Where the packet ends: the frame may be padded.
    pub(crate) end: usize,
    /// What the payload is, behind all extension headers.
    pub(crate) protocol: u8,
    /// It is a part of a packet: there are no ports, or they are not to be relied on.
    pub(crate) fragment: bool,
    /// IPv4 options, or IPv6 extension headers.
    pub(crate) extended: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Version {
    V4,
    V6,
}

impl Headers {
    /// Parses a frame whose VLAN tags have this ethertype.
    pub(crate) fn parse(frame: &[u8], vlan_ethertype: u16) -> Headers {
        let mut headers = Headers::default();
        let Some(mut ethertype) = be16(frame, 12) else { return headers };
        let mut start = ETHERNET_LEN;
        if ethertype == vlan_ethertype
            && let (Some(tag), Some(inner)) = (be16(frame, 14), be16(frame, 16))
        {
            headers.vlan = Some(tag);
            ethertype = inner;
            start += TAG_LEN;
        }
        headers.ethertype = ethertype;
        headers.ip = match ethertype {
            IPV4 => Ip::v4(frame, start),
            IPV6 => Ip::v6(frame, start),
            _ => None,
        };
        headers
    }
}

impl Ip {
    fn v4(frame: &[u8], start: usize) -> Option<Ip> {
        let header = frame.get(start..start + 20)?;
        let header_len = usize::from(header[0] & 0xf) * 4;
        let end = start + usize::from(be16(header, 2)?);
        (header[0] >> 4 == 4 && header_len >= 20 && start + header_len <= end && end <= frame.len())
            .then_some(Ip {
                version: Version::V4,
                start,
                payload: start + header_len,
                end,
                protocol: header[9],
                // More fragments, or an offset.
                fragment: be16(header, 6)? & 0x3fff != 0,
                extended: header_len > 20,
            })
    }

    fn v6(frame: &[u8], start: usize) -> Option<Ip> {
        const HOP_BY_HOP: u8 = 0;
        const ROUTING: u8 = 43;
        const FRAGMENT: u8 = 44;
        const DESTINATION: u8 = 60;
        let header = frame.get(start..start + 40)?;
        let end = start + 40 + usize::from(be16(header, 4)?);
        if header[0] >> 4 != 6 || end > frame.len() {
            return None;
        }
        let mut ip = Ip {
            version: Version::V6,
            start,
            payload: start + 40,
            end,
            protocol: header[6],
            fragment: false,
            extended: false,
        };
        loop {
            let extension = match ip.protocol {
                HOP_BY_HOP | ROUTING | DESTINATION => {
                    8 + 8 * usize::from(*frame.get(ip.payload + 1).filter(|_| ip.payload + 2 <= end)?)
                }
                FRAGMENT => {
                    ip.fragment = true;
                    8
                }
                _ => return Some(ip),
            };
            ip.extended = true;
            ip.protocol = *frame.get(ip.payload)?;
            ip.payload += extension;
            if ip.payload > end {
                return None;
            }
        }
    }

    /// The two addresses, source before destination, as they are in the frame.
    pub(crate) fn addresses<'f>(&self, frame: &'f [u8]) -> &'f [u8] {
        match self.version {
            Version::V4 => &frame[self.start + 12..self.start + 20],
            Version::V6 => &frame[self.start + 8..self.start + 40],
        }
    }

    /// The two ports, source before destination, if the packet has such.
    pub(crate) fn ports<'f>(&self, frame: &'f [u8]) -> Option<&'f [u8]> {
        let known = matches!(self.protocol, TCP | UDP | SCTP) && !self.fragment;
        frame[..self.end].get(self.payload..self.payload + 4).filter(|_| known)
    }
}

/// Two bytes of a frame, in network order.
pub(crate) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]))
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// An Ethernet frame with an IPv4 header around this.
    pub(crate) fn ipv4(source: [u8; 4], destination: [u8; 4], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x02, 0x82, 0x59, 0x90, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x08, 0x00];
        let len = (20 + payload.len()) as u16;
        frame.extend([0x45, 0, (len >> 8) as u8, len as u8, 0, 0, 0, 0, 64, protocol, 0, 0]);
        frame.extend(source);
        frame.extend(destination);
        frame.extend(payload);
        frame
    }

    /// An Ethernet frame with an IPv6 header around this.
    pub(crate) fn ipv6(source: [u8; 16], destination: [u8; 16], protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut frame = vec![0x02, 0x82, 0x59, 0x90, 0, 1, 0x02, 0, 0, 0, 0, 2, 0x86, 0xdd];
        let len = payload.len() as u16;
        frame.extend([0x60, 0, 0, 0, (len >> 8) as u8, len as u8, protocol, 64]);
        frame.extend(source);
        frame.extend(destination);
        frame.extend(payload);
        frame
    }

    #[test]
    fn a_tag_is_looked_behind() {
        let mut frame = ipv4([10, 0, 0, 1], [10, 0, 0, 2], UDP, &[0x12, 0x34, 0x56, 0x78, 0, 8, 0, 0]);
        let plain = Headers::parse(&frame, VLAN_ETHERTYPE);
        assert_eq!((plain.vlan, plain.ethertype), (None, IPV4));
        let ip = plain.ip.expect("an IPv4 header");
        assert_eq!(ip.ports(&frame), Some(&[0x12, 0x34, 0x56, 0x78][..]));
        assert_eq!(ip.addresses(&frame), [10, 0, 0, 1, 10, 0, 0, 2]);

        frame.splice(12..12, [0x81, 0x00, 0x20, 0x05]);
        let tagged = Headers::parse(&frame, VLAN_ETHERTYPE);
        assert_eq!((tagged.vlan, tagged.ethertype), (Some(0x2005), IPV4));
        assert_eq!(tagged.ip.map(|ip| ip.start), Some(18));
    }

    #[test]
    fn fragments_have_no_ports() {
        let mut frame = ipv4([10, 0, 0, 1], [10, 0, 0, 2], UDP, &[0; 8]);
        frame[ETHERNET_LEN + 6] = 0x20;
        let ip = Headers::parse(&frame, VLAN_ETHERTYPE).ip.expect("an IPv4 header");
        assert!(ip.fragment);
        assert_eq!(ip.ports(&frame), None);
    }

    #[test]
    fn extension_headers_are_skipped() {
        let mut payload = vec![UDP, 0, 0, 0, 0, 0, 0, 0];
        payload.extend([0, 1, 0, 2, 0, 8, 0, 0]);
        let frame = ipv6([1; 16], [2; 16], 60, &payload);
        let ip = Headers::parse(&frame, VLAN_ETHERTYPE).ip.expect("an IPv6 header");
        assert!(ip.extended && !ip.fragment);
        assert_eq!((ip.protocol, ip.ports(&frame)), (UDP, Some(&[0, 1, 0, 2][..])));
    }

    #[test]
    fn no_frame_however_short_is_read_beyond_its_end() {
        let mut payload = vec![43, 0, 0, 0, 0, 0, 0, 0];
        payload.extend([UDP, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 2, 0, 8, 0, 0]);
        for frame in [ipv4([1; 4], [2; 4], TCP, &[0; 20]), ipv6([1; 16], [2; 16], 60, &payload)] {
            for len in 0..=frame.len() {
                let headers = Headers::parse(&frame[..len], VLAN_ETHERTYPE);
                assert_eq!(headers.ip.is_some(), len == frame.len(), "{len} bytes");
            }
        }
    }
}
