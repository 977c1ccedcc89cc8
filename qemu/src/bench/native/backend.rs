//! A vhost-user backend that costs next to nothing: it polls on a core of its own, gives frames without end, and is done
//! with whatever is sent as soon as it sees it. It writes or reads the first 64 bytes of every buffer, as no real device
//! could do with less, and copies nothing.

#![allow(unsafe_code)] // Reaches rings and buffers at the addresses that a frontend has shared.

mod handler;
mod table;

use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::time::ClockId;
use vhost::vhost_user::BackendReqHandler;

use self::handler::Card;
use super::frames::{self, Expected, Seen, TOUCHED};
use crate::bench::cpu;

/// Buffers used in one go, in each direction.
const BATCH: usize = 32;
/// How long a thread with nothing to do sleeps.
const REST: Duration = Duration::from_micros(100);
/// How often the threads that wait for messages look whether they are to end, in milliseconds.
const LOOK: u8 = 20;

/// What a backend does.
#[derive(Clone, Copy, Debug)]
pub(super) struct Habits {
    /// The core that it polls on.
    pub(super) core: usize,
    /// How long the frames are that it gives, in bytes; nothing where it gives none.
    pub(super) gives: Option<usize>,
    /// What it looks at in those that it takes; nothing where it only reads them.
    pub(super) checks: Option<Expected>,
}

/// The backend; it ends when this is dropped.
pub(super) struct Backend {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    clock: ClockId,
}

/// What its threads share.
#[derive(Default)]
struct Shared {
    cards: Vec<Arc<Mutex<Card>>>,
    /// Threads that have a message for a card, which the polling one then leaves alone.
    talking: AtomicUsize,
    stopping: AtomicBool,
    given: AtomicU64,
    taken: AtomicU64,
}

impl Backend {
    /// Listens at each of `sockets`, one card behind each.
    ///
    /// # Errors
    /// When it can't.
    pub(super) fn listen(sockets: &[&Path], habits: Habits) -> Result<Backend> {
        let cards = sockets.iter().map(|_| Arc::default()).collect();
        let shared = Arc::new(Shared { cards, ..Shared::default() });
        let mut threads = Vec::new();
        for (socket, card) in sockets.iter().zip(&shared.cards) {
            let listener = UnixListener::bind(socket)
                .with_context(|| format!("cannot listen at {}", socket.display()))?;
            let (shared, card) = (shared.clone(), card.clone());
            threads.push(thread::spawn(move || shared.talk(&listener, &card)));
        }
        let (tell, clock) = std::sync::mpsc::channel();
        let polled = shared.clone();
        threads.push(thread::spawn(move || {
            let ready = cpu::pin(habits.core).map(|()| cpu::this_thread());
            let is_ready = ready.is_ok();
            if tell.send(ready).is_ok() && is_ready {
                polled.poll(habits);
            }
        }));
        let clock = clock.recv().context("the backend's thread has ended")??;
        Ok(Backend { shared, threads, clock })
    }

    /// The CPU time of the thread that polls.
    pub(super) fn clock(&self) -> ClockId {
        self.clock
    }

    /// Frames given so far.
    pub(super) fn given(&self) -> u64 {
        self.shared.given.load(Ordering::Relaxed)
    }

