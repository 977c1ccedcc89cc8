//! What a loader hands over, in one form for all loaders.

use core::fmt;

use crate::memory::PageRange;
use arrayvec::{ArrayString, ArrayVec};

/// Longest command line that is taken, in bytes.
pub(super) const MAX_COMMAND_LINE: usize = 4096;
/// Most entries of a memory map that are taken. Real machines have 5 to 60.
pub(super) const MAX_REGIONS: usize = 256;

/// Which loader started the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loader {
    /// A virtual machine monitor, straight into the image.
    Pvh,
    /// GRUB or another Multiboot2 loader, on BIOS or UEFI.
    Multiboot2,
}

impl fmt::Display for Loader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Pvh => "PVH",
            Self::Multiboot2 => "Multiboot2",
        })
    }
}

/// What a region of physical memory may be used for (ACPI 6.5, table 15.3; both loaders use these numbers).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionKind {
    /// RAM, ours.
    Usable,
    /// Firmware or device memory.
    Reserved,
    /// ACPI tables.
    AcpiTables,
    /// Firmware memory that must survive sleep.
    AcpiNvs,
    /// RAM with errors.
    Defective,
}

impl RegionKind {
    /// The kind for an address range type of ACPI; what is not known is reserved.
    pub(super) fn from_acpi(number: u32) -> Self {
        match number {
            1 => Self::Usable,
            3 => Self::AcpiTables,
            4 => Self::AcpiNvs,
            5 => Self::Defective,
            _ => Self::Reserved,
        }
    }
}

/// One entry of the memory map, as the loader gave it: neither sorted nor aligned, and it may overlap others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// What it may be used for.
    pub kind: RegionKind,
}

/// A run of bytes in physical memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Extent {
    pub(super) start: u64,
    pub(super) end: u64,
}

impl Extent {
    /// The pages that the run touches.
    pub(super) fn pages(self) -> PageRange {
        PageRange::around(self.start, self.end).expect("an extent is not empty")
    }
}

/// The command line, copied out of the loader's memory.
#[derive(Clone)]
pub(super) struct CommandLine {
    readable: ArrayString<MAX_COMMAND_LINE>,
    fault: Option<BootError>,
}

impl CommandLine {
    /// Where the loader gave none.
    pub(super) fn empty() -> Self {
        Self { readable: ArrayString::new_const(), fault: None }
    }

    /// The text in `bytes` up to the first NUL.
    pub(super) fn read(bytes: &[u8]) -> Self {
        let mut fault = None;
        let mut bytes = bytes.split(|byte| *byte == 0).next().unwrap_or_default();
        if bytes.len() > MAX_COMMAND_LINE {
            fault = Some(BootError::CommandLineTooLong);
            bytes = &bytes[..MAX_COMMAND_LINE];
        }
        let mut line = Self { readable: ArrayString::new_const(), fault };
        if let Some(chunk) = bytes.utf8_chunks().next() {
            line.readable.push_str(chunk.valid());
            if chunk.valid().len() < bytes.len() {
                line.fault = line.fault.or(Some(BootError::CommandLineNotText));
            }
        }
        line
    }

    /// The whole line.
    pub(super) fn checked(&self) -> Result<&str, BootError> {
        self.fault.map_or(Ok(&self.readable), Err)
    }

    /// What can be read from its beginning on, even if the line as a whole is refused.
    pub(super) fn readable(&self) -> &str {
        &self.readable
    }
}

/// Where the root pointer of the ACPI tables is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rsdp {
    /// At this physical address.
    At(u64),
    /// Multiboot2 gives a copy instead of the place; the structure of ACPI 2.0 is the longest.
    Copy([u8; 36]),
}

/// What the loader left. Everything but the module is copied: the loader's own memory is free RAM afterwards.
#[derive(Clone)]
pub(super) struct Handover {
    pub(super) loader: Loader,
    pub(super) command_line: CommandLine,
    pub(super) module: Option<Extent>,
    pub(super) rsdp: Option<Rsdp>,
    pub(super) regions: ArrayVec<Region, MAX_REGIONS>,
}

