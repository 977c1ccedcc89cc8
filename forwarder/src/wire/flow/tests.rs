use std::vec::Vec;

use proptest::prelude::*;

use super::*;

const STATIONS: [u8; 12] = [2, 0, 0, 0, 0, 0xd, 2, 0, 0, 0, 0, 0x5];
const BY_STATION: Flow = Flow {
    source: Side { address: 0x0200_0000_0005, port: 0 },
    destination: Side { address: 0x0200_0000_000d, port: 0 },
};

const PORTS: [u8; 4] = [0x12, 0x34, 0xab, 0xcd];

/// A frame with this EtherType, tags before it, and contents.
fn frame(before_packet: &[u8], packet: &[&[u8]]) -> Vec<u8> {
    [&STATIONS, before_packet, &packet.concat()].concat()
}

/// An IPv4 header with so many words of options, and 192.0.2.1 to 198.51.100.2.
fn ipv4(options: u8, fragment: u16, protocol: u8) -> Vec<u8> {
    let [high, low] = fragment.to_be_bytes();
    let mut header = std::vec![0x45 + options, 0, 0, 0, 0, 0, high, low, 64, protocol, 0, 0];
    header.extend([192, 0, 2, 1, 198, 51, 100, 2]);
    header.resize(20 + 4 * usize::from(options), 1);
    header
}

fn by_ipv4(source_port: u16, destination_port: u16) -> Flow {
    Flow {
        source: Side { address: 0xc000_0201, port: source_port },
        destination: Side { address: 0xc633_6402, port: destination_port },
    }
}

/// An IPv6 header, 2001:db8::1 to 2001:db8::2.
fn ipv6(next: u8) -> Vec<u8> {
    let mut header = std::vec![0x60, 0, 0, 0, 0, 0, next, 64];
    for host in 1..=2 {
        header.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host]);
    }
    header
}

fn by_ipv6(source_port: u16, destination_port: u16) -> Flow {
    let net = 0x2001_0db8_u128 << 96;
    Flow {
        source: Side { address: net | 1, port: source_port },
        destination: Side { address: net | 2, port: destination_port },
    }
}

#[test]
fn ipv4_is_told_by_addresses_and_ports() {
    for protocol in [6, 17, 33, 132, 136] {
        let frame = frame(&[0x08, 0x00], &[&ipv4(0, 0, protocol), &PORTS]);
        assert_eq!(Flow::of(&frame), Some(by_ipv4(0x1234, 0xabcd)), "protocol {protocol}");
    }
    let ping = frame(&[0x08, 0x00], &[&ipv4(0, 0, 1), &PORTS]);
    assert_eq!(Flow::of(&ping), Some(by_ipv4(0, 0)), "ICMP has no ports");
    let options = frame(&[0x08, 0x00], &[&ipv4(10, 0, 17), &PORTS]);
    assert_eq!(Flow::of(&options), Some(by_ipv4(0x1234, 0xabcd)), "behind options");
    let never_fragmented = frame(&[0x08, 0x00], &[&ipv4(0, 0x4000, 17), &PORTS]);
    assert_eq!(Flow::of(&never_fragmented), Some(by_ipv4(0x1234, 0xabcd)));
}

#[test]
fn all_fragments_of_an_ipv4_datagram_are_of_one_flow() {
    // First, middle and last: more to come, or an offset, or both.
    for fragment in [0x2000, 0x2001, 0x00b9, 0x1fff] {
        let frame = frame(&[0x08, 0x00], &[&ipv4(0, fragment, 17), &PORTS]);
        assert_eq!(Flow::of(&frame), Some(by_ipv4(0, 0)), "{fragment:#06x}");
    }
}

#[test]
fn ipv6_is_told_by_addresses_and_ports_whatever_stands_between() {
    let hop_by_hop = |next| std::vec![next, 0, 5, 2, 0, 0, 1, 0];
    let routing = |next| [&[next, 2, 4, 0, 0, 0, 0, 0][..], &[0; 16]].concat();
    let authentication = |next| [&[next, 4, 0, 0][..], &[0; 20]].concat();
    let options = |next| [&[next, 1, 1, 12][..], &[0; 12]].concat();
    let told = Some(by_ipv6(0x1234, 0xabcd));
    assert_eq!(Flow::of(&frame(&[0x86, 0xdd], &[&ipv6(6), &PORTS])), told);
    assert_eq!(Flow::of(&frame(&[0x86, 0xdd], &[&ipv6(0), &hop_by_hop(17), &PORTS])), told);
    let all =
        [&ipv6(0)[..], &hop_by_hop(60), &options(43), &routing(51), &authentication(60), &options(6), &PORTS];
    assert_eq!(Flow::of(&frame(&[0x86, 0xdd], &all)), told);
    let one_more =
        [&ipv6(0)[..], &hop_by_hop(60), &options(43), &routing(60), &options(60), &options(60), &options(6)];
    assert_eq!(Flow::of(&frame(&[0x86, 0xdd], &one_more)), Some(by_ipv6(0, 0)), "the walk has an end");
}

