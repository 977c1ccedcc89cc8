//! DMA memory that a backend can map: one file in memory, mapped as a whole.

#![allow(unsafe_code)] // Implements the platform contract over a mapping that lives as long as the process.

use std::fs::File;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Instant;

use anyhow::{Context, Result};
use netdrv::hal::{Hal, PAGE_SIZE};
use netdrv::mmio::{Register, Window};
use nix::libc::{MAP_POPULATE, MAP_SHARED, PROT_READ, PROT_WRITE};
use nix::sys::memfd::{MFdFlags, memfd_create};
use vm_memory::{FileOffset, MmapRegion};

/// Bytes of the file: for the rings and buffers of the largest set-up.
const LEN: usize = 64 << 20;

/// The platform of a driver that shares its memory with a vhost-user backend.
pub(super) struct SharedHal;

/// The file, where it is mapped, and what of it is taken.
pub(super) struct Arena {
    region: MmapRegion,
    file: Arc<File>,
    is_huge: bool,
    taken: Mutex<Taken>,
}

/// The pages from the start of the file that were ever taken, and pieces of them that came back: one set-up after the other
/// takes pieces of the same lengths.
#[derive(Default)]
struct Taken {
    pages: usize,
    returned: Vec<Piece>,
}

struct Piece {
    page: usize,
    pages: usize,
}

impl Arena {
    /// Huge pages of 2 MiB that it takes where there are as many.
    pub(super) const HUGE_PAGES: usize = LEN >> 21;

    /// The arena of this process, in huge pages, as the memory of the image is, where the system has some.
    ///
    /// # Errors
    /// When the system has no memory to share.
    pub(super) fn get() -> Result<&'static Arena> {
        static ARENA: OnceLock<Arena> = OnceLock::new();
        if let Some(arena) = ARENA.get() {
            return Ok(arena);
        }
        let arena = Arena::new(MFdFlags::MFD_HUGETLB).or_else(|_| Arena::new(MFdFlags::empty()))?;
        Ok(ARENA.get_or_init(|| arena))
    }

    fn new(pages: MFdFlags) -> Result<Arena> {
        let file = File::from(memfd_create(c"sluice", MFdFlags::MFD_CLOEXEC | pages)?);
        file.set_len(LEN as u64)?;
        let file = Arc::new(file);
        let offset = FileOffset::from_arc(file.clone(), 0);
        let region = MmapRegion::build(Some(offset), LEN, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE);
        let region = region.context("cannot map memory to share")?;
        Ok(Arena { region, file, is_huge: pages.contains(MFdFlags::MFD_HUGETLB), taken: Mutex::default() })
    }

    pub(super) fn file(&self) -> &File {
        &self.file
    }

    pub(super) fn is_huge(&self) -> bool {
        self.is_huge
    }

    /// The address of the first byte; the backend is told that it is the guest's.
    pub(super) fn address(&self) -> u64 {
        self.region.as_ptr() as u64
    }

    /// Bytes of the whole.
    pub(super) fn len(&self) -> usize {
        LEN
    }

    fn take(&self, pages: usize) -> Option<NonNull<u8>> {
        let mut taken = self.taken();
        let fitting = taken.returned.iter().position(|piece| piece.pages == pages);
        if let Some(fitting) = fitting {
            let place = self.page(taken.returned.swap_remove(fitting).page)?;
            // SAFETY: the pages lie in the mapping, and whoever had them has given them back.
            unsafe { place.write_bytes(0, pages * PAGE_SIZE) };
            return Some(place);
        }
        let page = taken.pages;
        taken.pages = page.checked_add(pages).filter(|&pages| pages <= LEN / PAGE_SIZE)?;
        self.page(page)
    }

    fn give_back(&self, base: NonNull<u8>, pages: usize) {
        let page = (base.as_ptr() as usize - self.region.as_ptr() as usize) / PAGE_SIZE;
        self.taken().returned.push(Piece { page, pages });
    }

    fn page(&self, page: usize) -> Option<NonNull<u8>> {
        NonNull::new(self.region.as_ptr().wrapping_add(page * PAGE_SIZE))
    }

    fn taken(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().expect("nobody panics while he has the list")
    }
}

// SAFETY: a fresh file is zeroed, and so is what comes back before it is handed out again; the mapping is never undone, no
// page of it is handed out to two, and the backend is told the addresses that this process uses. A register window is memory
// of the process already.
unsafe impl Hal for SharedHal {
    fn dma_allocate(pages: usize) -> Option<NonNull<u8>> {
        Arena::get().ok()?.take(pages)
    }

    unsafe fn dma_free(base: NonNull<u8>, pages: usize) {
        if let Ok(arena) = Arena::get() {
            arena.give_back(base, pages);
        }
    }

    unsafe fn map_mmio(base: u64, _len: usize) -> NonNull<u8> {
        NonNull::new(base as *mut u8).expect("a doorbell is a word of this process")
    }

    fn now_ns() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_nanos() as u64
    }
}

/// The register that a driver rings to notify: nobody looks at it, since backends here poll.
pub(super) fn silent_doorbell() -> Register<u16> {
    static WORD: AtomicU64 = AtomicU64::new(0);
    // SAFETY: a static word is a register window for as long as the program runs; it is written and never read.
    let window = unsafe { Window::map::<SharedHal>(WORD.as_ptr() as u64, size_of::<u64>()) };
    window.register(0).expect("the register lies in the word")
}