/// Why the boot information was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BootError {
    /// The entry was reached by neither PVH nor Multiboot2.
    UnknownLoader,
    /// The start info of PVH does not begin with its magic number.
    NoStartInfo,
    /// A structure of the loader lies outside of the first 4 GiB, or at zero.
    WildPointer(&'static str),
    /// A structure has the wrong magic number, size or version.
    Malformed(&'static str),
    /// The loader gave no memory map, or one without any RAM.
    NoMemoryMap,
    /// The memory map has more entries than anyone believes.
    TooManyRegions,
    /// The command line is longer than 4096 bytes.
    CommandLineTooLong,
    /// The command line is not UTF-8.
    CommandLineNotText,
    /// The module does not lie in RAM, or lies where something else is.
    WildModule,
}

impl fmt::Display for BootError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownLoader => {
                f.write_str("loader: neither PVH nor Multiboot2 started this image; allowed: PVH, Multiboot2")
            }
            // Seen with QEMU 7.2, whose loader copies the line into a buffer of 4096 bytes beside the start
            // info.
            Self::NoStartInfo => f.write_str(
                "start info: overwritten, maybe by a long command line; allowed: a command line of 4095 bytes",
            ),
            Self::WildPointer(what) => write!(f, "{what}: bad address; allowed: 1..4 GiB"),
            Self::Malformed(what) => write!(f, "{what}: malformed; allowed: what the boot protocol says"),
            Self::NoMemoryMap => {
                f.write_str("memory map: none, or no RAM in it; allowed: at least one RAM entry")
            }
            Self::TooManyRegions => write!(f, "memory map: too many entries; allowed: {MAX_REGIONS}"),
            Self::CommandLineTooLong => {
                write!(f, "command line: too long; allowed: {MAX_COMMAND_LINE} bytes")
            }
            Self::CommandLineNotText => f.write_str("command line: not text; allowed: UTF-8"),
            Self::WildModule => f.write_str("module: not in free RAM; allowed: any other address in RAM"),
        }
    }
}

/// Read access to physical memory while the loader's structures are taken apart.
pub(super) trait PhysicalMemory {
    /// `length` bytes at `address`; `None` where they cannot be read.
    fn bytes(&self, address: u64, length: usize) -> Option<&[u8]>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_line_ends_at_the_first_nul() {
        for bytes in [b"log=debug\0junk".as_slice(), b"log=debug"] {
            assert_eq!(CommandLine::read(bytes).checked(), Ok("log=debug"));
        }
        assert_eq!(CommandLine::read(b"").checked(), Ok(""));
        assert_eq!(CommandLine::empty().checked(), Ok(""));
    }

    #[test]
    fn of_a_bad_command_line_the_beginning_can_be_read() {
        let line = CommandLine::read(b"on-panic=exit \xff\0");
        assert_eq!(line.checked(), Err(BootError::CommandLineNotText));
        assert_eq!(line.readable(), "on-panic=exit ");

        let longest = [b'x'; MAX_COMMAND_LINE];
        assert_eq!(CommandLine::read(&longest).checked().map(str::len), Ok(MAX_COMMAND_LINE));
        let line = CommandLine::read(&[longest.as_slice(), b"y"].concat());
        assert_eq!(line.checked(), Err(BootError::CommandLineTooLong));
        assert_eq!(line.readable().len(), MAX_COMMAND_LINE);

        // The cut may fall into a character.
        let umlauts = "ä".repeat(MAX_COMMAND_LINE);
        let line = CommandLine::read(&umlauts.as_bytes()[1..]);
        assert_eq!((line.checked(), line.readable()), (Err(BootError::CommandLineTooLong), ""));
        let line = CommandLine::read(["x", &umlauts].concat().as_bytes());
        assert_eq!(line.readable().len(), MAX_COMMAND_LINE - 1);
    }
}
