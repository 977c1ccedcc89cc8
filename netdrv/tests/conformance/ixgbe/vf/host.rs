//! What a host grants and refuses.

use ixgbe_model::{AddressFrom, LentLink, Model, Notice, Policy, Presence, Trust};
use netdrv::device::{Link, Mac, NetDevice, QueueWish};
use netdrv::ixgbe::{IxgbeError, virtual_model};

use super::{ADDRESS, VfBench};
use crate::bench::{Bench, Rig};

const WISH: QueueWish = QueueWish { pairs: 4, ring: 128, interrupts: 8, tx_needed: 0 };

fn refused(policy: Policy) -> Option<IxgbeError> {
    VfBench::new(Model::Sfp82599, policy, WISH).err()
}

#[test]
fn every_card_has_functions() {
    for model in [Model::Sfp82599, Model::Kx4_82599, Model::X540, Model::X550] {
        let mut bench = VfBench::new(model, Policy::default(), WISH).expect("a sane function");
        bench.live(50);
        assert_eq!(bench.device().mac(), Mac(ADDRESS));
        assert_eq!(bench.device().link(), Link::Up, "{model:?}");
        assert_eq!(bench.device().driver(), "ixgbevf");
        Rig::new(bench).finish();
    }
    assert!(virtual_model(0x10fb).is_none(), "a physical function is another driver's");
}

/// Older hosts know fewer requests, the oldest none for queues.
#[test]
fn every_version_is_spoken() {
    for (version, granted, queues) in [(0, 2, 1), (1, 2, 2), (2, 4, 4), (3, 4, 4)] {
        let policy = Policy { version, queues: granted, ..Policy::default() };
        let mut bench = VfBench::new(Model::X540, policy, WISH).expect("a sane function");
        let shape = bench.device().shape();
        assert_eq!((shape.rx, shape.tx), (queues, queues), "version 1.{version}");
        bench.live(50);
        assert_eq!(bench.device().link(), Link::Up);
        Rig::new(bench).finish();
    }
}

/// Where no operator has chosen an address the function brings one, and keeps it.
#[test]
fn a_function_without_an_address_chooses_one_and_keeps_it() {
    let policy = Policy { address: AddressFrom::Function, ..Policy::default() };
    let wish = QueueWish { pairs: 1, ..WISH };
    let mut bench = VfBench::new(Model::Sfp82599, policy, wish).expect("a sane function");
    let Mac(address) = bench.device().mac();
    assert_eq!(address[0] & 0b11, 0b10, "one that anybody may choose, of one station");
    bench.live(50);
    let mut rig = Rig::new(bench);
    for _ in 0..2 {
        let mut frame = VfBench::frame(0, 64);
        frame[..6].copy_from_slice(&address);
        rig.bench.feed(0, frame.clone());
        rig.bench.run();
        assert_eq!(rig.receive(0, 64), [frame]);
        rig.bench.card.expect_accesses_in_reset();
        rig.bench.with_host(|host, card| host.reset(card, Notice::Given));
        rig.bench.live(1_000);
        assert_eq!(rig.bench.device().mac(), Mac(address));
        assert_eq!(rig.receive(0, 64).len(), 0, "which also starts the ring over");
    }
    rig.finish();
}

#[test]
fn what_a_function_cannot_do_without_is_named() {
    let trust = Trust::Refusal;
    let error = refused(Policy { trust, ..Policy::default() }).expect("a refusal");
    assert_eq!(error.to_string(), "the physical function refuses frames of 1518 bytes");
    let error = refused(Policy { trust, address: AddressFrom::Function, ..Policy::default() });
    assert_eq!(error, Some(IxgbeError::Refused("an address of our own")));
}

#[test]
fn a_host_that_never_answers_is_waited_for_in_vain_but_not_for_ever() {
    let error = refused(Policy { presence: Presence::Absent, ..Policy::default() }).expect("an error");
    let text = "VFMAILBOX: waited in vain for the physical function to answer a reset";
    assert_eq!(error.to_string(), text);
}

/// A host that changes its mind amid the conversation is talked to anew, and no frame goes astray.
#[test]
fn a_host_may_change_its_mind_at_any_step() {
    let mut bench = VfBench::with_ring(64);
    for millis in 0..60 {
        bench.with_host(|host, card| host.set_link(card, 0, LentLink::Given));
        bench.live(100);
        for _ in 0..millis {
            bench.device().attend();
        }
        bench.with_host(|host, card| host.set_link(card, 0, LentLink::Given));
        bench.live(600);
        assert_eq!((bench.device().fault(), bench.device().link()), (None, Link::Up), "{millis}");
    }
    Rig::new(bench).finish();
}
