//! What is sent, and how it is told when it comes out.

use crate::frames::{self, Tag};

/// The most flows of one direction: as many as their addresses tell apart.
pub const MAX_FLOWS: u32 = 1 << 16;

/// What a frame that came out turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// A frame that was sent, byte for byte.
    Intact {
        /// Its flow, counted from 0.
        flow: u32,
        /// Its place in the flow, counted from 0.
        sequence: u32,
    },
    /// A frame of ours, but not as it was sent.
    Changed,
    /// A frame that nobody sent here.
    Foreign,
}

/// Frames to send in one direction, in order.
pub trait Source {
    /// How many frames there are in all.
    fn total(&self) -> u64;

    /// Writes the next frame in place of what the buffer holds; `false` when there are no more.
    fn next(&mut self, frame: &mut Vec<u8>) -> bool;

    /// Tells what a frame is that came out. Only frames that [`Self::next`] has given are intact.
    fn recognise(&mut self, frame: &[u8]) -> Arrival;
}

/// What the image does to each frame on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transform {
    /// Nothing: program `forward`.
    Unchanged,
    /// Source and destination addresses are exchanged: program `reflect`.
    MacsSwapped,
}

/// UDP flows that take turns, a frame at a time or in runs of several.
#[derive(Clone, Debug)]
pub struct Flows {
    direction: u16,
    flows: u32,
    /// Frames of one flow before the next has its turn.
    run: u32,
    total: u64,
    given: u64,
    transform: Transform,
    /// The frame that a received one is compared with; kept for its memory.
    expected: Vec<u8>,
}

impl Flows {
    /// `total` frames in `flows` flows; the direction tells them from those of another source.
    ///
    /// # Panics
    /// When there is no flow or more than [`MAX_FLOWS`], or when a flow has 2³² frames or more.
    pub fn new(direction: u16, flows: u32, total: u64) -> Self {
        assert!((1..=MAX_FLOWS).contains(&flows), "{flows} flows");
        assert!(total.div_ceil(flows.into()) <= u32::MAX.into(), "{total} frames in {flows} flows");
        Self {
            direction,
            flows,
            run: 1,
            total,
            given: 0,
            transform: Transform::Unchanged,
            expected: Vec::new(),
        }
    }

    /// The same number of frames, `run` of a flow on the heels of each other before the next flow has its turn: as many are
    /// on their way at the same time, and could overtake each other.
    ///
    /// # Panics
    /// When the total is no multiple of whole turns: every flow has as many frames.
    #[must_use]
    pub fn in_runs_of(mut self, run: u32) -> Self {
        let turn = u64::from(self.flows) * u64::from(run);
        assert!(turn > 0 && self.total.is_multiple_of(turn), "{} frames in turns of {turn}", self.total);
        self.run = run;
        self
    }

    /// The same frames, expected to come out in another form.
    #[must_use]
    pub fn expect(mut self, transform: Transform) -> Self {
        self.transform = transform;
        self
    }

    /// The address that frames of a direction are for.
    pub fn destination(direction: u16) -> [u8; 6] {
        frames::destination(direction)
    }

    fn tag(&self, index: u64) -> Tag {
        let (flows, run) = (u64::from(self.flows), u64::from(self.run));
        let (turn, place) = (index / run, index % run);
        let sequence = turn / flows * run + place;
        Tag { direction: self.direction, flow: (turn % flows) as u32, sequence: sequence as u32 }
    }

    /// The inverse of [`Self::tag`].
    fn index(&self, tag: Tag) -> u64 {
        let (flows, run) = (u64::from(self.flows), u64::from(self.run));
        let (turn, place) = (u64::from(tag.sequence) / run, u64::from(tag.sequence) % run);
        (turn * flows + u64::from(tag.flow)) * run + place
    }

