//! Atomics, fences and the lock, as the model checker sees them.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

pub use loom::hint::spin_loop;
use loom::model::Builder;
pub use loom::sync::atomic::{AtomicU64, Ordering, fence};

/// Runs `model` in all the orders in which no more than `preemptions` times a core is stopped where it need not stop. What is
/// wrong mostly shows with two or three of them, and all orders of a larger model are too many.
pub fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = Builder::new();
    builder.preemption_bound = Some(preemptions);
    builder.max_branches = 10_000;
    builder.check(model);
}

/// A flag. What is stored is swapped in: a swap comes right after what it has replaced, before any later store, but the
/// checker knows that of swaps alone, and would show a reader orders of stores and swaps that can't be.
#[derive(Default)]
pub struct AtomicBool(loom::sync::atomic::AtomicBool);

impl AtomicBool {
    /// A flag with this value.
    pub fn new(value: bool) -> AtomicBool {
        AtomicBool(loom::sync::atomic::AtomicBool::new(value))
    }

    /// The value.
    pub fn load(&self, order: Ordering) -> bool {
        self.0.load(order)
    }

    /// Sets the value.
    pub fn store(&self, value: bool, order: Ordering) {
        self.0.swap(value, order);
    }

    /// Sets the value. Returns the one before.
    pub fn swap(&self, value: bool, order: Ordering) -> bool {
        self.0.swap(value, order)
    }
}

/// The lock, with the interface of `lock_api`'s. In which order those who wait are served, where kinds differ, is for the
/// checker to vary; nobody spins, which would be endless to check. The checker's lock orders more than it must: taking it
/// and giving it back are sequentially consistent, as fences are. A model that is to miss a fence must not lock near it.
pub struct Mutex<L, T> {
    kind: PhantomData<fn() -> L>,
    lock: loom::sync::Mutex<T>,
    /// Makes the checker try a [`try_lock`](Self::try_lock) at every moment that matters: for its own lock, it takes into
    /// account when one is taken, but not when it is given back.
    is_taken: AtomicBool,
}

/// The right to the data, until it is dropped.
pub struct MutexGuard<'a, T> {
    is_taken: &'a AtomicBool,
    data: loom::sync::MutexGuard<'a, T>,
}

impl<L, T> Mutex<L, T> {
    /// A lock that nobody has.
    pub fn new(data: T) -> Mutex<L, T> {
        Mutex { kind: PhantomData, lock: loom::sync::Mutex::new(data), is_taken: AtomicBool::new(false) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.hold(self.lock.lock().expect("the checker's locks are never poisoned"))
    }

    /// Takes the lock, or nothing where somebody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let data = if self.is_locked() { None } else { self.lock.try_lock().ok() };
        data.map(|data| self.hold(data))
    }

    /// Whether somebody has the lock.
    pub fn is_locked(&self) -> bool {
        self.is_taken.load(Ordering::Relaxed)
    }

    fn hold<'a>(&'a self, data: loom::sync::MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.is_taken.store(true, Ordering::Relaxed);
        MutexGuard { is_taken: &self.is_taken, data }
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.is_taken.store(false, Ordering::Relaxed);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.data
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.data
    }
}
