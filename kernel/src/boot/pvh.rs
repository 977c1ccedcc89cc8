//! The PVH boot protocol: `struct hvm_start_info` (Xen public/arch-x86/hvm/start_info.h).

use core::mem::size_of;

use arrayvec::ArrayVec;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::handover::{
    BootError, CommandLine, Extent, Handover, Loader, MAX_COMMAND_LINE, MAX_REGIONS, PhysicalMemory, Region,
    RegionKind, Rsdp,
};

/// What `entry.S` passes for this loader, and the first word of the structure.
pub(super) const MAGIC: u32 = 0x336e_c578;

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct StartInfo {
    magic: u32,
    version: u32,
    _flags: u32,
    module_count: u32,
    modules: u64,
    command_line: u64,
    rsdp: u64,
    // From version 1 on:
    memory_map: u64,
    memory_map_entries: u32,
    _reserved: u32,
}
const _: () = assert!(size_of::<StartInfo>() == 56);

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Module {
    address: u64,
    size: u64,
    _command_line: u64,
    _reserved: u64,
}
const _: () = assert!(size_of::<Module>() == 32);

#[derive(Clone, Copy, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct MemoryMapEntry {
    address: u64,
    size: u64,
    kind: u32,
    _reserved: u32,
}
const _: () = assert!(size_of::<MemoryMapEntry>() == 24);

/// Takes the start info at `address` apart.
pub(super) fn parse(memory: &impl PhysicalMemory, address: u64) -> Result<Handover, BootError> {
    let info: StartInfo = read(memory, address, "start info")?;
    if info.magic != MAGIC {
        return Err(BootError::NoStartInfo);
    }
    Ok(Handover {
        loader: Loader::Pvh,
        command_line: match info.command_line {
            0 => CommandLine::empty(),
            address => {
                // One more than fits, so that a longer line shows.
                let bytes = memory.bytes(address, MAX_COMMAND_LINE + 1);
                CommandLine::read(bytes.ok_or(BootError::WildPointer("command line"))?)
            }
        },
        module: match info.module_count {
            0 => None,
            _ => first_module(memory, info.modules)?,
        },
        rsdp: (info.rsdp != 0).then_some(Rsdp::At(info.rsdp)),
        regions: memory_map(memory, &info)?,
    })
}

/// The first module; an empty one counts as none.
fn first_module(memory: &impl PhysicalMemory, list: u64) -> Result<Option<Extent>, BootError> {
    let module: Module = read(memory, list, "module list")?;
    let end = module.address.checked_add(module.size).ok_or(BootError::WildModule)?;
    Ok((module.size != 0).then_some(Extent { start: module.address, end }))
}

fn memory_map(
    memory: &impl PhysicalMemory,
    info: &StartInfo,
) -> Result<ArrayVec<Region, MAX_REGIONS>, BootError> {
    // Version 0 has no memory map; such a monitor wants its guest to ask the Xen hypervisor.
    if info.version == 0 || info.memory_map_entries == 0 {
        return Err(BootError::NoMemoryMap);
    }
    let count = info.memory_map_entries as usize;
    if count > MAX_REGIONS {
        return Err(BootError::TooManyRegions);
    }
    let bytes = memory
        .bytes(info.memory_map, count * size_of::<MemoryMapEntry>())
        .ok_or(BootError::WildPointer("memory map"))?;
    let entries = bytes.chunks_exact(size_of::<MemoryMapEntry>());
    Ok(entries
        .filter_map(|entry| MemoryMapEntry::read_from_bytes(entry).ok())
        .map(|entry| Region {
            start: entry.address,
            end: entry.address.saturating_add(entry.size),
            kind: RegionKind::from_acpi(entry.kind),
        })
        .collect())
}

