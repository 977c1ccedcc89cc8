//! How the card's transmit queues are grouped, and which of them are used.
//!
//! Without groups the card has 64 transmit queues (7.2.1.2.1). All 128 are there where they are put into pools for virtual
//! machines, or into traffic classes for DCB. Pools come with filters and a switch between them; classes change nothing but
//! the order in which queues send. So where more than 64 queues are needed they are put into four classes, while receiving
//! stays as it is: what Linux's driver does ("Fix ixgbe TX hangs with XDP_TX beyond queue limit").
//!
//! That has a price, so it is done on demand alone: the packet buffer is split in four, and a class is as large as another on
//! the wire although it has fewer queues. Queues are therefore taken from all classes alike as far as they reach, and up to 72
//! or so get about the same where the wire is the limit.

/// Transmit queues without groups.
const PLAIN: usize = 64;
/// Transmit queues in four classes: 64, 32, 16 and 16 of them, and the first of each (7.2.1.2.1).
const IN_CLASSES: usize = 128;
const FIRST_OF_CLASS: [usize; 4] = [0, 64, 96, 112];

/// A way to group transmit queues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum TxMode {
    /// Not at all.
    Plain,
    /// In four traffic classes.
    Classes,
}

impl TxMode {
    /// The mode for `wished` queues of which `needed` have to be there, and how many it gives.
    pub(super) fn choose(wished: usize, needed: usize) -> (TxMode, usize) {
        if needed > PLAIN {
            (TxMode::Classes, needed.min(IN_CLASSES))
        } else {
            (TxMode::Plain, wished.clamp(1, PLAIN))
        }
    }

    /// Traffic classes, each with a packet buffer of its own.
    pub(super) const fn classes(self) -> usize {
        match self {
            TxMode::Plain => 1,
            TxMode::Classes => FIRST_OF_CLASS.len(),
        }
    }

    /// The card's number of the `index`-th queue that is used.
    pub(super) const fn queue(self, index: usize) -> usize {
        match (self, index) {
            (TxMode::Plain, _) => index,
            // 16 of each class, then the second 16 of the two that have as many, then the rest of the largest.
            (TxMode::Classes, ..64) => FIRST_OF_CLASS[index % 4] + index / 4,
            (TxMode::Classes, 64..96) => FIRST_OF_CLASS[index % 2] + 16 + (index - 64) / 2,
            (TxMode::Classes, 96..) => 32 + (index - 96),
        }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn more_than_64_queues_are_there_on_demand_alone() {
        assert_eq!(TxMode::choose(0, 0), (TxMode::Plain, 1));
        assert_eq!(TxMode::choose(73, 0), (TxMode::Plain, 64));
        assert_eq!(TxMode::choose(64, 64), (TxMode::Plain, 64));
        assert_eq!(TxMode::choose(65, 65), (TxMode::Classes, 65));
        assert_eq!(TxMode::choose(200, 200), (TxMode::Classes, 128));
    }

    #[test]
    fn queues_are_taken_from_all_classes_and_none_twice() {
        let numbers: BTreeSet<usize> = (0..128).map(|index| TxMode::Classes.queue(index)).collect();
        assert_eq!(numbers, (0..128).collect());
        let of_class = |class: usize, count: usize| {
            let end = FIRST_OF_CLASS.get(class + 1).copied().unwrap_or(128);
            let numbers = (0..count).map(|index| TxMode::Classes.queue(index));
            numbers.filter(|number| (FIRST_OF_CLASS[class]..end).contains(number)).count()
        };
        assert_eq!([0, 1, 2, 3].map(|class| of_class(class, 72)), [20, 20, 16, 16]);
        assert_eq!([0, 1, 2, 3].map(|class| of_class(class, 128)), [64, 32, 16, 16]);
    }
}
