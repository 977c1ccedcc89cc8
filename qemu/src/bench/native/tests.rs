use std::time::Duration;

use super::contest::check;
use super::*;
use crate::vhost::{Feature, TrafficConfig, TrafficPort};

fn setup(work: Work) -> Setup {
    let time = Duration::from_millis(30);
    let pool = run::pool(64).unwrap();
    Setup { pool, work, ring: 64, batch: 32, length: 60, time }
}

#[test]
fn every_work_moves_the_right_frames_over_every_kind_of_ring() {
    for &format in Format::value_variants() {
        for &work in Work::value_variants() {
            check(setup(work), format, &Whose::Own).unwrap();
        }
    }
}

#[test]
fn a_backend_that_nobody_here_wrote_rings_for_takes_and_gives_frames() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("port");
    let features = vec![Feature::EventIndex, Feature::InOrder];
    let port = TrafficPort::listen(&socket, TrafficConfig { features, ..Default::default() }).unwrap();
    let mut number = 0;
    let source = move |frame: &mut Vec<u8>| {
        frame.resize(SHORTEST, 0);
        frames::write(frame, number);
        number += 1;
        true
    };
    let (came, out) = std::sync::mpsc::channel();
    port.start(source, move |_: u16, frame: &[u8]| came.send(frame.to_vec()).unwrap_or(()));
    for &format in Format::value_variants() {
        let outcome = run::measure(setup(Work::Reflect), format, &Whose::At(socket.clone())).unwrap();
        assert!(outcome.moved > 0 && outcome.unaccounted == 0, "{outcome:?}");
    }
    let report = port.stop();
    assert_eq!(report.faults.total(), 0, "{report:?}");
    let mut seen = frames::Seen::default();
    for frame in out.try_iter() {
        let mut head = [0; frames::TOUCHED];
        head[frames::HEADER_LEN..].copy_from_slice(&frame);
        seen.look(&head, frames::Expected::Swapped);
    }
    assert!(seen.frames > 0 && seen.changed + seen.disordered == 0, "{seen:?}");
}
