//! Which frames are the local stack's, whatever the program would say about them.
//!
//! The filter is asked for every packet of a port that has a stack, so it reads a few bytes at fixed places and decodes
//! nothing. It says yes to frames that the stack then finds malformed; it never says no to one that the stack needs.

use arrayvec::ArrayVec;
use netdrv::device::Mac;
use smoltcp::wire::{IpAddress, IpCidr};

/// The most addresses of a port: those that were configured, and a link-local one.
pub(super) const MAX_ADDRESSES: usize = 8;

const ETHERTYPE_IPV4: [u8; 2] = [0x08, 0x00];
const ETHERTYPE_ARP: [u8; 2] = [0x08, 0x06];
const ETHERTYPE_IPV6: [u8; 2] = [0x86, 0xdd];

/// Ethernet as hardware, IPv4 as protocol, and the lengths of their addresses (RFC 826).
const ARP_FOR_IPV4: [u8; 6] = [0, 1, 0x08, 0x00, 6, 4];

/// `ff02::1`, every node of the link (RFC 4291, 2.7.1).
const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
/// `ff02::1:ff00:0/104`; the last three bytes are those of the address that is asked for (RFC 4291, 2.7.1).
const SOLICITED_NODE: [u8; 13] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];

const NEXT_HEADER_HOP_BY_HOP: u8 = 0;
const NEXT_HEADER_ICMPV6: u8 = 58;
const ICMPV6_NEIGHBOR_SOLICITATION: u8 = 135;

/// Whose a frame is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Destination {
    /// The program's.
    Elsewhere,
    /// The stack's alone.
    Here,
    /// The stack's and every other station's, e.g. a router's advertisement: the program sees it, the stack gets a copy.
    Everyone,
}

/// The addresses of a port's stack, in the form that frames carry them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalFilter {
    mac: [u8; 6],
    ipv4: ArrayVec<[u8; 4], MAX_ADDRESSES>,
    ipv6: ArrayVec<[u8; 16], MAX_ADDRESSES>,
}

impl LocalFilter {
    /// A filter for a station `mac` that has `addresses`, at most [`MAX_ADDRESSES`].
    pub(super) fn new(mac: Mac, addresses: &[IpCidr]) -> LocalFilter {
        let mut filter = LocalFilter { mac: mac.0, ipv4: ArrayVec::new(), ipv6: ArrayVec::new() };
        for cidr in addresses {
            match cidr.address() {
                IpAddress::Ipv4(address) => filter.ipv4.push(address.octets()),
                IpAddress::Ipv6(address) => filter.ipv6.push(address.octets()),
            }
        }
        filter
    }

    /// Whether the stack must get this frame: [`destination`](Self::destination) is not [`Destination::Elsewhere`].
    #[inline]
    pub fn is_local(&self, frame: &[u8]) -> bool {
        self.destination(frame) != Destination::Elsewhere
    }

    /// Whose the frame is. Frames with a VLAN tag are never the stack's.
    #[inline]
    pub fn destination(&self, frame: &[u8]) -> Destination {
        // Ethernet and the shorter of the two IP headers; an ARP packet is longer.
        let Some(head) = frame.first_chunk::<34>() else {
            return Destination::Elsewhere;
        };
        let to_group = head[0] & 1 == 1;
        if !to_group && head[..6] != self.mac {
            return Destination::Elsewhere;
        }
        match [head[12], head[13]] {
            ETHERTYPE_IPV4 if self.is_ours_ipv4(head) => Destination::Here,
            ETHERTYPE_ARP if self.is_ours_arp(frame) => Destination::Here,
            ETHERTYPE_IPV6 => self.destination_ipv6(frame),
            _ => Destination::Elsewhere,
        }
    }

    #[inline]
    fn is_ours_ipv4(&self, head: &[u8; 34]) -> bool {
        head[14] >> 4 == 4 && self.ipv4.contains(&[head[30], head[31], head[32], head[33]])
    }

    /// Requests for an address of ours, and replies to one.
    fn is_ours_arp(&self, frame: &[u8]) -> bool {
        let Some(head) = frame.first_chunk::<42>() else {
            return false;
        };
        head[14..20] == ARP_FOR_IPV4 && self.ipv4.contains(&[head[38], head[39], head[40], head[41]])
    }

    #[inline]
    fn destination_ipv6(&self, frame: &[u8]) -> Destination {
        let Some((head, payload)) = frame.split_first_chunk::<54>() else {
            return Destination::Elsewhere;
        };
        let address = &head[38..54];
        match head[14] >> 4 {
            6 if self.is_ours_ipv6(address) => Destination::Here,
            6 if self.is_group_of_ours(address) => self.destination_in_group(head[20], payload),
            _ => Destination::Elsewhere,
        }
    }

    fn is_ours_ipv6(&self, address: &[u8]) -> bool {
        self.ipv6.iter().any(|ours| ours == address)
    }

    fn is_group_of_ours(&self, group: &[u8]) -> bool {
        match group.strip_prefix(&SOLICITED_NODE) {
            Some(tail) => self.ipv6.iter().any(|ours| ours.ends_with(tail)),
            None => group == ALL_NODES && !self.ipv6.is_empty(),
        }
    }

    /// The stack takes part in ICMPv6 with its groups (neighbours, listeners), in nothing else.
    fn destination_in_group(&self, next_header: u8, payload: &[u8]) -> Destination {
        match (next_header, payload) {
            // Other stations may share a solicited-node group; only one has the target, which comes after type, code,
            // checksum and a reserved word (RFC 4861, 4.3).
            (NEXT_HEADER_ICMPV6, [ICMPV6_NEIGHBOR_SOLICITATION, rest @ ..]) => match rest.get(7..23) {
                Some(target) if self.is_ours_ipv6(target) => Destination::Here,
                _ => Destination::Elsewhere,
            },
            (NEXT_HEADER_ICMPV6, [_, ..]) | (NEXT_HEADER_HOP_BY_HOP, [NEXT_HEADER_ICMPV6, ..]) => {
                Destination::Everyone
            }
            _ => Destination::Elsewhere,
        }
    }
}
