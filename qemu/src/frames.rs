//! One tagged frame: UDP in IPv4 in Ethernet, every byte of which follows from its tag.
//!
//! ```text
//! 0        14      34    42      46     50         54          56
//! Ethernet | IPv4  | UDP | magic | flow | sequence | direction | body: pseudo-random, seeded by the tag
//! ```

use etherparse::PacketBuilder;

/// The shortest frame on Ethernet, without its checksum.
pub const MIN_FRAME: usize = 60;
/// The longest frame at an MTU of 1500, without its checksum.
pub const MAX_FRAME: usize = 1514;

/// Ethernet, IPv4 and UDP headers.
const HEADERS: usize = 14 + 20 + 8;
const MAGIC: [u8; 4] = *b"SLUI";
/// Magic, flow, sequence and direction.
const TAG: usize = 4 + 4 + 4 + 2;

/// The EtherType of a probe: the first for local experiments (IEEE 802, clause 9.2.4).
const PROBE_TYPE: [u8; 2] = [0x88, 0xb5];
/// What follows it: others experiment as well.
const PROBE_MARK: &[u8] = b"sluice probe: has forwarding begun?";

/// What tells one frame from all others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Which way the frame goes; no more than a number to tell the directions apart.
    pub direction: u16,
    /// The flow, counted from 0.
    pub flow: u32,
    /// The place within the flow, counted from 0.
    pub sequence: u32,
}

impl Tag {
    /// The tag that a frame carries; `None` when it carries none.
    pub fn of(frame: &[u8]) -> Option<Self> {
        let tag = frame.get(HEADERS..HEADERS + TAG)?.strip_prefix(&MAGIC)?;
        let (flow, tag) = tag.split_first_chunk()?;
        let (sequence, tag) = tag.split_first_chunk()?;
        let (direction, _) = tag.split_first_chunk()?;
        Some(Self {
            direction: u16::from_be_bytes(*direction),
            flow: u32::from_be_bytes(*flow),
            sequence: u32::from_be_bytes(*sequence),
        })
    }

    /// The length of this frame: the shortest, the next and the longest often, all others alike.
    pub fn length(self) -> usize {
        let draw = self.seed();
        match draw % 16 {
            0 => MIN_FRAME,
            1 => MIN_FRAME + 1,
            2 => MAX_FRAME,
            _ => MIN_FRAME + (draw >> 32) as usize % (MAX_FRAME - MIN_FRAME + 1),
        }
    }

    /// Writes this frame in place of what the buffer holds.
    pub fn write(self, frame: &mut Vec<u8>) {
        let mut payload = [0; MAX_FRAME - HEADERS];
        let payload = &mut payload[..self.length() - HEADERS];
        self.fill(payload);
        let [high, low] = [(self.flow >> 8) as u8, self.flow as u8];
        let from = self.direction as u8;
        let to = from ^ 1;
        frame.clear();
        PacketBuilder::ethernet2(host_mac(from), destination(self.direction))
            .ipv4([10, from, high, low], [10, to, high, low], 64)
            .udp(1024 + (self.flow % 60_000) as u16, 4791)
            .write(frame, payload)
            .expect("a vector takes every frame, and no length overflows");
    }

    fn fill(self, payload: &mut [u8]) {
        let (tag, body) = payload.split_at_mut(TAG);
        tag[..4].copy_from_slice(&MAGIC);
        tag[4..8].copy_from_slice(&self.flow.to_be_bytes());
        tag[8..12].copy_from_slice(&self.sequence.to_be_bytes());
        tag[12..].copy_from_slice(&self.direction.to_be_bytes());
        let mut state = self.seed();
        for chunk in body.chunks_mut(8) {
            state = mix(state);
            chunk.copy_from_slice(&state.to_le_bytes()[..chunk.len()]);
        }
    }

    fn seed(self) -> u64 {
        mix(u64::from(self.flow) << 32 | u64::from(self.sequence)) ^ mix(u64::from(self.direction))
    }
}

/// The address that frames of a direction are for: the host behind its counterpart.
pub(crate) fn destination(direction: u16) -> [u8; 6] {
    host_mac(direction as u8 ^ 1)
}

/// The address of the host behind a direction: locally administered.
fn host_mac(direction: u8) -> [u8; 6] {
    [0x02, 0, 0, 0, 0, direction]
}

