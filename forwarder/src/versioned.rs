//! Numbers that one core writes together and any core reads together.

use netdrv::sync::{AtomicU64, Ordering, fence, spin_loop};

/// `WORDS` numbers with a version, so that a reader never sees some of one publication and some of another. Two lines
/// apart from what comes next, since the CPU fetches lines in pairs.
#[repr(align(128))]
pub(crate) struct Versioned<const WORDS: usize> {
    /// Odd while the writer writes.
    version: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Versioned<WORDS> {
    /// All zero.
    pub(crate) fn new() -> Versioned<WORDS> {
        Versioned { version: AtomicU64::new(0), words: core::array::from_fn(|_| AtomicU64::new(0)) }
    }

    /// For the one core that the numbers belong to.
    #[inline(always)]
    pub(crate) fn publish(&self, values: &[u64; WORDS]) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, &value) in self.words.iter().zip(values) {
            word.store(value, Ordering::Relaxed);
        }
        self.version.store(version + 2, Ordering::Release);
    }

    /// The numbers of some publication. Waits only where it meets the writer in the midst of one.
    pub(crate) fn read(&self) -> [u64; WORDS] {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let values = core::array::from_fn(|index| self.words[index].load(Ordering::Relaxed));
            fence(Ordering::Acquire);
            if before.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == before {
                return values;
            }
            spin_loop();
        }
    }
}

#[cfg(all(test, loom))]
mod models;

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn a_reader_never_sees_half_a_publication() {
        const PUBLICATIONS: u64 = 300_000;
        let numbers = Versioned::<40>::new();
        thread::scope(|scope| {
            scope.spawn(|| (1..=PUBLICATIONS).for_each(|count| numbers.publish(&[count; 40])));
            let mut last = 0;
            while last < PUBLICATIONS {
                let values = numbers.read();
                assert_eq!(values, [values[0]; 40]);
                assert!(values[0] >= last);
                last = values[0];
            }
        });
    }
}
