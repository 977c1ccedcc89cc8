use std::string::ToString;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;

fn wish() -> impl Strategy<Value = Wish> {
    prop_oneof![
        prop::sample::select(std::vec![Wish::Auto, Wish::Dedicated, Wish::Shared, Wish::Borrowed]),
        (1..=256usize).prop_map(Wish::SharedBy),
    ]
}

fn need() -> impl Strategy<Value = StackNeed> {
    prop::sample::select(std::vec![StackNeed::Nothing, StackNeed::Queue])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4096))]

    #[test]
    fn a_plan_is_fair_and_as_wished(
        workers in 1..=256usize,
        queues in 0..=128usize,
        need in need(),
        wish in wish(),
    ) {
        let stack = usize::from(need == StackNeed::Queue);
        let beside = queues.saturating_sub(stack);
        let plan = match plan(workers, queues, need, wish) {
            Ok(plan) => plan,
            Err(PlanError::NoQueue) => {
                match wish {
                    Wish::Shared => prop_assert_eq!(beside, 0),
                    Wish::Borrowed => prop_assert_eq!(queues, 0),
                    _ => prop_assert!(false, "{:?} does not lack a queue", wish),
                }
                return Ok(());
            }
            Err(PlanError::TooFewQueues { workers: asked, needed, queues: given }) => {
                prop_assert_eq!((asked, given), (workers, beside));
                prop_assert!(given < needed);
                match wish {
                    Wish::Dedicated => prop_assert_eq!(needed, workers),
                    Wish::SharedBy(cores) => prop_assert!(needed * cores >= workers && (needed - 1) * cores < workers),
                    _ => prop_assert!(false, "{:?} is met with what there is", wish),
                }
                return Ok(());
            }
        };
        let loads: Vec<usize> = (0..plan.queues()).map(|queue| plan.cores_of(queue)).collect();
        match plan.mode() {
            Mode::Unavailable => {
                prop_assert_eq!((wish, queues, plan.stack_queue()), (Wish::Auto, 0, None));
                prop_assert!((0..workers).all(|worker| plan.queue_of(worker).is_none()));
                return Ok(());
            }
            Mode::Dedicated => {
                prop_assert!(matches!(wish, Wish::Auto | Wish::Dedicated));
                prop_assert!(loads.iter().all(|&cores| cores == 1));
            }
            Mode::Shared => match wish {
                Wish::Auto => prop_assert!(0 < beside && beside < workers),
                Wish::Shared => {}
                Wish::SharedBy(cores) => prop_assert!(loads.iter().all(|&load| load <= cores)),
                _ => prop_assert!(false, "{:?} is not met by sharing", wish),
            },
            Mode::Borrowed => {
                prop_assert!(wish == Wish::Borrowed || (wish == Wish::Auto && beside == 0));
                prop_assert_eq!(plan.queues(), 1);
            }
        }
        prop_assert!((0..workers).all(|worker| plan.queue_of(worker).unwrap() < queues));
        prop_assert_eq!(loads.iter().sum::<usize>(), workers);
        let (least, most) = (loads.iter().min().unwrap(), loads.iter().max().unwrap());
        prop_assert!(most - least <= 1);
        prop_assert!(*least >= 1, "no queue lies idle");
        match plan.stack_queue() {
            None => prop_assert_eq!(need, StackNeed::Nothing),
            Some(own) => {
                prop_assert_eq!(need, StackNeed::Queue);
                prop_assert!(own < queues);
                let has_users = plan.cores_of(own) > 0;
                prop_assert_eq!(has_users, plan.mode() == Mode::Borrowed, "only borrowers use the stack's queue");
            }
        }
    }

    #[test]
    fn every_rx_queue_has_one_worker_and_the_load_is_even(
        workers in 1..=256usize,
        queues in prop::collection::vec(0..=128usize, 0..8),
    ) {
        let assigned: Vec<(usize, usize)> = assign_rx(workers, &queues).collect();
        for (port, &count) in queues.iter().enumerate() {
            prop_assert_eq!(assigned.iter().filter(|entry| entry.0 == port).count(), count);
        }
        let load = |worker| assigned.iter().filter(|entry| entry.1 == worker).count();
        let loads: Vec<usize> = (0..workers).map(load).collect();
        prop_assert!(loads.iter().max().unwrap() - loads.iter().min().unwrap() <= 1);
    }
}

#[test]
fn two_ports_with_one_queue_each_keep_two_workers_busy() {
    assert!(assign_rx(2, &[1, 1]).eq([(0, 0), (1, 1)]));
    assert!(assign_rx(1, &[1, 1]).eq([(0, 0), (1, 0)]));
    assert!(assign_rx(3, &[2, 2]).eq([(0, 0), (0, 1), (1, 2), (1, 0)]));
}

#[test]
fn a_plan_reads_as_in_the_port_line() {
    let text = |workers, queues, wish| plan(workers, queues, StackNeed::Nothing, wish).unwrap().to_string();
    assert_eq!(text(1, 1, Wish::Auto), "dedicated");
    assert_eq!(text(4, 8, Wish::Auto), "dedicated");
    assert_eq!(text(4, 2, Wish::Auto), "shared(2 cores/queue)");
    assert_eq!(text(72, 8, Wish::Auto), "shared(9 cores/queue)");
    assert_eq!(text(72, 64, Wish::Auto), "shared(1-2 cores/queue)");
    assert_eq!(text(2, 4, Wish::Shared), "shared(1 cores/queue)");
    assert_eq!(text(2, 0, Wish::Auto), "unavailable");
    assert_eq!(text(4, 8, Wish::SharedBy(2)), "shared(2 cores/queue)");
    assert_eq!(text(4, 8, Wish::Borrowed), "borrowed(4 cores/queue)");
}

#[test]
fn a_stack_has_a_queue_of_its_own_where_there_is_a_second_one() {
    let text = |workers, queues, wish| plan(workers, queues, StackNeed::Queue, wish).unwrap().to_string();
    assert_eq!(text(2, 3, Wish::Auto), "dedicated");
    assert_eq!(text(2, 2, Wish::Auto), "shared(2 cores/queue)");
    assert_eq!(text(2, 1, Wish::Auto), "borrowed(2 cores/queue)");
}

#[test]
fn a_wish_that_cannot_be_met_is_answered_with_the_numbers() {
    let error = plan(4, 3, StackNeed::Nothing, Wish::Dedicated).unwrap_err();
    assert_eq!(error.to_string(), "4 workers need 4 TX queues and the device has 3 for them");
    let error = plan(72, 9, StackNeed::Queue, Wish::SharedBy(8)).unwrap_err();
    assert_eq!(error.to_string(), "72 workers need 9 TX queues and the device has 8 for them");
    assert_eq!(plan(4, 0, StackNeed::Nothing, Wish::Shared), Err(PlanError::NoQueue));
    assert_eq!(plan(4, 0, StackNeed::Queue, Wish::Borrowed), Err(PlanError::NoQueue));
}
