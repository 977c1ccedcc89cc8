//! What became of the frames of one direction.

use crate::flows::Arrival;

/// The outcome of one direction, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sent in.
    pub sent: u64,
    /// Come out, whatever they were.
    pub received: u64,
    /// Sent in and not come out, neither intact nor changed.
    pub lost: u64,
    /// Come out with other bytes than they were sent with.
    pub changed: u64,
    /// Come out behind a later frame of their flow (RFC 4737, section 3.3).
    pub reordered: u64,
    /// Come out once more.
    pub duplicated: u64,
    /// Come out though nobody sent them.
    pub foreign: u64,
}

impl Counts {
    /// What went wrong, as a clause without a full stop; `None` when nothing did.
    pub fn fault(&self) -> Option<String> {
        let faults = [
            (self.lost, "lost"),
            (self.changed, "changed"),
            (self.reordered, "reordered"),
            (self.duplicated, "duplicated"),
            (self.foreign, "foreign"),
        ];
        let clauses: Vec<_> = faults
            .iter()
            .filter(|(count, _)| *count > 0)
            .map(|(count, what)| format!("{count} {} {what}", if *count == 1 { "frame" } else { "frames" }))
            .collect();
        (!clauses.is_empty()).then(|| clauses.join(", "))
    }
}

/// Counts the frames of one direction as they go in and come out.
#[derive(Debug, Default)]
pub struct Tally {
    counts: Counts,
    /// By flow number: flows are counted from 0.
    flows: Vec<Flow>,
}

/// What has come out of one flow.
#[derive(Debug, Default)]
struct Flow {
    /// The sequence number behind the highest that came out.
    next: u32,
    /// One bit for each sequence number that came out.
    seen: Vec<u64>,
}

impl Tally {
    /// One frame was sent in.
    pub fn sent(&mut self) {
        self.counts.sent += 1;
    }

    /// One frame came out.
    pub fn arrived(&mut self, arrival: Arrival) {
        self.counts.received += 1;
        match arrival {
            Arrival::Changed => self.counts.changed += 1,
            Arrival::Foreign => self.counts.foreign += 1,
            Arrival::Intact { flow, sequence } => {
                let flow = self.flow(flow);
                let is_new = flow.mark(sequence);
                let is_late = sequence < flow.next;
                flow.next = flow.next.max(sequence + 1);
                match (is_new, is_late) {
                    (false, _) => self.counts.duplicated += 1,
                    (true, true) => self.counts.reordered += 1,
                    (true, false) => {}
                }
            }
        }
    }

    fn flow(&mut self, number: u32) -> &mut Flow {
        let number = number as usize;
        if number >= self.flows.len() {
            self.flows.resize_with(number + 1, Flow::default);
        }
        &mut self.flows[number]
    }

    /// How many frames have gone in and not come out (yet).
    pub fn outstanding(&self) -> u64 {
        let Counts { sent, received, duplicated, foreign, .. } = self.counts;
        sent.saturating_sub(received - duplicated - foreign)
    }

    /// The counts, with everything that is outstanding taken for lost.
    pub fn counts(&self) -> Counts {
        Counts { lost: self.outstanding(), ..self.counts }
    }
}

