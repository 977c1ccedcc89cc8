//! The suite, run on the driver of either kind of function.

/// The tests of a kind of bench.
macro_rules! suite {
    ($bench:ty) => {
        use netdrv::packet::FRAME_CAPACITY;
        use netdrv::pool::Pool;
        use proptest::prelude::*;

        use crate::bench::Rig;
        use crate::hal::TestHal;
        use crate::ixgbe::loaded::Loaded;
        use crate::traffic::echo;
        use crate::{hostile, sequences, traffic};

        fn rig() -> Rig<$bench> {
            Rig::new(<$bench>::with_ring(64))
        }

        #[test]
        fn frames_come_back_for_every_ring_and_batch() {
            for ring in [64, 128, 256, 512, 1024, 4096] {
                for batch in [1, 7, 32, 64] {
                    let mut rig = Rig::new(<$bench>::with_ring(ring));
                    echo(&mut rig, 2 * ring as u32 + 500, batch, FRAME_CAPACITY);
                    rig.finish();
                }
            }
        }

        #[test]
        fn nothing_is_lost_past_many_wraps() {
            for batch in [1, 7, 32, 64] {
                let mut rig = Rig::new(<$bench>::with_ring(256));
                echo(&mut rig, 20_000, batch, 60);
                rig.finish();
            }
        }

        #[test]
        fn receiving_alone_works() {
            traffic::receive_only(rig());
        }

        #[test]
        fn a_ring_whose_buffers_go_elsewhere_is_kept_full() {
            traffic::kept_full(rig());
        }

        #[test]
        fn sending_alone_works() {
            traffic::send_only(rig());
        }

        #[test]
        fn a_burst_is_never_overfilled() {
            traffic::limits_hold(rig());
        }

        #[test]
        fn a_dry_ring_recovers() {
            traffic::starvation(<$bench>::with_ring(64));
        }

        #[test]
        fn packets_at_the_edges_of_their_buffers_leave_unchanged() {
            traffic::odd_packets(rig());
        }

        #[test]
        fn a_stop_under_load_brings_every_buffer_home() {
            traffic::stop_under_load(rig());
        }

        #[test]
        fn queues_dropped_before_the_stop_leak_what_the_card_has() {
            traffic::queues_dropped_early_leak(rig());
        }

        #[test]
        fn bad_lengths_are_counted() {
            hostile::bad_lengths(rig());
        }

        #[test]
        fn a_card_that_never_stops_keeps_its_buffers() {
            hostile::never_stops(rig());
        }

        #[test]
        fn a_load_without_faults_comes_back_whole() {
            let mut loaded = Loaded::new(<$bench>::with_ring(64));
            loaded.run(5_000);
            assert_eq!((loaded.resets(), loaded.accounted()), (0, 0));
            loaded.finish();
        }

        #[test]
        fn a_stopped_card_is_down() {
            let mut rig = rig();
            rig.bench.live(50);
            hostile::stopped(rig);
        }

        proptest! {
            #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

            #[test]
            fn any_sequence_of_calls_keeps_order_and_buffers(
                buffers in prop_oneof![Just(5usize), Just(70), Just(400)],
                steps in prop::collection::vec(sequences::step(), 1..400),
            ) {
                let bench = <$bench>::with_ring(64);
                sequences::run(Rig::with_pool(bench, Pool::new::<TestHal>(buffers).expect("memory")), steps);
            }
        }
    };
}

mod physical {
    suite!(crate::ixgbe::IxgbeBench);
}

mod virtual_function {
    suite!(crate::ixgbe::vf::VfBench);
}
