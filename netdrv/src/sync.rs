//! What cores share memory through: atomics, fences and the lock. Code that runs on several cores at once takes them from
//! here, since `--cfg loom` puts those of a model checker in their place: the models (files `models.rs`, run by
//! `.ci/run models`) then go through every order in which the cores may meet, with the memory model's stale reads, over
//! the code that ships.
//!
//! Words that a device shares are not among them: see [`dma`](crate::dma).

pub use hermit_sync::RawSpinMutex;
pub use lock_api::RawMutex;

/// The lock of choice: it spins, with a back-off.
pub type SpinMutex<T> = Mutex<RawSpinMutex, T>;

#[cfg(not(loom))]
mod processor {
    pub use core::hint::spin_loop;
    pub use core::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};

    pub use lock_api::Mutex;
}
#[cfg(not(loom))]
pub use processor::*;

#[cfg(loom)]
mod checked;
#[cfg(loom)]
pub use checked::*;
