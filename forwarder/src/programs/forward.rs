//! `forward`: a wire between two ports. The pairs are 0 and 1, 2 and 3, and so on; the frame is not touched.
//!
//! | outcome | when |
//! |---|---|
//! | `Redirect(partner)` | always |
//!
//! The last of an odd number of ports has a partner that does not exist: what it receives is dropped and counted as
//! `no_such_port`, as any redirection into the void is.

use super::Context;
use crate::verdict::{PortId, Verdict};

#[inline(always)]
pub(super) fn verdict(context: Context) -> Verdict {
    Verdict::Redirect(partner(context.port))
}

/// The other port of the pair.
#[inline(always)]
pub(super) fn partner(port: PortId) -> PortId {
    PortId(port.0 ^ 1)
}

#[cfg(test)]
mod tests {
    use crate::programs::Program;
    use crate::testing::verdicts_on;
    use crate::verdict::{PortId, Verdict};

    #[test]
    fn ports_are_paired() {
        for (port, partner) in [(0, 1), (1, 0), (2, 3), (3, 2)] {
            let verdicts = verdicts_on(Program::Forward, port, 4, &[&[0; 60], &[0; 1514]]);
            assert_eq!(verdicts, [Verdict::Redirect(PortId(partner)); 2]);
        }
    }

    #[test]
    fn the_last_of_an_odd_number_of_ports_has_no_partner() {
        let served = [0, 1, 2].map(|port| Program::Forward.serves(PortId(port), 3));
        assert_eq!(served, [true, true, false]);
    }
}
