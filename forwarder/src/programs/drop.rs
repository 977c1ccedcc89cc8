//! `drop`: a sink.
//!
//! | outcome | when |
//! |---|---|
//! | `Drop` | always |

use crate::verdict::Verdict;

#[inline(always)]
pub(super) fn verdict() -> Verdict {
    Verdict::Drop
}

#[cfg(test)]
mod tests {
    use crate::programs::Program;
    use crate::testing::verdicts_on;
    use crate::verdict::Verdict;

    #[test]
    fn every_frame_is_dropped() {
        assert_eq!(verdicts_on(Program::Drop, 0, 2, &[&[0; 14], &[0xff; 1514]]), [Verdict::Drop; 2]);
    }
}
