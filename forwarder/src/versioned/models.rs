use alloc::sync::Arc;

use loom::thread;
use netdrv::sync::check;

use super::*;

/// One core publishes (1, 1), (2, 2), … while another reads.
fn publish_and_read(publications: u64, readings: usize) {
    let numbers = Arc::new(Versioned::<2>::new());
    let writer = thread::spawn({
        let numbers = numbers.clone();
        move || (1..=publications).for_each(|count| numbers.publish(&[count; 2]))
    });
    let mut last = 0;
    for _ in 0..readings {
        let [first, second] = numbers.read();
        assert_eq!(first, second, "of two publications");
        assert!(first >= last, "an older publication after a newer one");
        last = first;
    }
    writer.join().unwrap();
    assert_eq!(numbers.read(), [publications; 2]);
}

#[test]
fn readings_are_whole_and_in_order() {
    loom::model(|| publish_and_read(1, 2));
}

#[test]
fn a_reader_never_mixes_two_publications() {
    check(3, || publish_and_read(2, 1));
}
