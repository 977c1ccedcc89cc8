//! How many frames may be in the guest at a time.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A bound on frames in flight, shared by the port that they go in at and the port that they come out of.
///
/// It keeps a lossless test lossless: no ring of the guest overruns when there are never more frames in it than the
/// ring has descriptors. A frame that the guest drops takes its place for ever.
#[derive(Clone, Debug)]
pub struct Window {
    in_flight: Arc<AtomicUsize>,
    limit: usize,
}

impl Window {
    /// A window for at most `limit` frames.
    pub fn new(limit: usize) -> Self {
        Self { in_flight: Arc::default(), limit }
    }

    /// Frames that went in and have not come out.
    pub fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }

    /// Takes room for a frame if there is any.
    pub(crate) fn take(&self) -> bool {
        let room = |frames| (frames < self.limit).then_some(frames + 1);
        self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, room).is_ok()
    }

    /// Makes room for a frame. Frames that nobody put in make none.
    pub(crate) fn give(&self) {
        let less = |frames: usize| frames.checked_sub(1);
        let _ = self.in_flight.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_window_takes_no_more_until_one_comes_out() {
        let window = Window::new(2);
        let other_end = window.clone();
        assert!(window.take() && window.take() && !window.take());
        other_end.give();
        assert_eq!(window.in_flight(), 1);
        assert!(window.take() && !window.take());
    }

    #[test]
    fn a_frame_that_nobody_put_in_makes_no_room() {
        let window = Window::new(1);
        window.give();
        assert!(window.take() && !window.take());
    }
}
