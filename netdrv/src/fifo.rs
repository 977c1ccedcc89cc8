//! The packets that lie in a descriptor ring, in their order: many move in and out at a time, as memory does.

#![allow(unsafe_code)] // Moves packets between arrays by copying them, and forgets the place that they came from.

use alloc::boxed::Box;
use core::mem::MaybeUninit;
use core::ptr;

use crate::packet::{Burst, Packet};

/// Packets, oldest first: as many as a ring has descriptors at most.
///
/// Packets that are still in it when it is dropped are lost, and their buffers with them.
pub(crate) struct Fifo {
    /// A power of two of places. Those of positions `first` up to `first + len`, modulo their number, hold packets.
    places: Box<[MaybeUninit<Packet>]>,
    first: usize,
    len: usize,
}

impl Fifo {
    /// An empty one with `places` places, a power of two.
    pub(crate) fn new(places: usize) -> Fifo {
        assert!(places.is_power_of_two(), "{places} places");
        Fifo { places: Box::new_uninit_slice(places), first: 0, len: 0 }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    #[inline(always)]
    fn place(&self, position: usize) -> usize {
        position & (self.places.len() - 1)
    }

    /// The places of `count` positions from `position` on, in two runs: up to the end, and from the start on.
    #[inline(always)]
    fn runs(&self, position: usize, count: usize) -> [(usize, usize); 2] {
        let begin = self.place(position);
        let before_end = count.min(self.places.len() - begin);
        [(begin, before_end), (0, count - before_end)]
    }

    /// The `count` oldest packets behind the first `skip`, or as many as there are, in two runs.
    #[inline(always)]
    pub(crate) fn oldest(&self, skip: usize, count: usize) -> [&[Packet]; 2] {
        let skip = skip.min(self.len);
        let runs = self.runs(self.first + skip, count.min(self.len - skip));
        // SAFETY: these places hold packets, and lie inside the array.
        runs.map(|(begin, len)| unsafe { self.places.get_unchecked(begin..begin + len).assume_init_ref() })
    }

    /// The same of the first, to change.
    #[inline(always)]
    pub(crate) fn oldest_mut(&mut self, count: usize) -> [&mut [Packet]; 2] {
        let [(begin, first), (_, second)] = self.runs(self.first, count.min(self.len));
        let (front, back) = self.places.split_at_mut(begin);
        // SAFETY: these places hold packets; the second run ends before the first begins, since there are no more packets
        // than places.
        unsafe { [back[..first].assume_init_mut(), front[..second].assume_init_mut()] }
    }

    /// Moves the `count` first packets of `burst` behind the newest one, fewer where `burst` or the places end.
    #[inline(always)]
    pub(crate) fn append(&mut self, burst: &mut Burst, count: usize) {
        let count = count.min(burst.len()).min(self.places.len() - self.len);
        let rest = burst.len() - count;
        let [(begin, first), (_, second)] = self.runs(self.first + self.len, count);
        let (from, to) = (burst.as_mut_ptr(), self.places.as_mut_ptr().cast::<Packet>());
        // SAFETY: both runs lie inside the array, hold no packets, and take `count` together, which the burst has. What was
        // moved is forgotten there, what was behind it is moved to the front.
        unsafe {
            burst.set_len(0);
            ptr::copy_nonoverlapping(from, to.add(begin), first);
            ptr::copy_nonoverlapping(from.add(first), to, second);
            ptr::copy(from.add(count), from, rest);
            burst.set_len(rest);
        }
        self.len += count;
    }

    /// Moves the `count` oldest packets behind those of `burst`, fewer where there are not as many or `burst` is full.
    #[inline(always)]
    pub(crate) fn move_to(&mut self, burst: &mut Burst, count: usize) {
        let count = count.min(self.len).min(burst.remaining_capacity());
        let before = burst.len();
        let [(begin, first), (_, second)] = self.runs(self.first, count);
        let from = self.places.as_ptr().cast::<Packet>();
        // SAFETY: both runs hold packets, `count` together, for which the burst has room; they are forgotten here.
        unsafe {
            let to = burst.as_mut_ptr().add(before);
            ptr::copy_nonoverlapping(from.add(begin), to, first);
            ptr::copy_nonoverlapping(from, to.add(first), second);
            burst.set_len(before + count);
        }
        self.forget(count);
    }

    /// Hands out the `count` oldest packets, or as many as there are. Those that nobody takes from the iterator are lost.
    #[inline(always)]
    pub(crate) fn take(&mut self, count: usize) -> impl ExactSizeIterator<Item = Packet> {
        let (first, count) = (self.first, count.min(self.len));
        self.forget(count);
        let places: &[MaybeUninit<Packet>] = &self.places;
        (0..count).map(move |index| {
            let place = &places[first.wrapping_add(index) & (places.len() - 1)];
            // SAFETY: the place held a packet, and has been forgotten; each index comes once.
            unsafe { place.assume_init_read() }
        })
    }

    #[inline(always)]
    fn forget(&mut self, count: usize) {
        self.first = self.first.wrapping_add(count);
        self.len -= count;
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::vec::Vec;

    use super::*;
    use crate::pool::Pool;
    use crate::process::ProcessHal;

    /// Packets whose lengths are their numbers.
    fn burst(numbers: core::ops::Range<usize>, pool: &'static Pool) -> Burst {
        let mut cache = pool.cache();
        let packet = |number| {
            let mut packet = cache.take().expect("a buffer");
            assert!(packet.set_len(number));
            packet
        };
        numbers.map(packet).collect()
    }

    fn numbers<'a>(packets: impl IntoIterator<Item = &'a Packet>) -> Vec<usize> {
        packets.into_iter().map(Packet::len).collect()
    }

    #[test]
    fn packets_keep_their_order_across_the_end_and_each_has_one_owner() {
        let pool = Pool::new::<ProcessHal>(64).expect("memory");
        let mut fifo = Fifo::new(8);
        let (mut put, mut got) = (0, 0);
        for step in 0..200 {
            let mut more = burst(put..put + step % 6, pool);
            let room = (8 - fifo.len()).min(step % 6);
            fifo.append(&mut more, step % 6);
            assert_eq!(
                numbers(&more),
                (put + room..put + step % 6).collect::<Vec<_>>(),
                "what found no room"
            );
            put += room;
            assert_eq!(fifo.len(), put - got);
            let all = fifo.oldest(0, usize::MAX).into_iter().flatten();
            assert_eq!(numbers(all), (got..put).collect::<Vec<_>>());
            assert_eq!(
                numbers(fifo.oldest(1, 2).into_iter().flatten()),
                numbers(fifo.oldest(0, 3).into_iter().flatten().skip(1))
            );
            let seen: Vec<_> = fifo.oldest_mut(4).into_iter().flatten().map(|packet| packet.len()).collect();
            assert_eq!(seen, (got..put.min(got + 4)).collect::<Vec<_>>());
            let count = step % 5;
            if step % 2 == 0 {
                let mut out = burst(1000..1001, pool);
                fifo.move_to(&mut out, count);
                assert_eq!(numbers(&out[1..]), (got..put.min(got + count)).collect::<Vec<_>>());
                got += out.len() - 1;
            } else {
                let out: Vec<Packet> = fifo.take(count).collect();
                assert_eq!(numbers(&out), (got..put.min(got + count)).collect::<Vec<_>>());
                got += out.len();
            }
        }
        assert!(got > 100);
        fifo.take(8).for_each(drop);
        assert_eq!(pool.in_depot(), 64, "every buffer came home once");
    }
}
