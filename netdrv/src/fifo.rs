//! The buffers that lie in a descriptor ring, in their order.

#![allow(unsafe_code)] // Moves buffers between arrays by copying them, and forgets the place that they came from.

use alloc::boxed::Box;
use core::mem::MaybeUninit;
use core::ptr;

use arrayvec::ArrayVec;

use crate::packet::Burst;
use crate::pool::FreeBuffer;

/// Buffers, oldest first: as many as a ring has descriptors at most. Each has a position, counted from the first that was
/// ever in it.
///
/// Buffers that are still in it when it is dropped are lost.
pub(crate) struct Fifo {
    /// A power of two of places. Those of positions `first` up to `end`, modulo their number, hold buffers.
    places: Box<[MaybeUninit<FreeBuffer>]>,
    first: u64,
    end: u64,
}

impl Fifo {
    /// An empty one with `places` places, a power of two.
    pub(crate) fn new(places: usize) -> Fifo {
        assert!(places.is_power_of_two(), "{places} places");
        Fifo { places: Box::new_uninit_slice(places), first: 0, end: 0 }
    }

    /// The position of the oldest buffer.
    #[inline(always)]
    pub(crate) fn first(&self) -> u64 {
        self.first
    }

    /// The position behind the newest buffer.
    #[inline(always)]
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        (self.end - self.first) as usize
    }

    #[inline(always)]
    fn place(&self, position: u64) -> usize {
        position as usize & (self.places.len() - 1)
    }

    /// The places of `count` positions from `position` on, in two runs: up to the end, and from the start on.
    #[inline(always)]
    fn runs(&self, position: u64, count: usize) -> [(usize, usize); 2] {
        let begin = self.place(position);
        let before_end = count.min(self.places.len() - begin);
        [(begin, before_end), (0, count - before_end)]
    }

    /// The `count` oldest buffers behind the first `skip`, or as many as there are.
    #[inline(always)]
    pub(crate) fn oldest(&self, skip: usize, count: usize) -> impl Iterator<Item = &FreeBuffer> {
        let skip = skip.min(self.len());
        let runs = self.runs(self.first + skip as u64, count.min(self.len() - skip));
        // SAFETY: these places hold buffers, and lie inside the array.
        let run = |(begin, len)| unsafe { self.places.get_unchecked(begin..begin + len).assume_init_ref() };
        runs.map(run).into_iter().flatten()
    }

    /// Puts `buffers` behind the newest one, as long as there are places. Those that found none stay in the iterator.
    #[inline(always)]
    pub(crate) fn append(&mut self, buffers: impl Iterator<Item = FreeBuffer>) {
        let full = self.first + self.places.len() as u64;
        let mut end = self.end;
        for (position, buffer) in (end..full).zip(buffers) {
            let place = self.place(position);
            self.places[place].write(buffer);
            end = position + 1;
        }
        self.end = end;
    }

    /// Takes the oldest buffer.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Option<FreeBuffer> {
        if self.first == self.end {
            return None;
        }
        let place = self.place(self.first);
        self.first += 1;
        // SAFETY: the place held a buffer, and has been forgotten.
        Some(unsafe { self.places[place].assume_init_read() })
    }

    /// Takes the oldest buffers, at most `most`, as frames behind those of `burst`, as long as `len` knows how long the
    /// frame at a position is; they begin behind `headroom` free bytes. Returns how many.
    #[inline(always)]
    pub(crate) fn take_frames(
        &mut self,
        burst: &mut Burst,
        most: usize,
        headroom: usize,
        len: impl Fn(u64) -> Option<usize>,
    ) -> usize {
        let most = most.min(self.len()).min(burst.remaining_capacity());
        let before = burst.len();
        let to = burst.as_mut_ptr();
        let mut count = 0;
        while count < most
            && let Some(len) = len(self.first + count as u64)
        {
            let place = self.place(self.first + count as u64);
            // SAFETY: the place holds a buffer, which is forgotten below, and the burst has room for it.
            unsafe {
                let buffer = self.places.get_unchecked(place).assume_init_read();
                to.add(before + count).write(buffer.into_frame(headroom, len));
            }
            count += 1;
        }
        self.first += count as u64;
        // SAFETY: so many more packets were written.
        unsafe { burst.set_len(before + count) };
        count
    }

    /// Moves the `count` oldest buffers behind those of `list`, fewer where there are not as many or `list` is full. Returns
    /// how many.
    #[inline(always)]
    pub(crate) fn move_to<const N: usize>(
        &mut self,
        list: &mut ArrayVec<FreeBuffer, N>,
        count: usize,
    ) -> usize {
        let count = count.min(self.len()).min(list.remaining_capacity());
        let before = list.len();
        let [(begin, first), (_, second)] = self.runs(self.first, count);
        let from = self.places.as_ptr().cast::<FreeBuffer>();
        // SAFETY: both runs hold buffers, `count` together, for which the list has room; they are forgotten here.
        unsafe {
            let to = list.as_mut_ptr().add(before);
            ptr::copy_nonoverlapping(from.add(begin), to, first);
            ptr::copy_nonoverlapping(from, to.add(first), second);
            list.set_len(before + count);
        }
        self.first += count as u64;
        count
    }

    /// Counts positions anew: the oldest buffer comes to lie at position 0.
    pub(crate) fn rewind(&mut self) {
        let place = self.place(self.first);
        self.places.rotate_left(place);
        (self.first, self.end) = (0, self.end - self.first);
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::pool::Pool;
    use crate::process::ProcessHal;

    fn addresses<'a>(buffers: impl IntoIterator<Item = &'a FreeBuffer>) -> Vec<u64> {
        buffers.into_iter().map(|buffer| buffer.address(0)).collect()
    }

    #[test]
    fn buffers_keep_their_order_across_the_end_and_each_has_one_owner() {
        let pool = Pool::new::<ProcessHal>(64).expect("memory");
        let mut cache = pool.cache();
        let mut fifo = Fifo::new(8);
        // What is in it, by address, and what was ever taken.
        let (mut model, mut taken) = (Vec::new(), 0);
        for step in 0..200 {
            let mut more: Vec<FreeBuffer> =
                (0..step % 6).map(|_| FreeBuffer::of(cache.take().expect("a buffer"))).collect();
            let room = (8 - fifo.len()).min(more.len());
            model.extend(addresses(&more[..room]));
            let mut offered = more.drain(..);
            fifo.append(offered.by_ref());
            offered.for_each(|buffer| cache.put(buffer.into_packet()));
            assert_eq!(fifo.end(), fifo.first() + model.len() as u64);
            assert_eq!(addresses(fifo.oldest(0, usize::MAX)), model);
            assert_eq!(addresses(fifo.oldest(1, 2)), addresses(fifo.oldest(0, 3).skip(1)));
            if step % 7 == 0 {
                fifo.rewind();
                assert_eq!(fifo.first(), 0);
                assert_eq!(addresses(fifo.oldest(0, usize::MAX)), model);
            }
            let mut out = ArrayVec::<FreeBuffer, 5>::new();
            if step % 2 == 0 {
                out.extend(fifo.take());
            }
            fifo.move_to(&mut out, step % 5);
            assert_eq!(addresses(&out), model.drain(..out.len()).collect::<Vec<_>>());
            taken += out.len();
            out.drain(..).for_each(|buffer| cache.put(buffer.into_packet()));
        }
        assert!(taken > 100);
        core::iter::from_fn(|| fifo.take()).for_each(|buffer| cache.put(buffer.into_packet()));
        drop(cache);
        assert_eq!(pool.in_depot(), 64, "every buffer came home once");
    }
}
