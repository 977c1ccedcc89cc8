//! Checksums and segmentation (datasheet 7.1.11, 7.2.4, 7.2.5).

use crate::descriptor::{Context, L4};
use crate::headers::{Ip, TCP, UDP, Version};

/// Where a TCP header has its sequence number, its flags and its checksum.
const TCP_SEQUENCE: usize = 4;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const TCP_FIN_PSH: u8 = 0x09;
const TCP_CWR: u8 = 0x80;
/// Where a UDP header has its length and its checksum.
const UDP_LENGTH: usize = 4;
const UDP_CHECKSUM: usize = 6;
/// Where an IPv4 header has its length, its identification and its checksum.
const IPV4_LENGTH: usize = 2;
const IPV4_ID: usize = 4;
const IPV4_CHECKSUM: usize = 10;
const IPV6_LENGTH: usize = 4;

/// The sum of 16-bit words in one's complement (RFC 1071), going on from `sum`.
fn add(sum: u16, bytes: &[u8]) -> u16 {
    let (words, rest) = bytes.as_chunks::<2>();
    let mut total =
        u64::from(sum) + words.iter().map(|word| u64::from(u16::from_be_bytes(*word))).sum::<u64>();
    total += rest.first().map_or(0, |last| u64::from(*last) << 8);
    while total > 0xffff {
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

/// The sum of the pseudo header, with the length of what follows the IP header.
fn pseudo_header(frame: &[u8], ip: &Ip, len: usize) -> u16 {
    let sum = add(0, ip.addresses(frame));
    let sum = add(sum, &[0, ip.protocol]);
    add(sum, &(len as u32).to_be_bytes())
}

/// Whether the checksum of an IPv4 header is right.
pub(crate) fn ip_checksum_is_right(frame: &[u8], ip: &Ip) -> Option<bool> {
    (ip.version == Version::V4).then(|| add(0, &frame[ip.start..ip.payload]) == 0xffff)
}

/// Whether the checksum of a TCP or UDP packet is right; `None` where there is none to check.
pub(crate) fn l4_checksum_is_right(frame: &[u8], ip: &Ip) -> Option<bool> {
    let packet = &frame[ip.payload..ip.end];
    match ip.protocol {
        TCP if packet.len() >= 20 => {}
        // A sender may leave it out.
        UDP if packet.len() >= 8 && packet[UDP_CHECKSUM..UDP_CHECKSUM + 2] != [0, 0] => {}
        _ => return None,
    }
    Some(add(pseudo_header(frame, ip, packet.len()), packet) == 0xffff)
}

/// Sums everything from `start` on and stores the complement at `at`; the field holds what the driver put in.
pub(crate) fn insert_checksum(frame: &mut [u8], start: usize, at: usize) -> bool {
    if start > frame.len() || at + 2 > frame.len() {
        return false;
    }
    let sum = !add(0, &frame[start..]);
    frame[at..at + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

fn insert_ip_checksum(frame: &mut [u8], context: &Context) -> bool {
    let (start, end) = (context.mac_len, context.mac_len + context.ip_len);
    if !context.ipv4 || context.ip_len < 20 || end > frame.len() {
        return false;
    }
    frame[start + IPV4_CHECKSUM..start + IPV4_CHECKSUM + 2].fill(0);
    let sum = !add(0, &frame[start..end]);
    frame[start + IPV4_CHECKSUM..start + IPV4_CHECKSUM + 2].copy_from_slice(&sum.to_be_bytes());
    true
}

fn insert_l4_checksum(frame: &mut [u8], context: &Context) -> bool {
    let start = context.mac_len + context.ip_len;
    let at = start
        + match context.l4 {
            L4::Tcp => TCP_CHECKSUM,
            L4::Udp => UDP_CHECKSUM,
            L4::Sctp | L4::Reserved => return false,
        };
    let inserted = insert_checksum(frame, start, at);
    if inserted && context.l4 == L4::Udp && frame[at..at + 2] == [0, 0] {
        // Zero would mean that there is none.
        frame[at..at + 2].fill(0xff);
    }
    inserted
}

/// The checksums that a descriptor asks for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Checksums {
    pub(crate) ip: bool,
    pub(crate) l4: bool,
}

/// The frame asked for something that its context does not allow for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Impossible;

/// Inserts the checksums of a frame that is not segmented.
pub(crate) fn finish(frame: &mut [u8], context: &Context, wanted: Checksums) -> Result<(), Impossible> {
    let ip = !wanted.ip || insert_ip_checksum(frame, context);
    let l4 = !wanted.l4 || insert_l4_checksum(frame, context);
    if ip && l4 { Ok(()) } else { Err(Impossible) }
}

/// Cuts a frame into segments of at most MSS bytes of payload (7.2.4).
///
/// The driver leaves the sum of the pseudo header without a length in the checksum field; IP lengths are filled in here.
pub(crate) fn segment(
    frame: &[u8],
    context: &Context,
    mut emit: impl FnMut(&mut Vec<u8>),
) -> Result<(), Impossible> {
    let l4_start = context.mac_len + context.ip_len;
    let header_len = l4_start + context.l4_len;
    let least = match context.l4 {
        L4::Tcp => 20,
        L4::Udp => 8,
        L4::Sctp | L4::Reserved => return Err(Impossible),
    };
    let ip_least = if context.ipv4 { 20 } else { 40 };
    if context.mss == 0 || context.l4_len < least || context.ip_len < ip_least || header_len >= frame.len() {
        return Err(Impossible);
    }
    let (header, payload) = frame.split_at(header_len);
    let parts = payload.len().div_ceil(context.mss);
    let mut segment = Vec::with_capacity(header_len + context.mss);
    for (part, bytes) in payload.chunks(context.mss).enumerate() {
        segment.clear();
        segment.extend_from_slice(header);
        segment.extend_from_slice(bytes);
        patch_ip(&mut segment, context, part);
        patch_l4(&mut segment, context, part, parts, l4_start);
        emit(&mut segment);
    }
    Ok(())
}

fn patch_ip(segment: &mut [u8], context: &Context, part: usize) {
    let start = context.mac_len;
    let total = segment.len() - start;
    if context.ipv4 {
        put16(segment, start + IPV4_LENGTH, total as u16);
        let id = get16(segment, start + IPV4_ID).wrapping_add(part as u16);
        put16(segment, start + IPV4_ID, id);
        insert_ip_checksum(segment, context);
    } else {
        put16(segment, start + IPV6_LENGTH, (total - 40) as u16);
    }
}

fn patch_l4(segment: &mut [u8], context: &Context, part: usize, parts: usize, l4_start: usize) {
    let len = segment.len() - l4_start;
    let checksum = match context.l4 {
        L4::Tcp => {
            let at = l4_start + TCP_SEQUENCE;
            let sequence =
                u32::from_be_bytes([segment[at], segment[at + 1], segment[at + 2], segment[at + 3]]);
            let sequence = sequence.wrapping_add((part * context.mss) as u32);
            segment[at..at + 4].copy_from_slice(&sequence.to_be_bytes());
            if part + 1 != parts {
                segment[l4_start + TCP_FLAGS] &= !TCP_FIN_PSH;
            }
            if part != 0 {
                segment[l4_start + TCP_FLAGS] &= !TCP_CWR;
            }
            l4_start + TCP_CHECKSUM
        }
        _ => {
            put16(segment, l4_start + UDP_LENGTH, len as u16);
            l4_start + UDP_CHECKSUM
        }
    };
    // The length was left out of the pseudo header's sum.
    let sum = add(get16(segment, checksum), &(len as u32).to_be_bytes());
    put16(segment, checksum, sum);
    insert_l4_checksum(segment, context);
}

fn get16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::headers::tests::{ipv4, ipv6};
    use crate::headers::{ETHERNET_LEN, Headers, VLAN_ETHERTYPE};

    /// The example of RFC 1071, 3.
    #[test]
    fn the_sum_is_that_of_the_rfc() {
        assert_eq!(add(0, &[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(add(0, &[0xff, 0xff, 0x01]), 0x0100, "an odd byte is the upper one of its word");
    }

    fn context(l4: L4, ipv4: bool, l4_len: usize, mss: usize) -> Context {
        let ip_len = if ipv4 { 20 } else { 40 };
        Context { vlan: 0, mac_len: ETHERNET_LEN, ip_len, l4_len, mss, ipv4, l4 }
    }

    fn ip(frame: &[u8]) -> Ip {
        Headers::parse(frame, VLAN_ETHERTYPE).ip.expect("an IP header")
    }

    /// Puts the sum of the pseudo header where the driver does.
    fn seed(frame: &mut [u8], at: usize, len: usize) {
        let ip = ip(frame);
        let sum = pseudo_header(frame, &ip, len);
        put16(frame, ip.payload + at, sum);
    }

    #[test]
    fn inserted_checksums_are_found_right() {
        for payload in [&b"sluice"[..], b"odd", b""] {
            let mut packet = vec![0x12, 0x34, 0x56, 0x78, 0, 8 + payload.len() as u8, 0, 0];
            packet.extend(payload);
            let mut frame = ipv4([10, 0, 0, 1], [10, 0, 0, 2], UDP, &packet);
            let len = packet.len();
            assert_eq!(ip_checksum_is_right(&frame, &ip(&frame)), Some(false));
            assert_eq!(l4_checksum_is_right(&frame, &ip(&frame)), None, "UDP without a checksum");
            seed(&mut frame, UDP_CHECKSUM, len);
            finish(&mut frame, &context(L4::Udp, true, 8, 0), Checksums { ip: true, l4: true })
                .expect("both");
            assert_eq!(ip_checksum_is_right(&frame, &ip(&frame)), Some(true));
            assert_eq!(l4_checksum_is_right(&frame, &ip(&frame)), Some(true));
            frame[ETHERNET_LEN + 20] ^= 1;
            assert_eq!(l4_checksum_is_right(&frame, &ip(&frame)), Some(false));
        }
    }

    fn tcp_packet(payload: usize) -> Vec<u8> {
        let mut packet = vec![0; 20];
        packet[4..8].copy_from_slice(&0xffff_fff0u32.to_be_bytes());
        packet[12] = 0x50;
        packet[TCP_FLAGS] = 0x10 | TCP_FIN_PSH | TCP_CWR;
        packet.extend((0..payload).map(|byte| byte as u8));
        packet
    }

    #[test]
    fn segments_add_up_to_the_frame() {
        for v4 in [true, false] {
            let packet = tcp_packet(2500);
            let mut frame = if v4 {
                ipv4([10, 0, 0, 1], [10, 0, 0, 2], TCP, &packet)
            } else {
                ipv6([1; 16], [2; 16], TCP, &packet)
            };
            seed(&mut frame, TCP_CHECKSUM, 0);
            let mut segments = Vec::new();
            segment(&frame, &context(L4::Tcp, v4, 20, 1000), |part| segments.push(part.clone()))
                .expect("segments");

            let mut payload: Vec<u8> = Vec::new();
            for (index, part) in segments.iter().enumerate() {
                let ip = ip(part);
                assert_eq!(ip.end, part.len());
                assert_ne!(ip_checksum_is_right(part, &ip), Some(false), "segment {index}");
                assert_eq!(l4_checksum_is_right(part, &ip), Some(true), "segment {index}");
                let tcp = &part[ip.payload..];
                let sequence = u32::from_be_bytes(tcp[4..8].try_into().expect("four bytes"));
                assert_eq!(sequence, 0xffff_fff0u32.wrapping_add(1000 * index as u32));
                assert_eq!(tcp[TCP_FLAGS] & TCP_FIN_PSH != 0, index == 2, "segment {index}");
                assert_eq!(tcp[TCP_FLAGS] & TCP_CWR != 0, index == 0, "segment {index}");
                payload.extend(&tcp[20..]);
            }
            assert_eq!(segments.len(), 3);
            assert_eq!(payload, packet[20..]);
        }
    }

    #[test]
    fn what_does_not_fit_its_context_is_refused() {
        let frame = ipv4([10, 0, 0, 1], [10, 0, 0, 2], TCP, &tcp_packet(100));
        for bad in [
            context(L4::Tcp, true, 20, 0),
            context(L4::Tcp, true, 19, 1000),
            context(L4::Sctp, true, 20, 1000),
            Context { mac_len: 120, ..context(L4::Tcp, true, 20, 1000) },
            Context { ip_len: 0, ..context(L4::Tcp, true, 20, 1000) },
        ] {
            assert_eq!(segment(&frame, &bad, |_| panic!("a segment")), Err(Impossible), "{bad:?}");
        }
    }
}
