//! The Ethernet header (IEEE 802.3, 3.1.1): one length check, then field ranges.

use core::ops::Range;

/// Bytes of a station address.
const ADDRESS_LEN: usize = 6;

/// Where the fields of a header lie, in bytes from its start.
mod field {
    use super::*;

    pub(super) const DESTINATION: Range<usize> = 0..ADDRESS_LEN;
    pub(super) const SOURCE: Range<usize> = ADDRESS_LEN..2 * ADDRESS_LEN;
}

/// Bytes of a header: destination, source, type or length.
pub const HEADER_LEN: usize = 14;

/// An Ethernet header at the front of a frame.
pub struct Header<'a>(&'a mut [u8; HEADER_LEN]);

impl<'a> Header<'a> {
    /// The header of `frame`, or `None` where the frame is a runt: shorter than [`HEADER_LEN`].
    #[inline(always)]
    pub fn of(frame: &'a mut [u8]) -> Option<Header<'a>> {
        frame.first_chunk_mut().map(Header)
    }

    /// Makes the receiver the sender and the sender the receiver.
    #[inline(always)]
    pub fn swap_addresses(&mut self) {
        let (destination, rest) = self.0.split_at_mut(field::DESTINATION.end);
        destination.swap_with_slice(&mut rest[..field::SOURCE.len()]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_swap_and_the_type_stays() {
        let mut frame = *b"dstdstsrcsrc\x08\x00payload";
        Header::of(&mut frame).unwrap().swap_addresses();
        assert_eq!(&frame, b"srcsrcdstdst\x08\x00payload");
    }

    #[test]
    fn a_frame_without_a_whole_header_has_none() {
        assert!(Header::of(&mut [0; HEADER_LEN - 1]).is_none());
        assert!(Header::of(&mut []).is_none());
        assert!(Header::of(&mut [0; HEADER_LEN]).is_some());
    }
}
