//! The Multiboot2 boot information (specification 2.0, section 3.6): a list of tags.

use arrayvec::ArrayVec;

use super::handover::{
    BootError, CommandLine, Extent, Handover, Loader, MAX_REGIONS, PhysicalMemory, Region, RegionKind, Rsdp,
};

/// What the loader leaves in EAX (section 3.3).
pub(super) const MAGIC: u32 = 0x36d7_6289;

/// Largest information block that is believed. GRUB's are 1 to 20 KiB, most of it the UEFI memory map.
const MAX_BLOCK: usize = 1 << 20;
/// The block starts with its total size and a reserved word; a tag with its type and its size. Tags are
/// padded to this length too (sections 3.6.1, 3.6.2).
const HEADER: usize = 8;

/// Tag types (sections 3.6.3 to 3.6.17).
mod tag {
    pub(super) const END: u32 = 0;
    pub(super) const COMMAND_LINE: u32 = 1;
    pub(super) const MODULE: u32 = 3;
    pub(super) const MEMORY_MAP: u32 = 6;
    pub(super) const ACPI_1_RSDP: u32 = 14;
    pub(super) const ACPI_2_RSDP: u32 = 15;
}

/// Takes the information block at `address` apart.
pub(super) fn parse(memory: &impl PhysicalMemory, address: u64) -> Result<Handover, BootError> {
    let mut handover = Handover {
        loader: Loader::Multiboot2,
        command_line: CommandLine::empty(),
        module: None,
        rsdp: None,
        regions: ArrayVec::new(),
    };
    let mut tags = Tags { rest: block(memory, address)? };
    loop {
        match tags.next()? {
            (tag::END, _) => break,
            (tag::COMMAND_LINE, body) => handover.command_line = CommandLine::read(body),
            (tag::MODULE, body) if handover.module.is_none() => handover.module = module(body)?,
            (tag::MEMORY_MAP, body) => handover.regions = memory_map(body)?,
            // The newer root pointer has 64-bit addresses in it: it wins, whichever comes first.
            (tag::ACPI_2_RSDP, body) => handover.rsdp = Some(rsdp(body)),
            (tag::ACPI_1_RSDP, body) if handover.rsdp.is_none() => handover.rsdp = Some(rsdp(body)),
            _ => {}
        }
    }
    if handover.regions.is_empty() { Err(BootError::NoMemoryMap) } else { Ok(handover) }
}

/// The tags of the block at `address`.
fn block(memory: &impl PhysicalMemory, address: u64) -> Result<&[u8], BootError> {
    const WHAT: &str = "boot information";
    let header = memory.bytes(address, HEADER).ok_or(BootError::WildPointer(WHAT))?;
    let size = u32_at(header, 0).ok_or(BootError::Malformed(WHAT))? as usize;
    if !(2 * HEADER..=MAX_BLOCK).contains(&size) {
        return Err(BootError::Malformed(WHAT));
    }
    Ok(&memory.bytes(address, size).ok_or(BootError::WildPointer(WHAT))?[HEADER..])
}

/// Walks over tags: type and body of each.
struct Tags<'a> {
    rest: &'a [u8],
}

impl<'a> Tags<'a> {
    /// The next tag. The list ends with an end tag, so running out of bytes is an error.
    fn next(&mut self) -> Result<(u32, &'a [u8]), BootError> {
        const WHAT: BootError = BootError::Malformed("boot information");
        let kind = u32_at(self.rest, 0).ok_or(WHAT)?;
        let size = u32_at(self.rest, 4).ok_or(WHAT)? as usize;
        let body = self.rest.get(HEADER..size).ok_or(WHAT)?;
        // The last tag may lack its padding.
        self.rest = self.rest.get(size.next_multiple_of(HEADER)..).unwrap_or_default();
        Ok((kind, body))
    }
}

/// The root pointer of ACPI 1.0 has 20 bytes, that of ACPI 2.0 has 36.
fn rsdp(body: &[u8]) -> Rsdp {
    let mut copy = [0; 36];
    let length = body.len().min(copy.len());
    copy[..length].copy_from_slice(&body[..length]);
    Rsdp::Copy(copy)
}

/// Section 3.6.6: first and last address, then a string. An empty module counts as none.
fn module(body: &[u8]) -> Result<Option<Extent>, BootError> {
    let (Some(start), Some(end)) = (u32_at(body, 0), u32_at(body, 4)) else {
        return Err(BootError::Malformed("module"));
    };
    if end < start {
        return Err(BootError::WildModule);
    }
    Ok((start < end).then_some(Extent { start: start.into(), end: end.into() }))
}

