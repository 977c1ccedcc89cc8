//! Why a card can't be used.

use core::fmt;

use crate::dma::DmaError;

/// A fault of the card, or of what the firmware made of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IxgbeError {
    /// The registers read as all ones: the card does not answer.
    Gone,
    /// A register did not come to say what it has to.
    Timeout {
        /// The register's name in the datasheet.
        register: &'static str,
        /// What it should have said.
        awaited: &'static str,
    },
    /// The card has no station address.
    NoAddress,
    /// The physical function's driver refuses what a virtual function can't do without.
    Refused(&'static str),
    /// The physical function's driver goes back on its word again and again.
    NoAgreement,
    /// The physical function gives fewer queues than are in use.
    FewerQueues,
    /// No memory for a ring.
    Dma(DmaError),
}

impl fmt::Display for IxgbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IxgbeError::Gone => f.write_str("the card does not answer"),
            IxgbeError::Timeout { register, awaited } => {
                write!(f, "{register}: waited in vain for {awaited}")
            }
            IxgbeError::NoAddress => f.write_str("the card has no station address"),
            IxgbeError::Refused(what) => write!(f, "the physical function refuses {what}"),
            IxgbeError::NoAgreement => f.write_str("no agreement with the physical function lasts"),
            IxgbeError::FewerQueues => f.write_str("the physical function gives fewer queues than before"),
            IxgbeError::Dma(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for IxgbeError {}

impl From<DmaError> for IxgbeError {
    fn from(error: DmaError) -> IxgbeError {
        IxgbeError::Dma(error)
    }
}
