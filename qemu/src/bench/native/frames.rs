//! The frames of the native benchmarks, and how one knows that a frame is what it should be.

pub(super) use netdrv::virtio::HEADER_LEN;

/// Bytes of a buffer that a backend that touches buffers reads or writes: a device's header, and the frame's head.
pub(super) const TOUCHED: usize = 64;
/// The shortest frame that has all that is checked, in bytes without CRC.
pub(super) const SHORTEST: usize = TOUCHED - HEADER_LEN;

/// Who sends, who receives, and an EtherType for experiments (IEEE 802.1).
const ADDRESSES: [u8; 12] = *b"\x02\0\0\0\0\x01\x02\0\0\0\0\x02";
const ETHERTYPE: [u8; 2] = [0x88, 0xb5];
/// Where the number of a frame is.
const NUMBER: std::ops::Range<usize> = 16..24;

/// Writes the head of frame `number` over that of `frame`; whatever is behind it stays.
#[inline(always)]
pub(super) fn write(frame: &mut [u8], number: u64) {
    if let Some(head) = frame.first_chunk_mut::<{ NUMBER.end }>() {
        *head = HEAD;
        head[NUMBER].copy_from_slice(&number.to_le_bytes());
    }
}

/// The head of frame 0.
const HEAD: [u8; NUMBER.end] = {
    let mut head = [0; NUMBER.end];
    let (addresses, rest) = head.split_at_mut(ADDRESSES.len());
    addresses.copy_from_slice(&ADDRESSES);
    rest.split_at_mut(ETHERTYPE.len()).0.copy_from_slice(&ETHERTYPE);
    head
};

/// Where a buffer has the number of its frame, in bytes from the device's header on.
pub(super) const NUMBERED: usize = HEADER_LEN + NUMBER.start;

/// The head of a receive buffer with frame 0: a header that says that the frame has one buffer (virtio 1.2,
/// 5.1.6.4.1), and the frame.
pub(super) const RECEIVED: [u8; TOUCHED] = {
    let mut buffer = [0; TOUCHED];
    buffer[HEADER_LEN - 2] = 1;
    buffer.split_at_mut(HEADER_LEN).1.split_at_mut(HEAD.len()).0.copy_from_slice(&HEAD);
    buffer
};

/// What a frame should look like when it comes out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Expected {
    /// As it went in.
    Same,
    /// With its addresses swapped.
    Swapped,
}

/// Frames that came out.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Seen {
    /// All of them.
    pub(super) frames: u64,
    /// Those with a header that asks for something, or whose bytes are not those that they should be.
    pub(super) changed: u64,
    /// Those that came before an earlier one, or twice.
    pub(super) disordered: u64,
    next: u64,
}

impl Seen {
    /// Looks at the head of a transmit buffer.
    pub(super) fn look(&mut self, head: &[u8; TOUCHED], expected: Expected) {
        let (header, frame) = head.split_at(HEADER_LEN);
        let number = frame[NUMBER].try_into().map_or(0, u64::from_le_bytes);
        let mut right = [0; SHORTEST];
        write(&mut right, number);
        if expected == Expected::Swapped {
            right[..12].rotate_left(6);
        }
        let is_right = header == [0; HEADER_LEN] && frame[..NUMBER.end] == right[..NUMBER.end];
        self.frames += 1;
        self.changed += u64::from(!is_right);
        self.disordered += u64::from(number < self.next);
        self.next = self.next.max(number + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A receive buffer's head with frame `number`.
    fn received(number: u64) -> [u8; TOUCHED] {
        let mut head = RECEIVED;
        head[NUMBERED..NUMBERED + 8].copy_from_slice(&number.to_le_bytes());
        head
    }

    /// A transmit buffer's head with frame `number`, as a reflector leaves it.
    fn reflected(number: u64) -> [u8; TOUCHED] {
        let mut head = received(number);
        head[..HEADER_LEN].fill(0);
        head[HEADER_LEN..HEADER_LEN + 12].rotate_left(6);
        head
    }

    #[test]
    fn what_comes_out_is_told_from_what_should() {
        let mut seen = Seen::default();
        for number in [0, 1, 3, 2, 3, 7] {
            seen.look(&reflected(number), Expected::Swapped);
        }
        assert_eq!((seen.frames, seen.changed, seen.disordered), (6, 0, 2));
        let mut seen = Seen::default();
        seen.look(&reflected(0), Expected::Same);
        seen.look(&received(1), Expected::Swapped);
        let mut damaged = reflected(2);
        damaged[HEADER_LEN + 20] ^= 1;
        seen.look(&damaged, Expected::Swapped);
        assert_eq!(seen.changed, 2, "a damaged number is one out of order");
    }
}
