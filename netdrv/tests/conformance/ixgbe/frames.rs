//! What frames the card lets in and out, and how they look.

use ixgbe_model::{Corruption, Fault};
use netdrv::device::{NetDevice, RxDrops, TxQueue};
use netdrv::packet::FRAME_CAPACITY;

use super::IxgbeBench;
use crate::bench::{Bench, LOOKS, Rig};

fn rig() -> Rig<IxgbeBench> {
    Rig::new(IxgbeBench::with_ring(64))
}

/// A frame of `len` bytes for `destination`, with a VLAN tag or without.
pub(super) fn frame(destination: [u8; 6], vlan: Option<u16>, len: usize) -> Vec<u8> {
    let mut bytes = destination.to_vec();
    bytes.extend([0x02, 0, 0, 0, 0, 9]);
    if let Some(vlan) = vlan {
        bytes.extend([0x81, 0x00]);
        bytes.extend(vlan.to_be_bytes());
    }
    bytes.extend([0x88, 0xb5]);
    bytes.extend((bytes.len()..len).map(|index| index as u8));
    bytes
}

/// Feeds one frame and sends it back. Returns it as it came back, if it did.
fn reflected(rig: &mut Rig<IxgbeBench>, bytes: &[u8]) -> Option<Vec<u8>> {
    rig.bench.feed(0, bytes.to_vec());
    rig.bench.run();
    rig.echo(0, 32);
    rig.drain(0);
    rig.bench.collect(0).pop()
}

#[test]
fn frames_for_anyone_come_in_and_tags_stay() {
    let mut rig = rig();
    let destinations =
        [[0x02, 0x82, 0x59, 0x90, 0, 1], [0x02, 0, 0, 0, 0, 7], [0x01, 0, 0x5e, 0, 0, 1], [0xff; 6]];
    for destination in destinations {
        for vlan in [None, Some(1), Some(0xefff)] {
            let bytes = frame(destination, vlan, 200);
            assert_eq!(reflected(&mut rig, &bytes), Some(bytes));
        }
    }
    rig.finish();
}

/// No frame is longer than its buffer: the MAC throws it away before, and counts it.
#[test]
fn longer_frames_than_a_buffer_are_stopped_by_the_mac() {
    let mut rig = rig();
    for (vlan, longest) in [(None, FRAME_CAPACITY - 4), (Some(5), FRAME_CAPACITY)] {
        let bytes = frame([0x02, 0, 0, 0, 0, 7], vlan, longest);
        assert_eq!(reflected(&mut rig, &bytes), Some(bytes));
        for too_long in [longest + 1, 2048, 9_018] {
            assert_eq!(reflected(&mut rig, &frame([0x02, 0, 0, 0, 0, 7], vlan, too_long)), None);
        }
    }
    rig.bench.live(1_100);
    assert_eq!(rig.bench.device().counters().errors, 6);
    assert_eq!(rig.drops(0), RxDrops::default());
    rig.finish();
}

#[test]
fn short_frames_are_padded_with_zeros_and_fragments_are_refused() {
    let mut rig = rig();
    for len in 14..60 {
        let bytes = frame([0x02, 0, 0, 0, 0, 7], None, len);
        assert!(rig.send(0, &bytes));
        rig.drain(0);
        let sent = rig.bench.collect(0).pop().expect("a frame");
        assert_eq!((&sent[..len], sent.len()), (&bytes[..], 60));
        assert!(sent[len..].iter().all(|byte| *byte == 0));
    }
    for len in 0..14 {
        assert!(rig.send(0, &vec![1; len]), "taken from the caller");
    }
    assert_eq!((rig.queues.tx[0].refused(), rig.queues.tx[0].waiting()), (14, 0));
    rig.finish();
}

/// A frame over several descriptors is none that a packet can hold: it is dropped whole, and the next one is as good as any.
#[test]
fn a_chain_is_dropped_whole() {
    let mut rig = rig();
    for parts in 1..=5 {
        rig.bench.card.inject(Fault::CorruptWriteBack {
            queue: 0,
            count: parts,
            corruption: Corruption::NoEnd,
        });
        for _ in 0..=parts {
            assert_eq!(reflected(&mut rig, &[7; 100]), None);
        }
        assert_eq!(reflected(&mut rig, &[8; 100]), Some(vec![8; 100]));
    }
    assert_eq!(rig.drops(0), RxDrops { oversize: 5, ..RxDrops::default() });
    rig.finish();
}

/// After a full burst the next one is taken when another is complete behind it; and a little later in any case, so that no
/// frame waits for company.
#[test]
fn under_load_the_driver_stays_a_burst_behind() {
    let mut rig = Rig::new(IxgbeBench::with_ring(256));
    let feed = |rig: &mut Rig<IxgbeBench>, numbers: std::ops::Range<u32>| {
        numbers.for_each(|number| rig.bench.feed(0, IxgbeBench::frame(number, 64)));
        rig.bench.run();
    };
    let frames = |numbers: std::ops::Range<u32>| -> Vec<_> {
        numbers.map(|number| IxgbeBench::frame(number, 64)).collect()
    };
    feed(&mut rig, 0..95);
    assert_eq!(rig.receive(0, 32), frames(0..32), "nothing says yet that there is load");
    assert!(rig.receive(0, 32).is_empty(), "63 are too few for a burst and one behind it");
    feed(&mut rig, 95..96);
    assert_eq!(rig.receive(0, 32), frames(32..64));
    let late = (0..LOOKS).map(|_| rig.receive(0, 32)).find(|burst| !burst.is_empty());
    assert_eq!(late, Some(frames(64..96)), "no more came");
    feed(&mut rig, 96..97);
    let late = (0..LOOKS).map(|_| rig.receive(0, 32)).find(|burst| !burst.is_empty());
    assert_eq!(late, Some(frames(96..97)));
    feed(&mut rig, 97..98);
    assert_eq!(rig.receive(0, 32), frames(97..98), "the load is over");
    rig.finish();
}