impl Flow {
    /// Marks a sequence number; `false` when it was marked before.
    fn mark(&mut self, sequence: u32) -> bool {
        let (word, bit) = (sequence as usize / 64, 1 << (sequence % 64));
        if word >= self.seen.len() {
            self.seen.resize(word + 1, 0);
        }
        let is_new = self.seen[word] & bit == 0;
        self.seen[word] |= bit;
        is_new
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::flows::{Flows, Source};

    /// Frames in the order in which they were sent.
    fn sent(flows: u32, total: u64) -> (Flows, Tally, Vec<Vec<u8>>) {
        let (mut source, mut tally) = (Flows::new(0, flows, total), Tally::default());
        let mut frames = Vec::new();
        let mut frame = Vec::new();
        while source.next(&mut frame) {
            tally.sent();
            frames.push(frame.clone());
        }
        (source, tally, frames)
    }

    fn outcome((mut source, mut tally, frames): (Flows, Tally, Vec<Vec<u8>>)) -> Counts {
        for frame in frames {
            tally.arrived(source.recognise(&frame));
        }
        tally.counts()
    }

    fn clean(total: u64) -> Counts {
        Counts { sent: total, received: total, ..Counts::default() }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn frames_that_come_out_as_sent_are_clean(flows in 1..20_u32, total in 0..200_u64) {
            prop_assert_eq!(outcome(sent(flows, total)), clean(total));
        }

        #[test]
        fn each_dropped_frame_is_lost(flows in 1..20_u32, total in 1..200_u64, dropped: Vec<prop::sample::Index>) {
            let (source, tally, mut frames) = sent(flows, total);
            for index in dropped {
                if !frames.is_empty() {
                    frames.remove(index.index(frames.len()));
                }
            }
            let received = frames.len() as u64;
            let expected = Counts { received, lost: total - received, ..clean(total) };
            prop_assert_eq!(outcome((source, tally, frames)), expected);
        }

        #[test]
        fn an_altered_frame_is_changed_and_not_lost(
            flows in 1..20_u32, total in 1..200_u64, victim: prop::sample::Index, at: prop::sample::Index, xor in 1..=255_u8,
        ) {
            let (source, tally, mut frames) = sent(flows, total);
            let frame = &mut frames[victim.index(total as usize)];
            let at = at.index(frame.len());
            frame[at] ^= xor;
            prop_assert_eq!(outcome((source, tally, frames)), Counts { changed: 1, ..clean(total) });
        }

        #[test]
        fn a_cut_frame_is_changed(flows in 1..20_u32, total in 1..200_u64, victim: prop::sample::Index, length in 14..60_usize) {
            let (source, tally, mut frames) = sent(flows, total);
            frames[victim.index(total as usize)].truncate(length - 1);
            prop_assert_eq!(outcome((source, tally, frames)), Counts { changed: 1, ..clean(total) });
        }

        #[test]
        fn neighbours_of_one_flow_that_swap_are_one_reordering(flows in 1..20_u32, rounds in 2..10_u64, victim: prop::sample::Index) {
            let total = u64::from(flows) * rounds;
            let (source, tally, mut frames) = sent(flows, total);
            let first = victim.index((total - u64::from(flows)) as usize);
            frames.swap(first, first + flows as usize);
            prop_assert_eq!(outcome((source, tally, frames)), Counts { reordered: 1, ..clean(total) });
        }

        #[test]
        fn neighbours_of_different_flows_may_swap(flows in 2..20_u32, total in 2..200_u64, victim: prop::sample::Index) {
            let (source, tally, mut frames) = sent(flows, total);
            let first = victim.index((total - 1) as usize);
            frames.swap(first, first + 1);
            prop_assert_eq!(outcome((source, tally, frames)), clean(total));
        }

        #[test]
        fn a_frame_that_comes_out_again_is_duplicated(
            flows in 1..20_u32, total in 1..200_u64, victim: prop::sample::Index, later: prop::sample::Index,
        ) {
            let (source, tally, mut frames) = sent(flows, total);
            let victim = victim.index(total as usize);
            let place = victim + 1 + later.index(total as usize - victim);
            frames.insert(place, frames[victim].clone());
            prop_assert_eq!(outcome((source, tally, frames)), Counts { duplicated: 1, received: total + 1, ..clean(total) });
        }

        #[test]
        fn a_frame_of_nobody_is_foreign(total in 0..50_u64, frame in prop::collection::vec(0x40..=0xff_u8, 0..100)) {
            let (source, tally, mut frames) = sent(3, total);
            frames.push(frame);
            prop_assert_eq!(outcome((source, tally, frames)), Counts { foreign: 1, received: total + 1, ..clean(total) });
        }
    }

    #[test]
    fn faults_are_named_with_their_numbers() {
        assert_eq!(clean(5).fault(), None);
        let counts = Counts { lost: 1, reordered: 20, ..clean(5) };
        assert_eq!(counts.fault().unwrap(), "1 frame lost, 20 frames reordered");
    }
}