    /// Whether a tag is that of a frame that was given to be sent.
    fn was_given(&self, tag: Tag) -> bool {
        tag.direction == self.direction && tag.flow < self.flows && self.index(tag) < self.given
    }
}

impl Source for Flows {
    fn total(&self) -> u64 {
        self.total
    }

    fn next(&mut self, frame: &mut Vec<u8>) -> bool {
        if self.given == self.total {
            return false;
        }
        self.tag(self.given).write(frame);
        self.given += 1;
        true
    }

    fn recognise(&mut self, frame: &[u8]) -> Arrival {
        match Tag::of(frame) {
            Some(tag) if self.was_given(tag) => {
                tag.write(&mut self.expected);
                if self.transform == Transform::MacsSwapped {
                    frames::swap_macs(&mut self.expected);
                }
                if frame == self.expected {
                    Arrival::Intact { flow: tag.flow, sequence: tag.sequence }
                } else {
                    Arrival::Changed
                }
            }
            _ if frames::is_ours(frame) => Arrival::Changed,
            _ => Arrival::Foreign,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flows_take_turns_and_every_frame_is_told() {
        let mut flows = Flows::new(0, 3, 7);
        let mut frame = Vec::new();
        for index in 0..7_u32 {
            assert!(flows.next(&mut frame));
            assert_eq!(flows.recognise(&frame), Arrival::Intact { flow: index % 3, sequence: index / 3 });
        }
        assert!(!flows.next(&mut frame));
    }

    #[test]
    fn flows_take_turns_in_runs() {
        let mut flows = Flows::new(0, 2, 12).in_runs_of(3);
        let mut frame = Vec::new();
        for index in 0..12_u32 {
            assert!(flows.next(&mut frame));
            let (flow, sequence) = (index / 3 % 2, index / 6 * 3 + index % 3);
            assert_eq!(flows.recognise(&frame), Arrival::Intact { flow, sequence });
        }
        assert!(!flows.next(&mut frame));
    }

    #[test]
    fn the_next_frame_of_a_run_was_not_sent_yet() {
        let mut flows = Flows::new(0, 2, 12).in_runs_of(3);
        let mut frame = Vec::new();
        Tag { direction: 0, flow: 0, sequence: 1 }.write(&mut frame);
        flows.next(&mut Vec::new());
        assert_eq!(flows.recognise(&frame), Arrival::Changed);
        flows.next(&mut Vec::new());
        assert_eq!(flows.recognise(&frame), Arrival::Intact { flow: 0, sequence: 1 });
    }

    #[test]
    fn a_frame_that_was_not_sent_yet_is_not_intact() {
        let mut frame = Vec::new();
        Tag { direction: 0, flow: 0, sequence: 0 }.write(&mut frame);
        let mut flows = Flows::new(0, 1, 1);
        assert_eq!(flows.recognise(&frame), Arrival::Changed);
        flows.next(&mut Vec::new());
        assert_eq!(flows.recognise(&frame), Arrival::Intact { flow: 0, sequence: 0 });
    }

    #[test]
    fn a_frame_of_the_other_direction_or_of_nobody_is_told() {
        let mut flows = Flows::new(1, 1, 1);
        let mut frame = Vec::new();
        flows.next(&mut frame);
        assert_eq!(Flows::new(0, 1, 1).recognise(&frame), Arrival::Changed);
        assert_eq!(flows.recognise(&[0xff; 64]), Arrival::Foreign);
        assert_eq!(flows.recognise(&[]), Arrival::Foreign);
    }

    #[test]
    fn reflected_frames_come_out_with_swapped_addresses() {
        let mut flows = Flows::new(0, 1, 2).expect(Transform::MacsSwapped);
        let mut frame = Vec::new();
        flows.next(&mut frame);
        assert_eq!(flows.recognise(&frame), Arrival::Changed);
        frames::swap_macs(&mut frame);
        assert_eq!(flows.recognise(&frame), Arrival::Intact { flow: 0, sequence: 0 });
    }
}
