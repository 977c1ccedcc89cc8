//! A lane: the flows that go in at one port and come out of the other, and an eye on whose queue they come out of.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result, ensure};
use forwarder::txmap::Plan;
use qemu::vhost::Window;
use qemu::{Flows, Guest};

use super::cell::{Cell, PORTS};
use crate::checked::Checked;
use crate::rig::wait_until;

/// Frames of a lane in the image at a time. Those of both lanes fit in the shortest of all rings, one of 64 between two
/// cores that steer: so nothing overflows, even if they all wait for one core that the host does not let run.
const WINDOW: usize = 32;

/// The flows of a lane, how many frames each has, and how many of them follow on each other's heels.
const FLOWS: u32 = 1000;
const FRAMES_A_FLOW: u32 = 8;
const RUN: u32 = 4;

/// Where the frames of a lane have to come out.
pub(super) struct Route {
    pub(super) cell: Cell,
    pub(super) plan: Plan,
    /// The port that they go in at.
    pub(super) port: usize,
}

/// How many ports listen by now: one that is asked for frames does. What came out of another would be seen by nobody.
#[derive(Clone, Default)]
pub(super) struct Listening(Arc<AtomicUsize>);

impl Listening {
    fn one_more(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn all(&self) -> bool {
        self.0.load(Ordering::Relaxed) == PORTS
    }
}

/// One direction of traffic; clones are the same lane.
#[derive(Clone)]
pub(super) struct Lane {
    state: Arc<Mutex<State>>,
    window: Window,
}

struct State {
    checked: Checked,
    route: Route,
    /// Frames that have come out, by the worker that had to forward them.
    shares: Vec<u64>,
    /// The first frame that came out of another queue than the one it had to, in words.
    astray: Option<String>,
}

impl Lane {
    pub(super) fn new(route: Route) -> Self {
        let flows = Flows::new(route.port as u16, FLOWS, u64::from(FLOWS * FRAMES_A_FLOW)).in_runs_of(RUN);
        let shares = vec![0; route.cell.workers];
        let state = State { checked: Checked::new(flows), route, shares, astray: None };
        Self { state: Arc::new(Mutex::new(state)), window: Window::new(WINDOW) }
    }

    /// The bound on what is in the image: taken from where frames go in, given back where they come out.
    pub(super) fn window(&self) -> Window {
        self.window.clone()
    }

    /// Gives the frames, in order, when all ports listen.
    pub(super) fn source(&self, listening: &Listening) -> impl qemu::vhost::Source + use<> {
        let (lane, listening) = (self.clone(), listening.clone());
        let mut is_first = true;
        move |frame: &mut Vec<u8>| {
            if std::mem::take(&mut is_first) {
                listening.one_more();
            }
            if !listening.all() {
                return false;
            }
            lane.state().checked.give(frame)
        }
    }

    /// Takes the frames that come out.
    pub(super) fn sink(&self) -> impl qemu::vhost::Sink + use<> {
        let lane = self.clone();
        move |queue: u16, frame: &[u8]| lane.state().arrived(queue, frame)
    }

    /// Waits until as many frames have come out as were to go in; all of them have to be whole, in order and from the
    /// right queue. Returns how many of them each worker had to forward.
    pub(super) fn wait_for_all(&self, guest: &Guest) -> Result<Vec<u64>> {
        let counts = || self.state().checked.counts();
        let total = self.state().checked.total();
        wait_until(guest, "all frames come out", || counts().received >= total)
            .with_context(|| format!("{:?}", counts()))?;
        let state = self.state();
        let counts = state.checked.counts();
        ensure!(counts.fault().is_none(), "{counts:?}");
        ensure!(state.astray.is_none(), "{:?}", state.astray);
        Ok(state.shares.clone())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no thread panics while it counts")
    }
}

impl State {
    fn arrived(&mut self, queue: u16, frame: &[u8]) {
        let arrival = self.checked.arrived(frame);
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
