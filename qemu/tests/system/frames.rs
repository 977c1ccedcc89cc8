//! Frames made by hand, and what reflection makes of them.

/// An address that is nobody's.
pub(crate) const A: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0a];
/// Another one.
pub(crate) const B: [u8; 6] = [0x02, 0, 0, 0, 0, 0x0b];
/// The bytes of two addresses and an EtherType (IEEE 802.3, 3.2): what a frame must have to be one.
pub(crate) const HEADER: usize = 14;
/// EtherType for local experiments (IEEE 802, 9.2.4).
const EXPERIMENT: [u8; 2] = [0x88, 0xb5];

/// A frame of `length` bytes, at least [`HEADER`], whose content is told by `seed`.
pub(crate) fn frame(length: usize, seed: usize) -> Vec<u8> {
    frame_to(B, length, seed)
}

/// A frame of `length` bytes to `destination`.
pub(crate) fn frame_to(destination: [u8; 6], length: usize, seed: usize) -> Vec<u8> {
    assert!(length >= HEADER, "no room for a header");
    let mut frame = [destination.as_slice(), &A, &EXPERIMENT].concat();
    frame.extend(noise(seed).take(length - HEADER));
    frame
}

/// Bytes without end that look like nothing: the high bytes of a linear congruential generator (Knuth's MMIX).
pub(crate) fn noise(seed: usize) -> impl Iterator<Item = u8> {
    let next = |state: &u64| {
        Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    };
    std::iter::successors(next(&(seed as u64)), next).map(|state| (state >> 56) as u8)
}

/// The frame with its two addresses swapped.
pub(crate) fn reflected(frame: &[u8]) -> Vec<u8> {
    [&frame[6..12], &frame[..6], &frame[12..]].concat()
}

/// Every kind of frame that a program should meet, by name.
pub(crate) fn specimens() -> Vec<(&'static str, Vec<u8>)> {
    let tagged = |length| {
        let mut tagged = frame(length, 8);
        tagged.splice(12..14, [0x81, 0x00, 0x20, 0x64, 0x08, 0x00]);
        tagged
    };
    vec![
        ("a header alone, 14 bytes", frame(14, 1)),
        ("a short frame, 59 bytes", frame(59, 2)),
        ("the shortest frame, 60 bytes", frame(60, 3)),
        ("61 bytes", frame(61, 4)),
        ("the longest frame, 1514 bytes", frame(1514, 5)),
        ("tagged with VLAN 100, 64 bytes", tagged(60)),
        ("tagged with VLAN 100, 1518 bytes", tagged(1514)),
        ("broadcast", frame_to([0xff; 6], 60, 9)),
        ("IPv4 multicast", frame_to([0x01, 0x00, 0x5e, 0, 0, 1], 60, 10)),
        ("IPv6 multicast", frame_to([0x33, 0x33, 0, 0, 0, 1], 90, 11)),
        ("to nobody: all zeros", vec![0; 60]),
        ("all ones", vec![0xff; 128]),
        ("garbage, 777 bytes", noise(12).take(777).collect()),
        ("garbage, 1500 bytes", noise(13).take(1500).collect()),
    ]
}

/// Frames that are too short to have a header.
pub(crate) fn runts() -> Vec<Vec<u8>> {
    [1, 5, 6, 12, 13].map(|length| noise(length).take(length).collect()).to_vec()
}
