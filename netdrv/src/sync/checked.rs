//! Atomics, fences and the lock, as the model checker sees them.

extern crate std;

use core::fmt;
use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};

pub use loom::hint::spin_loop;
pub use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

/// The lock, with the interface of `lock_api`'s and the order that every kind of lock has: what takes it acquires, what
/// gives it back releases. The checker's own mutex orders more than that (its operations are sequentially consistent),
/// and would hide what is missing. In which order those who wait are served, where kinds differ, is for the checker to vary.
pub struct Mutex<L, T> {
    kind: PhantomData<fn() -> L>,
    locked: AtomicBool,
    /// Never waited for: who has `locked` is alone.
    data: std::sync::Mutex<T>,
}

/// The right to the data, until it is dropped.
pub struct MutexGuard<'a, T> {
    locked: &'a AtomicBool,
    data: Option<std::sync::MutexGuard<'a, T>>,
}

impl<L, T> Mutex<L, T> {
    /// A lock that nobody has.
    pub fn new(data: T) -> Mutex<L, T> {
        Mutex { kind: PhantomData, locked: AtomicBool::new(false), data: std::sync::Mutex::new(data) }
    }

    /// Waits for the lock.
    pub fn lock(&self) -> MutexGuard<'_, T> {
        loop {
            if let Some(guard) = self.try_lock() {
                return guard;
            }
            spin_loop();
        }
    }

    /// Takes the lock, or nothing where somebody has it.
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let free = !self.locked.swap(true, Ordering::Acquire);
        free.then(|| MutexGuard {
            locked: &self.locked,
            data: Some(self.data.try_lock().expect("who has the flag is alone")),
        })
    }

    /// Whether somebody has the lock.
    pub fn is_locked(&self) -> bool {
        self.locked.load(Ordering::Relaxed)
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.data = None;
        self.locked.store(false, Ordering::Release);
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.data.as_ref().expect("held until the guard is dropped")
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        self.data.as_mut().expect("held until the guard is dropped")
    }
}

impl<L, T> fmt::Debug for Mutex<L, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}
