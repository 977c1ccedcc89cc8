//! `pass`: the host is the destination.
//!
//! | outcome | when |
//! |---|---|
//! | `Pass` | always |

use crate::verdict::Verdict;

#[inline(always)]
pub(super) fn verdict() -> Verdict {
    Verdict::Pass
}

#[cfg(test)]
mod tests {
    use crate::programs::Program;
    use crate::testing::verdicts_on;
    use crate::verdict::Verdict;

    #[test]
    fn every_frame_is_passed() {
        assert_eq!(verdicts_on(Program::Pass, 1, 2, &[&[0; 14], &[0xff; 1514]]), [Verdict::Pass; 2]);
    }
}
