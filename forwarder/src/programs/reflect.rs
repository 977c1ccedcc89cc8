//! `reflect`: the frame goes back to its sender, with the addresses swapped.
//!
//! | outcome | when |
//! |---|---|
//! | `Tx` | the frame has an Ethernet header |
//! | `Aborted` | it has none |

use netdrv::packet::Packet;

use crate::verdict::Verdict;
use crate::wire::ethernet::Header;

#[inline(always)]
pub(super) fn verdict(packet: &mut Packet) -> Verdict {
    let Some(mut header) = Header::of(packet.bytes_mut()) else { return Verdict::Aborted };
    header.swap_addresses();
    Verdict::Tx
}

#[cfg(test)]
mod tests {
    use super::verdict;
    use crate::testing::packet;
    use crate::verdict::Verdict;

    #[test]
    fn a_frame_goes_back_with_its_addresses_swapped() {
        let mut packet = packet(b"\xff\xff\xff\xff\xff\xff\x02\0\0\0\0\x01\x81\x00\x00\x07\x08\x00tagged");
        assert_eq!(verdict(&mut packet), Verdict::Tx);
        assert_eq!(packet.bytes(), b"\x02\0\0\0\0\x01\xff\xff\xff\xff\xff\xff\x81\x00\x00\x07\x08\x00tagged");
    }

    #[test]
    fn a_header_alone_is_enough() {
        assert_eq!(verdict(&mut packet(&[7; 14])), Verdict::Tx);
    }

    #[test]
    fn a_runt_is_aborted_and_stays_as_it_was() {
        let mut runt = packet(b"dstdstsrcsrc\x08");
        assert_eq!(verdict(&mut runt), Verdict::Aborted);
        assert_eq!(runt.bytes(), b"dstdstsrcsrc\x08");
    }
}
