//! A lane of the grid: flows that go in at one port, and an eye on whose queue they come out of.

use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, ensure};
use forwarder::txmap::Plan;
use qemu::flows::Arrival;
use qemu::vhost::{Sink, Source, Window};
use qemu::{Flows, Guest, Transform};

use super::cell::Cell;
use crate::lane;
use crate::rig::wait_until;

/// Frames of a lane in the image at a time. Those of two lanes fit in the shortest of all rings, one of 64 between two
/// cores that steer: so nothing overflows, even if they all wait for one core that the host does not let run.
const WINDOW: usize = 32;

/// The flows of a lane, how many frames each has, and how many of them follow on each other's heels.
const FLOWS: u32 = 1000;
const FRAMES_A_FLOW: u32 = 8;
const RUN: u32 = 4;

/// Where the frames of a lane have to come out.
pub(crate) struct Route {
    pub(crate) cell: Cell,
    pub(crate) plan: Plan,
    /// The port that they go in at.
    pub(crate) port: usize,
}

/// One direction of traffic.
pub(crate) struct Lane {
    lane: lane::Lane,
    watched: Arc<Mutex<Watched>>,
}

/// What was seen of the frames that came out.
struct Watched {
    route: Route,
    /// How many there were, by the worker that had to forward them.
    shares: Vec<u64>,
    /// The first that came out of another queue than the one it had to, in words.
    astray: Option<String>,
}

impl Lane {
    /// A lane for each route; frames come out in this form.
    pub(crate) fn several<const N: usize>(routes: [Route; N], transform: Transform) -> [Lane; N] {
        let frames = u64::from(FLOWS * FRAMES_A_FLOW);
        let flows =
            |route: &Route| Flows::new(route.port as u16, FLOWS, frames).in_runs_of(RUN).expect(transform);
        let mut lanes = lane::Lane::each(routes.iter().map(flows), WINDOW).into_iter();
        routes.map(|route| {
            let watched = Watched { shares: vec![0; route.cell.workers], route, astray: None };
            Lane { lane: lanes.next().expect("a lane a route"), watched: Arc::new(Mutex::new(watched)) }
        })
    }

    /// The bound on what is in the image: taken from where frames go in, given back where they come out.
    pub(crate) fn window(&self) -> Window {
        self.lane.window()
    }

    /// Gives the frames, in order, when the ports of all lanes listen.
    pub(crate) fn source(&self) -> impl Source + use<> {
        self.lane.source()
    }

    /// Takes the frames that come out.
    pub(crate) fn sink(&self) -> impl Sink + use<> {
        let watched = Arc::clone(&self.watched);
        self.lane.watched_sink(move |queue, frame, arrival| locked(&watched).arrived(queue, frame, arrival))
    }

    /// Waits until as many frames have come out as were to go in; all of them have to be whole, in order and from the
    /// right queue. Returns how many of them each worker had to forward.
    pub(crate) fn wait_for_all(&self, guest: &Guest) -> Result<Vec<u64>> {
        let counts = || self.lane.counts();
        wait_until(guest, "all frames come out", || counts().received >= self.lane.total())
            .with_context(|| format!("{:?}", counts()))?;
        ensure!(counts().fault().is_none(), "{:?}", counts());
        let watched = locked(&self.watched);
        ensure!(watched.astray.is_none(), "{:?}", watched.astray);
        Ok(watched.shares.clone())
    }
}

fn locked(watched: &Mutex<Watched>) -> MutexGuard<'_, Watched> {
    watched.lock().expect("no thread panics while it counts")
}

impl Watched {
    fn arrived(&mut self, queue: u16, frame: &[u8], arrival: Arrival) {
        let Route { cell, plan, port } = &self.route;
        let worker = cell.worker_of(*port, frame);
        self.shares[worker] += 1;
        let named = plan.queue_of(worker);
        if named != Some(queue.into()) && self.astray.is_none() {
            self.astray =
                Some(format!("{arrival:?}: out of queue {queue}, but {named:?} is worker {worker}'s"));
        }
    }
}
