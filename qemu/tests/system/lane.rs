//! A lane of checked traffic: what goes in at one port, and what has to come out of another, or of the same.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use qemu::flows::Arrival;
use qemu::vhost::Window;
use qemu::{Counts, Flows, Transform};

use crate::checked::Checked;
use crate::process::PAUSE;

/// Frames under way at a time: fewer than the smallest ring has, so that nothing overflows.
const WINDOW: usize = 160;
/// How long the frames may take: an emulated processor on a busy machine is slow.
const PATIENCE: Duration = Duration::from_secs(120);

/// One direction of traffic; clones are the same lane.
#[derive(Clone)]
pub(crate) struct Lane {
    checked: Arc<Mutex<Checked>>,
    window: Window,
    /// Lanes whose port has not asked for a frame yet: until it does, nobody sees what comes out of it.
    deaf: Arc<AtomicUsize>,
}

impl Lane {
    /// So many lanes, each of 1,000 UDP flows with so many frames in all, which come out in this form.
    pub(crate) fn several(lanes: usize, frames: u64, transform: Transform) -> Vec<Self> {
        let flows = |number| Flows::new(number as u16, 1000, frames).expect(transform);
        Self::each((0..lanes).map(flows), WINDOW)
    }

    /// A lane for each of these, with so many frames under way at a time.
    pub(crate) fn each(flows: impl ExactSizeIterator<Item = Flows>, window: usize) -> Vec<Self> {
        let deaf = Arc::new(AtomicUsize::new(flows.len()));
        let lane = |flows| {
            let checked = Arc::new(Mutex::new(Checked::new(flows)));
            Self { checked, window: Window::new(window), deaf: Arc::clone(&deaf) }
        };
        flows.map(lane).collect()
    }

    /// The bound on what is under way: taken from where frames go in, given back where they come out.
    pub(crate) fn window(&self) -> Window {
        self.window.clone()
    }

    /// Gives the frames, in order, as soon as the ports of all lanes listen.
    pub(crate) fn source(&self) -> impl qemu::vhost::Source + use<> {
        let lane = self.clone();
        let mut is_deaf = true;
        move |frame: &mut Vec<u8>| {
            if std::mem::take(&mut is_deaf) {
                lane.deaf.fetch_sub(1, Ordering::Relaxed);
            }
            if lane.deaf.load(Ordering::Relaxed) > 0 {
                return false;
            }
            lane.checked().give(frame)
        }
    }

    /// Takes the frames that come out.
    pub(crate) fn sink(&self) -> impl qemu::vhost::Sink + use<> {
        self.watched_sink(|_, _, _| {})
    }

    /// Takes the frames that come out, and shows each to `watch`, with its queue and which it was.
    pub(crate) fn watched_sink<W>(&self, mut watch: W) -> impl qemu::vhost::Sink + use<W>
    where
        W: FnMut(u16, &[u8], Arrival) + Send + 'static,
    {
        let lane = self.clone();
        move |queue: u16, frame: &[u8]| {
            // Whoever counts the frame has it watched as well.
            let mut checked = lane.checked();
            let arrival = checked.arrived(frame);
            watch(queue, frame, arrival);
        }
    }

    /// How many frames were to go in.
    pub(crate) fn total(&self) -> u64 {
        self.checked().total()
    }

    /// What has become of the frames so far.
    pub(crate) fn counts(&self) -> Counts {
        self.checked().counts()
    }

    /// Waits until as many frames have come out as were to go in: all of them, unchanged, each flow in order.
    pub(crate) fn wait_for_all(&self) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        let total = self.total();
        while self.counts().received < total && Instant::now() < deadline {
            std::thread::sleep(PAUSE);
        }
        let counts = self.counts();
        ensure!(counts.received >= total && counts.fault().is_none(), "{total} were to come out: {counts:?}");
        Ok(())
    }

    fn checked(&self) -> MutexGuard<'_, Checked> {
        self.checked.lock().expect("no thread panics while it counts")
    }
}
