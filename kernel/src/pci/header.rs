//! The configuration header: offsets and bits (PCI Express base specification 6.0, 7.5.1).

/// Registers of every header.
pub(super) mod common {
    /// Device id (upper half) and vendor id.
    pub(crate) const ID: u16 = 0x00;
    /// Command register; the upper half of the word is the status, whose bits are cleared by writing ones.
    pub(crate) const COMMAND: u16 = 0x04;
    /// Status register.
    pub(crate) const STATUS: u16 = 0x06;
    /// Base class, subclass, interface, revision, from the top.
    pub(crate) const CLASS: u16 = 0x08;
    /// Header type; bit 7: the device has more functions than one.
    pub(crate) const HEADER_TYPE: u16 = 0x0e;
    /// First base address register.
    pub(crate) const BAR_0: u16 = 0x10;
    /// Offset of the first capability.
    pub(crate) const CAPABILITIES: u16 = 0x34;
}

/// Registers of the header of a PCI-to-PCI bridge (7.5.1.3).
pub(super) mod bridge {
    /// Secondary latency timer, subordinate, secondary and primary bus number, from the top.
    pub(crate) const BUS_NUMBERS: u16 = 0x18;
    /// Secondary bus number.
    pub(crate) const SECONDARY_BUS: u16 = 0x19;
    /// Subordinate bus number: the highest one behind the bridge.
    pub(crate) const SUBORDINATE_BUS: u16 = 0x1a;
    /// I/O limit and base in the lower half; the upper half is the secondary status.
    pub(crate) const IO_WINDOW: u16 = 0x1c;
    /// Memory limit (upper half) and base, in units of 64 KiB.
    pub(crate) const MEMORY_WINDOW: u16 = 0x20;
    /// Prefetchable memory limit and base.
    pub(crate) const PREFETCHABLE_WINDOW: u16 = 0x24;
    /// Upper halves of the prefetchable base and limit.
    pub(crate) const PREFETCHABLE_UPPER: [u16; 2] = [0x28, 0x2c];
}

/// Header type of an endpoint.
pub(super) const ENDPOINT: u8 = 0;
/// Header type of a PCI-to-PCI bridge.
pub(super) const BRIDGE: u8 = 1;
/// Header type bit: the device has more functions than one.
pub(super) const MULTIFUNCTION: u8 = 1 << 7;
/// Status bit: there is a list of capabilities.
pub(super) const HAS_CAPABILITIES: u16 = 1 << 4;
/// Base class and subclass of a host bridge.
pub(super) const HOST_BRIDGE: (u8, u8) = (0x06, 0x00);
