//! Rings from one core to one other: `rtrb`'s, or what stands in for them where a model checker runs, see
//! [`sync`](netdrv::sync).

#[cfg(not(loom))]
pub(crate) use rtrb::{Consumer, Producer, PushError, RingBuffer, chunks::ChunkError};

#[cfg(loom)]
mod checked;
#[cfg(loom)]
pub(crate) use checked::*;