/// Section 3.6.8: entry size and version, then entries of 64-bit base, 64-bit length, type.
fn memory_map(body: &[u8]) -> Result<ArrayVec<Region, MAX_REGIONS>, BootError> {
    const WHAT: BootError = BootError::Malformed("memory map");
    const MIN_ENTRY: usize = 24;
    let entry_size = u32_at(body, 0).ok_or(WHAT)? as usize;
    let entries = body.get(8..).ok_or(WHAT)?;
    if entry_size < MIN_ENTRY || !entries.len().is_multiple_of(entry_size) {
        return Err(WHAT);
    }
    let mut regions = ArrayVec::new();
    for entry in entries.chunks_exact(entry_size) {
        let (Some(start), Some(length), Some(kind)) = (u64_at(entry, 0), u64_at(entry, 8), u32_at(entry, 16))
        else {
            return Err(WHAT);
        };
        let region = Region { start, end: start.saturating_add(length), kind: RegionKind::from_acpi(kind) };
        regions.try_push(region).map_err(|_| BootError::TooManyRegions)?;
    }
    Ok(regions)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use multiboot2::{
        CommandLineTag, MaybeDynSized, MemoryArea, MemoryAreaType, MemoryMapTag, ModuleTag, RsdpV1Tag,
        RsdpV2Tag,
    };
    use proptest::prelude::*;

    const AT: u64 = 0x10_0038;

    /// The information block, and nothing else, at [`AT`].
    struct Block(Vec<u8>);

    impl PhysicalMemory for Block {
        fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
            let start = usize::try_from(address.checked_sub(AT)?).ok()?;
            self.0.get(start..start.checked_add(length)?)
        }
    }

    /// A block as the `multiboot2` crate builds it.
    fn built(command_line: &str, areas: &[MemoryArea]) -> Block {
        let block = multiboot2::Builder::new()
            .cmdline(CommandLineTag::new(command_line))
            .add_module(ModuleTag::new(0x20_0000, 0x20_0040, "config"))
            .add_module(ModuleTag::new(0x30_0000, 0x30_0040, "other"))
            .mmap(MemoryMapTag::new(areas))
            .rsdpv1(RsdpV1Tag::new(*b"BOCHS ", 0, 0x7fe_0000))
            .rsdpv2(RsdpV2Tag::new(*b"BOCHS ", 2, 0x7fe_0000, 36, 0x7fe_1000))
            .build();
        Block(block.as_bytes().to_vec())
    }

    fn areas() -> [MemoryArea; 2] {
        [
            MemoryArea::new(0x10_0000, 0x3f0_0000, MemoryAreaType::Available),
            MemoryArea::new(0x7fe_0000, 0x2_0000, MemoryAreaType::AcpiAvailable),
        ]
    }

    #[test]
    fn reads_a_block_that_another_crate_built() {
        let block = built("program=forward", &areas());
        let info = parse(&block, AT).unwrap();
        assert_eq!(info.loader, Loader::Multiboot2);
        assert_eq!(info.command_line.checked(), Ok("program=forward"));
        assert_eq!(info.module, Some(Extent { start: 0x20_0000, end: 0x20_0040 }));
        assert!(
            matches!(info.rsdp, Some(Rsdp::Copy(rsdp)) if rsdp.starts_with(b"RSD PTR ") && rsdp[15] == 2)
        );
        assert_eq!(
            info.regions.as_slice(),
            [
                Region { start: 0x10_0000, end: 0x400_0000, kind: RegionKind::Usable },
                Region { start: 0x7fe_0000, end: 0x800_0000, kind: RegionKind::AcpiTables },
            ]
        );
    }

    #[test]
    fn refuses_with_the_reason() {
        let good = built("x", &areas());
        assert_eq!(parse(&good, AT - 1).err(), Some(BootError::WildPointer("boot information")));
        let sized = |size: u32| Block([&size.to_le_bytes(), &good.0[4..]].concat());
        assert_eq!(parse(&sized(8), AT).err(), Some(BootError::Malformed("boot information")));
        assert_eq!(parse(&sized(u32::MAX), AT).err(), Some(BootError::Malformed("boot information")));
        assert_eq!(parse(&sized(0x8000), AT).err(), Some(BootError::WildPointer("boot information")));
        let without_end = good.0.len() as u32 - 8;
        assert_eq!(parse(&sized(without_end), AT).err(), Some(BootError::Malformed("boot information")));
        assert_eq!(parse(&built("", &[]), AT).err(), Some(BootError::NoMemoryMap));
        let many = vec![areas()[0]; MAX_REGIONS + 1];
        assert_eq!(parse(&built("", &many), AT).err(), Some(BootError::TooManyRegions));
        assert_eq!(module(&[0, 0, 0, 2, 0, 0, 0, 1]), Err(BootError::WildModule));
    }

    proptest! {
        #[test]
        fn survives_any_damage(at in 0..400_usize, value in any::<[u8; 8]>()) {
            let mut block = built("program=drop", &areas());
            let at = at % (block.0.len() - 8);
            block.0[at..at + 8].copy_from_slice(&value);
            let _ = parse(&block, AT);
        }
    }
}