/// One step of SplitMix64 (Steele, Lea and Flood 2014): fast, and no two states collide.
fn mix(state: u64) -> u64 {
    let state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let state = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let state = (state ^ (state >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    state ^ (state >> 31)
}

/// Whether a frame is one of ours, however damaged: one damaged place cannot hide both marks.
pub fn is_ours(frame: &[u8]) -> bool {
    let between_our_hosts =
        frame.len() >= 12 && frame[..12].chunks(6).all(|mac| mac[..5] == host_mac(0)[..5]);
    between_our_hosts || Tag::of(frame).is_some()
}

/// Exchanges the two addresses of a frame, as the program `reflect` does.
pub fn swap_macs(frame: &mut [u8]) {
    if let Some(addresses) = frame.first_chunk_mut::<12>() {
        addresses.rotate_left(6);
    }
}

/// A frame that only shows that frames pass; it belongs to no flow.
pub fn probe() -> [u8; MIN_FRAME] {
    let mut frame = [0; MIN_FRAME];
    frame[..6].copy_from_slice(&host_mac(1));
    frame[6..12].copy_from_slice(&host_mac(0));
    frame[12..14].copy_from_slice(&PROBE_TYPE);
    frame[14..14 + PROBE_MARK.len()].copy_from_slice(PROBE_MARK);
    frame
}

/// Whether a frame is a probe; a capture may hold other frames of the same EtherType.
pub fn is_probe(frame: &[u8]) -> bool {
    frame == probe()
}

#[cfg(test)]
mod tests {
    use etherparse::{SlicedPacket, TransportSlice};
    use proptest::prelude::*;

    use super::*;

    fn tags() -> impl Strategy<Value = Tag> {
        (0..2_u16, any::<u32>(), any::<u32>()).prop_map(|(direction, flow, sequence)| Tag {
            direction,
            flow,
            sequence,
        })
    }

    proptest! {
        #[test]
        fn a_frame_carries_its_tag_in_a_valid_packet(tag in tags()) {
            let mut frame = vec![1, 2, 3];
            tag.write(&mut frame);
            prop_assert_eq!(frame.len(), tag.length());
            prop_assert_eq!(Tag::of(&frame), Some(tag));
            prop_assert!(is_ours(&frame) && !is_probe(&frame));
            check_headers(&frame);
        }

        #[test]
        fn one_changed_byte_makes_another_frame_that_is_still_ours(tag in tags(), at: prop::sample::Index, xor in 1..=255_u8) {
            let mut frame = Vec::new();
            tag.write(&mut frame);
            let original = frame.clone();
            frame[at.index(original.len())] ^= xor;
            prop_assert!(is_ours(&frame));
            if let Some(tag) = Tag::of(&frame) {
                let mut expected = Vec::new();
                tag.write(&mut expected);
                prop_assert_ne!(frame, expected);
            }
        }

        #[test]
        fn swapping_twice_changes_nothing(mut frame in prop::collection::vec(any::<u8>(), 0..64)) {
            let original = frame.clone();
            swap_macs(&mut frame);
            if let Some(head) = original.get(..12) {
                prop_assert_eq!(&frame[..6], &head[6..]);
            }
            swap_macs(&mut frame);
            prop_assert_eq!(frame, original);
        }
    }

    /// Both checksums are right: a parser that was not written here agrees.
    fn check_headers(frame: &[u8]) {
        let packet = SlicedPacket::from_ethernet(frame).unwrap();
        let ip = match packet.net.unwrap() {
            etherparse::NetSlice::Ipv4(ip) => ip.header().to_header(),
            other => panic!("{other:?}"),
        };
        assert_eq!(ip.header_checksum, ip.calc_header_checksum());
        let Some(TransportSlice::Udp(udp)) = packet.transport else { panic!("no UDP") };
        assert_eq!(udp.checksum(), udp.to_header().calc_checksum_ipv4(&ip, udp.payload()).unwrap());
    }

    #[test]
    fn lengths_cover_the_whole_range() {
        let lengths = (0..100_000).map(|sequence| Tag { direction: 0, flow: 7, sequence }.length());
        let mut seen = lengths.collect::<Vec<_>>();
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, (MIN_FRAME..=MAX_FRAME).collect::<Vec<_>>());
    }

    #[test]
    fn a_probe_is_no_frame_of_a_flow() {
        assert!(is_probe(&probe()));
        assert_eq!(Tag::of(&probe()), None);
        assert!(!is_probe(&[0; 13]));
        let mut experiment = probe();
        experiment[20] ^= 1;
        assert!(!is_probe(&experiment), "somebody else's experiment");
    }
}
