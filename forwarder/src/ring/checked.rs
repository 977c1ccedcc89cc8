//! The rings, as the model checker sees them: `rtrb`'s interface, as far as it is used, and its order. What was put in is
//! announced by a release and seen by an acquire, and so is the room for more, and the end of the other side.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use alloc::sync::Arc;
use std::sync::Mutex;

use netdrv::sync::{AtomicBool, AtomicU64, Ordering};

/// What producer and consumer share.
pub(crate) struct RingBuffer<T> {
    /// Items taken so far.
    head: AtomicU64,
    /// Items put in so far.
    tail: AtomicU64,
    is_abandoned: AtomicBool,
    /// Never waited for: a slot is one side's or the other's.
    slots: Box<[Mutex<Option<T>>]>,
}

impl<T> RingBuffer<T> {
    #[expect(clippy::new_ret_no_self, reason = "rtrb has it so")]
    pub(crate) fn new(capacity: usize) -> (Producer<T>, Consumer<T>) {
        let buffer = Arc::new(RingBuffer {
            head: AtomicU64::new(0),
            tail: AtomicU64::new(0),
            is_abandoned: AtomicBool::new(false),
            slots: (0..capacity).map(|_| Mutex::new(None)).collect(),
        });
        let producer = Producer { buffer: buffer.clone(), tail: 0 };
        (producer, Consumer { buffer, head: 0, read: VecDeque::new() })
    }

    pub(crate) fn capacity(&self) -> usize {
        self.slots.len()
    }

    fn slot(&self, position: u64) -> &Mutex<Option<T>> {
        &self.slots[position as usize % self.slots.len()]
    }
}

pub(crate) struct Producer<T> {
    buffer: Arc<RingBuffer<T>>,
    tail: u64,
}

impl<T> Producer<T> {
    pub(crate) fn buffer(&self) -> &RingBuffer<T> {
        &self.buffer
    }

    pub(crate) fn slots(&self) -> usize {
        let head = self.buffer.head.load(Ordering::Acquire);
        self.buffer.capacity() - (self.tail - head) as usize
    }

    pub(crate) fn push(&mut self, item: T) -> Result<(), PushError<T>> {
        match self.write_chunk_uninit(1) {
            Ok(chunk) => {
                chunk.fill_from_iter(core::iter::once(item));
                Ok(())
            }
            Err(ChunkError::TooFewSlots(_)) => Err(PushError::Full(item)),
        }
    }

    pub(crate) fn write_chunk_uninit(&mut self, count: usize) -> Result<WriteChunk<'_, T>, ChunkError> {
        match self.slots() {
            slots if slots < count => Err(ChunkError::TooFewSlots(slots)),
            _ => Ok(WriteChunk { producer: self, count }),
        }
    }
}

impl<T> Drop for Producer<T> {
    fn drop(&mut self) {
        self.buffer.is_abandoned.store(true, Ordering::Release);
    }
}

pub(crate) enum PushError<T> {
    Full(T),
}

pub(crate) enum PopError {
    Empty,
}

pub(crate) enum ChunkError {
    TooFewSlots(usize),
}

pub(crate) struct WriteChunk<'a, T> {
    producer: &'a mut Producer<T>,
    count: usize,
}

impl<T> WriteChunk<'_, T> {
    pub(crate) fn fill_from_iter(self, items: impl Iterator<Item = T>) -> usize {
        let Producer { buffer, tail } = self.producer;
        let before = *tail;
        for item in items.take(self.count) {
            *buffer.slot(*tail).try_lock().expect("the slot is the producer's") = Some(item);
            *tail += 1;
        }
        buffer.tail.store(*tail, Ordering::Release);
        (*tail - before) as usize
    }
}

pub(crate) struct Consumer<T> {
    buffer: Arc<RingBuffer<T>>,
    head: u64,
    /// Items from `head` on that were looked at and not taken.
    read: VecDeque<T>,
}

impl<T> Consumer<T> {
    pub(crate) fn slots(&self) -> usize {
        (self.buffer.tail.load(Ordering::Acquire) - self.head) as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots() == 0
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.buffer.is_abandoned.load(Ordering::Acquire)
    }

    pub(crate) fn pop(&mut self) -> Result<T, PopError> {
        self.read_chunk(1).ok().and_then(|chunk| chunk.into_iter().next()).ok_or(PopError::Empty)
    }

    pub(crate) fn read_chunk(&mut self, count: usize) -> Result<ReadChunk<'_, T>, ChunkError> {
        // What was seen once is there, whether the next load shows it or not.
        if self.read.len() < count && self.slots() < count {
            return Err(ChunkError::TooFewSlots(self.slots()));
        }
        while self.read.len() < count {
            let slot = self.buffer.slot(self.head + self.read.len() as u64);
            let item = slot.try_lock().expect("the slot is the consumer's").take();
            self.read.push_back(item.expect("what is announced was put in"));
        }
        Ok(ReadChunk { consumer: self, count })
    }
}

/// The first items of the ring; those that are iterated over are taken out of it, together.
pub(crate) struct ReadChunk<'a, T> {
    consumer: &'a mut Consumer<T>,
    count: usize,
}

impl<T> ReadChunk<'_, T> {
    pub(crate) fn as_slices(&self) -> (&[T], &[T]) {
        let (front, back) = self.consumer.read.as_slices();
        let front = &front[..self.count.min(front.len())];
        (front, &back[..self.count - front.len()])
    }
}

impl<'a, T> IntoIterator for ReadChunk<'a, T> {
    type Item = T;
    type IntoIter = ReadChunkIntoIter<'a, T>;

    fn into_iter(self) -> ReadChunkIntoIter<'a, T> {
        ReadChunkIntoIter { consumer: self.consumer, left: self.count, iterated: 0 }
    }
}

pub(crate) struct ReadChunkIntoIter<'a, T> {
    consumer: &'a mut Consumer<T>,
    left: usize,
    iterated: u64,
}

impl<T> Iterator for ReadChunkIntoIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.left = self.left.checked_sub(1)?;
        self.iterated += 1;
        self.consumer.read.pop_front()
    }
}

impl<T> Drop for ReadChunkIntoIter<'_, T> {
    fn drop(&mut self) {
        self.consumer.head += self.iterated;
        self.consumer.buffer.head.store(self.consumer.head, Ordering::Release);
    }
}
