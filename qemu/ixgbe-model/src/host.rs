//! What a card is plugged into: the memory of its host, and a cable.

use std::fmt;

/// The address is not memory that the card may reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unmapped {
    /// Where the access began.
    pub address: u64,
    /// Its bytes.
    pub len: usize,
}

impl fmt::Display for Unmapped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes at {:#x} are not memory that was handed over", self.len, self.address)
    }
}

impl std::error::Error for Unmapped {}

/// Memory as the card's DMA sees it.
///
/// What is written becomes visible to the host in the order of the calls, and within a call the last eight bytes
/// become visible last: a driver that sees a descriptor's status sees all that was written before.
pub trait Memory {
    /// Reads from the memory at `address`.
    ///
    /// # Errors
    /// When the range is not all memory that the card may reach; nothing was read then.
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped>;

    /// Writes to the memory at `address`.
    ///
    /// # Errors
    /// When the range is not all memory that the card may reach; nothing was written then.
    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped>;
}

/// What the cable leads to.
pub trait Wire {
    /// A frame leaves the card, without its CRC. `queue` is the transmit queue that it came from.
    fn transmit(&mut self, queue: u16, frame: &[u8]);

    /// Takes the next frame that arrives at the card, without its CRC; false when there is none. `frame` holds
    /// nothing of use before.
    fn receive(&mut self, frame: &mut Vec<u8>) -> bool;
}