#[test]
fn all_fragments_of_an_ipv6_datagram_are_of_one_flow() {
    for offset_and_more in [[0, 1], [0x05, 0xa9], [0x0b, 0x50]] {
        let [high, low] = offset_and_more;
        let header = [17, 0, high, low, 0, 0, 0, 7];
        let frame = frame(&[0x86, 0xdd], &[&ipv6(44), &header, &PORTS]);
        assert_eq!(Flow::of(&frame), Some(by_ipv6(0, 0)), "{offset_and_more:?}");
    }
}

#[test]
fn tags_make_no_difference() {
    let packet = [&ipv4(0, 0, 17)[..], &PORTS];
    for tags in [&[0x81, 0x00, 0x20, 0x05][..], &[0x88, 0xa8, 0, 7, 0x81, 0x00, 0, 9]] {
        let frame = frame(&[tags, &[0x08, 0x00]].concat(), &packet);
        assert_eq!(Flow::of(&frame), Some(by_ipv4(0x1234, 0xabcd)));
    }
    let three = [[0x81, 0x00, 0, 1]; 3].concat();
    let frame = frame(&[&three[..], &[0x08, 0x00]].concat(), &packet);
    assert_eq!(Flow::of(&frame), Some(BY_STATION), "beyond two tags it is no IP that we know");
}

#[test]
fn what_is_not_ip_is_told_by_its_stations() {
    let arp = frame(&[0x08, 0x06], &[&[0; 28]]);
    let not_version_4 = frame(&[0x08, 0x00], &[&ipv6(17)]);
    let not_version_6 = frame(&[0x86, 0xdd], &[&ipv4(5, 0, 17)]);
    let short_header = frame(&[0x08, 0x00], &[&[0x44], &ipv4(0, 0, 17)[1..], &PORTS]);
    let cut = frame(&[0x08, 0x00], &[&ipv4(0, 0, 17)[..19]]);
    let options_cut = frame(&[0x08, 0x00], &[&ipv4(2, 0, 17)[..24]]);
    let no_payload = frame(&[0x88, 0xb5], &[]);
    for frame in [arp, not_version_4, not_version_6, short_header, cut, options_cut, no_payload] {
        assert_eq!(Flow::of(&frame), Some(BY_STATION), "{frame:02x?}");
    }
}

#[test]
fn a_runt_has_no_flow() {
    assert_eq!(Flow::of(&[]), None);
    assert_eq!(Flow::of(&STATIONS), None);
    assert_eq!(Flow::of(&frame(&[0x08], &[])), None);
    assert_eq!(Flow::of(&frame(&[0x81, 0x00, 0, 1], &[])), None, "a tag and no EtherType");
}

proptest! {
    #[test]
    fn whatever_arrives_has_a_flow_or_is_a_runt(
        ethertype in prop::sample::select(std::vec![[0x08, 0x00], [0x86, 0xdd], [0x81, 0x00], [0x88, 0xb5]]),
        version in prop::sample::select(std::vec![0x45, 0x4f, 0x60, 0x00]),
        next in prop::sample::select(std::vec![0, 6, 17, 43, 44, 51, 60]),
        mut rest in prop::collection::vec(any::<u8>(), 0..120),
        len in 0..140usize,
    ) {
        for (place, value) in [(0, version), (6, next), (40, next)] {
            if let Some(byte) = rest.get_mut(place) {
                *byte = value;
            }
        }
        let mut frame = frame(&ethertype, &[&rest]);
        frame.truncate(len);
        let is_runt = frame.len() < 14 || frame[12..14] == [0x81, 0x00] && frame.len() < 18;
        prop_assert!(is_runt || Flow::of(&frame).is_some());
    }
}