    /// Frames taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.shared.taken.load(Ordering::Relaxed)
    }

    /// What came out of each card.
    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.talking.fetch_add(1, Ordering::Relaxed);
        let seen = self.shared.cards.iter().map(|card| lock(card).seen).collect();
        self.shared.talking.fetch_sub(1, Ordering::Relaxed);
        seen
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Shared {
    /// Polls the cards, whenever no frontend has anything to say.
    fn poll(&self, habits: Habits) {
        while !self.stopping.load(Ordering::Relaxed) {
            if self.talking.load(Ordering::Relaxed) > 0 {
                thread::sleep(REST);
                continue;
            }
            let mut cards: Vec<_> = self.cards.iter().map(|card| lock(card)).collect();
            if !cards.iter().all(|card| card.is_running()) {
                drop(cards);
                thread::sleep(REST);
                continue;
            }
            while self.talking.load(Ordering::Relaxed) == 0 && !self.stopping.load(Ordering::Relaxed) {
                cards.iter_mut().for_each(|card| self.round(card, habits));
            }
        }
    }

    #[inline(always)]
    fn round(&self, card: &mut Card, habits: Habits) {
        if let Some(len) = habits.gives {
            let given = card.give(BATCH, len);
            add(&self.given, given);
        }
        let taken = match habits.checks {
            Some(expected) => card.check(BATCH, expected),
            None => card.take(BATCH),
        };
        add(&self.taken, taken);
    }

    /// Serves one frontend after the other.
    fn talk(&self, listener: &UnixListener, card: &Arc<Mutex<Card>>) {
        while self.wait(listener) {
            let Ok((socket, _)) = listener.accept() else { continue };
            let Ok(requests) = socket.try_clone() else { continue };
            let mut requests = BackendReqHandler::from_stream(requests, card.clone());
            while self.wait(&socket) {
                self.talking.fetch_add(1, Ordering::Relaxed);
                let outcome = requests.handle_request();
                self.talking.fetch_sub(1, Ordering::Relaxed);
                if outcome.is_err() {
                    break;
                }
            }
            self.talking.fetch_add(1, Ordering::Relaxed);
            lock(card).forget_frontend();
            self.talking.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Waits until there is something to read; false where the backend is to end.
    fn wait(&self, file: &impl AsFd) -> bool {
        loop {
            let mut files = [PollFd::new(file.as_fd(), PollFlags::POLLIN)];
            if self.stopping.load(Ordering::Relaxed) {
                return false;
            }
            if poll(&mut files, PollTimeout::from(LOOK)).is_ok_and(|ready| ready > 0) {
                return true;
            }
        }
    }
}

/// Only one thread adds.
#[inline(always)]
fn add(counter: &AtomicU64, count: usize) {
    counter.store(counter.load(Ordering::Relaxed) + count as u64, Ordering::Relaxed);
}

fn lock(card: &Mutex<Card>) -> MutexGuard<'_, Card> {
    card.lock().expect("nobody panics while he has a card")
}

// The lines of a whole batch are asked for before the first is used, so that they come at the same time. Those that are to
// be written are asked for as such: to read them first makes a frame three times as dear.

/// Asks the CPU to fetch the lines of a buffer's head, to be read.
#[inline(always)]
fn fetch_to_read(buffer: *mut u8) {
    use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch has no effect that the program can see, whatever the address.
    unsafe {
        _mm_prefetch::<_MM_HINT_T0>(buffer.cast());
        _mm_prefetch::<_MM_HINT_T0>(buffer.wrapping_add(TOUCHED - 1).cast());
    }
}

/// Asks the CPU to fetch the lines of a buffer's head, to be written.
#[inline(always)]
fn fetch_to_write(buffer: *mut u8) {
    for place in [buffer as usize, buffer as usize + TOUCHED - 1] {
        // SAFETY: as above; processors without the instruction take it for none.
        unsafe {
            core::arch::asm!("prefetchw [{}]", in(reg) place, options(nomem, nostack, preserves_flags));
        }
    }
}

/// Writes frame `number` to the head of the buffer at `address`.
///
/// # Safety
/// A receive buffer of at least [`TOUCHED`] bytes that a frontend has given.
#[inline(always)]
unsafe fn write_head(address: *mut u8, number: u64) {
    // SAFETY: the caller's promise; until it is used, the buffer is the backend's.
    unsafe {
        address.cast::<[u8; TOUCHED]>().write_unaligned(frames::RECEIVED);
        address.add(frames::NUMBERED).cast::<u64>().write_unaligned(number.to_le());
    }
}

/// The head of the buffer at `address`.
///
/// # Safety
/// A transmit buffer of at least [`TOUCHED`] bytes that a frontend has given.
#[inline(always)]
unsafe fn read_head(address: *const u8) -> [u8; TOUCHED] {
    // SAFETY: the caller's promise; until it is used, the frontend leaves the buffer alone.
    unsafe { address.cast::<[u8; TOUCHED]>().read_unaligned() }
}
