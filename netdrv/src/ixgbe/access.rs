//! What a register is to a driver: a row with a name, an offset and one kind of access.

use core::iter;
use core::marker::PhantomData;

use crate::mmio::Bar;

/// Bytes of registers that the driver uses, from the start of BAR 0 (8.2.2): every row lies below.
pub(super) const WINDOW_LEN: usize = 0x2_0000;

/// Where a register is, and its name in the datasheet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) name: &'static str,
    pub(super) offset: u32,
}

impl Place {
    const fn new(name: &'static str, offset: u32) -> Place {
        assert!(offset.is_multiple_of(4), "registers are words");
        assert!((offset as usize) < WINDOW_LEN, "the register lies outside of the window");
        Place { name, offset }
    }
}

/// A register that says the same when it is read twice.
pub(super) trait Readable {
    fn place(&self) -> Place;

    fn read(&self, bar: &impl Bar) -> u32 {
        bar.read(self.place().offset)
    }
}

macro_rules! access {
    ($(#[$doc:meta])* $kind:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        pub(super) struct $kind(Place);

        impl $kind {
            pub(super) const fn at(name: &'static str, offset: u32) -> $kind {
                $kind(Place::new(name, offset))
            }
        }

        impl From<Place> for $kind {
            #[inline(always)]
            fn from(place: Place) -> $kind {
                $kind(place)
            }
        }
    };
}

access! {
    /// Read by the driver, written by the device.
    ReadOnly
}
access! {
    /// Read and written by the driver.
    ReadWrite
}
access! {
    /// Written by the driver; what a read gives means nothing.
    WriteOnly
}
access! {
    /// A counter that starts over whenever it is read. It has no `read`: whoever takes its value has to keep it.
    ClearOnRead
}

access! {
    /// Flags of the device, some of which are gone once they are read, and commands to it. Whoever takes the flags has to keep
    /// them.
    FlagsAndCommands
}

impl Readable for ReadOnly {
    fn place(&self) -> Place {
        self.0
    }
}

impl Readable for ReadWrite {
    fn place(&self) -> Place {
        self.0
    }
}

impl ReadWrite {
    #[inline(always)]
    pub(super) fn write(&self, bar: &impl Bar, value: u32) {
        bar.write(self.0.offset, value);
    }

    /// Sets `bits` and leaves the others.
    pub(super) fn set(&self, bar: &impl Bar, bits: u32) {
        self.write(bar, self.read(bar) | bits);
    }

    /// Clears `bits` and leaves the others.
    pub(super) fn clear(&self, bar: &impl Bar, bits: u32) {
        self.write(bar, self.read(bar) & !bits);
    }

    /// Gives the bits under `mask` the value `bits` and leaves the others.
    pub(super) fn replace(&self, bar: &impl Bar, mask: u32, bits: u32) {
        self.write(bar, self.read(bar) & !mask | bits);
    }
}

impl WriteOnly {
    #[inline(always)]
    pub(super) fn write(&self, bar: &impl Bar, value: u32) {
        bar.write(self.0.offset, value);
    }
}

impl FlagsAndCommands {
    pub(super) fn take(&self, bar: &impl Bar) -> u32 {
        bar.read(self.0.offset)
    }

    pub(super) fn command(&self, bar: &impl Bar, command: u32) {
        bar.write(self.0.offset, command);
    }
}

impl ClearOnRead {
    pub(super) fn take(&self, bar: &impl Bar) -> u32 {
        bar.read(self.0.offset)
    }
}

/// Bytes as registers take them, four in each.
pub(super) fn in_fours(mut bytes: impl Iterator<Item = u8>) -> impl Iterator<Item = u32> {
    iter::from_fn(move || {
        Some(u32::from_le_bytes([bytes.next()?, bytes.next()?, bytes.next()?, bytes.next()?]))
    })
}

/// Equal registers at equal distances.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rows<A> {
    first: Place,
    step: u32,
    count: usize,
    _access: PhantomData<A>,
}

impl<A: From<Place>> Rows<A> {
    pub(super) const fn at(name: &'static str, offset: u32, step: u32, count: usize) -> Rows<A> {
        assert!(step.is_multiple_of(4), "registers are words");
        let _last = Place::new(name, offset + step * (count as u32 - 1));
        Rows { first: Place::new(name, offset), step, count, _access: PhantomData }
    }

    /// The register of `index`.
    ///
    /// # Panics
    /// Where there are fewer: a mistake of the driver, whose indices come from its own counts.
    #[inline(always)]
    pub(super) fn row(&self, index: usize) -> A {
        assert!(index < self.count, "{} has no row {index}", self.first.name);
        Place { name: self.first.name, offset: self.first.offset + self.step * index as u32 }.into()
    }

    /// All of them.
    pub(super) fn all(self) -> impl Iterator<Item = A> {
        (0..self.count).map(move |index| self.row(index))
    }
}
