//! A traffic port against a guest in the same process.

mod driver;
mod guest;
mod hostile;
mod lifecycle;
mod traffic;

use std::sync::{Arc, Mutex};

use tempfile::TempDir;

use super::{TrafficConfig, TrafficPort};

/// A port in a folder of its own.
struct Bench {
    port: TrafficPort,
    _folder: TempDir,
}

impl Bench {
    fn new(config: TrafficConfig) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let port = TrafficPort::listen(folder.path().join("port"), config).unwrap();
        Self { port, _folder: folder }
    }
}

/// A frame that came out of the guest, and its queue.
type FromQueue = (u16, Vec<u8>);

/// A sink that keeps all.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<FromQueue>>>);

impl Kept {
    fn sink(&self) -> impl super::Sink + use<> {
        let kept = self.clone();
        move |queue: u16, frame: &[u8]| kept.0.lock().unwrap().push((queue, frame.to_vec()))
    }

    fn len(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    fn frames(&self) -> Vec<FromQueue> {
        self.0.lock().unwrap().clone()
    }
}

/// A source of nothing.
fn silence(_: &mut Vec<u8>) -> bool {
    false
}

/// A source of so many frames of `length` bytes that begin with their number.
fn numbered(count: u32, length: usize) -> impl super::Source {
    let mut next = 0;
    move |frame: &mut Vec<u8>| {
        if next == count {
            return false;
        }
        frame.extend_from_slice(&u32::to_be_bytes(next));
        frame.resize(length, next as u8);
        next += 1;
        true
    }
}

/// The number that a frame of [`numbered`] begins with.
fn number(frame: &[u8]) -> u32 {
    u32::from_be_bytes(*frame.first_chunk().unwrap())
}