fn read<T: FromBytes>(
    memory: &impl PhysicalMemory,
    address: u64,
    what: &'static str,
) -> Result<T, BootError> {
    let bytes = memory.bytes(address, size_of::<T>()).ok_or(BootError::WildPointer(what))?;
    T::read_from_bytes(bytes).map_err(|_| BootError::Malformed(what))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BASE: u64 = 0x1_0000;
    const MAP_AT: u64 = BASE + 0x1000;
    const MODULES_AT: u64 = BASE + 0x2000;
    const TEXT_AT: u64 = BASE + 0x3000;

    /// A few pages of RAM at [`BASE`].
    struct Ram(Vec<u8>);

    impl PhysicalMemory for Ram {
        fn bytes(&self, address: u64, length: usize) -> Option<&[u8]> {
            let start = usize::try_from(address.checked_sub(BASE)?).ok()?;
            self.0.get(start..start.checked_add(length)?)
        }
    }

    impl Ram {
        fn put(&mut self, address: u64, bytes: &[u8]) {
            let at = (address - BASE) as usize;
            self.0[at..at + bytes.len()].copy_from_slice(bytes);
        }

        fn put_words(&mut self, address: u64, words: &[u64]) {
            let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
            self.put(address, &bytes);
        }
    }

    /// What QEMU leaves: two map entries, one module, a command line.
    fn good() -> Ram {
        let mut ram = Ram(vec![0; 0x8000]);
        let header = u64::from(MAGIC) | 1 << 32;
        ram.put_words(BASE, &[header, 1 << 32, MODULES_AT, TEXT_AT, 0xf_5290, MAP_AT, 2]);
        ram.put_words(MAP_AT, &[0, 0x9_fc00, 1, 0x10_0000, 0x3f0_0000, 1]);
        ram.put_words(MODULES_AT, &[0x3ff_0000, 77, 0, 0]);
        ram.put(TEXT_AT, b"program=reflect log=debug\0");
        ram
    }

    #[test]
    fn reads_what_qemu_leaves() {
        let ram = good();
        let info = parse(&ram, BASE).unwrap();
        assert_eq!(info.loader, Loader::Pvh);
        assert_eq!(info.command_line.checked(), Ok("program=reflect log=debug"));
        assert_eq!(info.module, Some(Extent { start: 0x3ff_0000, end: 0x3ff_0000 + 77 }));
        assert_eq!(info.rsdp, Some(Rsdp::At(0xf_5290)));
        assert_eq!(
            info.regions.last(),
            Some(&Region { start: 0x10_0000, end: 0x400_0000, kind: RegionKind::Usable })
        );
    }

    #[test]
    fn takes_less() {
        let mut ram = good();
        ram.put_words(BASE + 8, &[0, 0, 0, 0]);
        let info = parse(&ram, BASE).unwrap();
        assert_eq!((info.command_line.checked(), info.module, info.rsdp), (Ok(""), None, None));
    }

    #[test]
    fn refuses_with_the_reason() {
        let refused = |change: &dyn Fn(&mut Ram)| {
            let mut ram = good();
            change(&mut ram);
            parse(&ram, BASE).err().expect("must be refused")
        };
        assert_eq!(refused(&|r| r.put_words(BASE, &[7])), BootError::NoStartInfo);
        assert_eq!(refused(&|r| r.put_words(BASE, &[u64::from(MAGIC)])), BootError::NoMemoryMap);
        assert_eq!(refused(&|r| r.put_words(BASE + 48, &[0])), BootError::NoMemoryMap);
        assert_eq!(refused(&|r| r.put_words(BASE + 48, &[257])), BootError::TooManyRegions);
        assert_eq!(refused(&|r| r.put_words(BASE + 40, &[u64::MAX])), BootError::WildPointer("memory map"));
        assert_eq!(refused(&|r| r.put_words(BASE + 24, &[1])), BootError::WildPointer("command line"));
        assert_eq!(refused(&|r| r.put_words(BASE + 16, &[1])), BootError::WildPointer("module list"));
        assert_eq!(refused(&|r| r.put_words(MODULES_AT, &[u64::MAX])), BootError::WildModule);
        assert_eq!(parse(&good(), 0).err(), Some(BootError::WildPointer("start info")));
    }

    #[test]
    fn sees_that_a_command_line_is_too_long() {
        let mut ram = good();
        ram.put(TEXT_AT, &[b'a'; MAX_COMMAND_LINE + 1]);
        let info = parse(&ram, BASE).unwrap();
        assert_eq!(info.command_line.checked(), Err(BootError::CommandLineTooLong));
    }

    proptest! {
        #[test]
        fn survives_any_start_info(
            words in prop::collection::vec(any::<u64>(), 6),
            at in BASE..BASE + 0x9000,
        ) {
            let mut ram = good();
            ram.put_words(BASE + 8, &words);
            let _ = parse(&ram, BASE);
            let _ = parse(&ram, at);
        }
    }
}
