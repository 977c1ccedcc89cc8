//! The interrupt vectors that QEMU has connected.

use std::fs::File;
use std::io::{self, Write};

/// One eventfd a vector. QEMU keeps the vector table, its masks and its pending bits; writing to the file is the
/// message.
pub(super) struct Interrupts {
    files: Vec<Option<File>>,
}

impl Interrupts {
    pub(super) fn new(vectors: u16) -> Self {
        Self { files: (0..vectors).map(|_| None).collect() }
    }

    /// Connects the vectors from `start` on, one for each file.
    pub(super) fn connect(&mut self, start: u32, files: Vec<File>) -> io::Result<()> {
        let start = start as usize;
        let vectors = self.files.get_mut(start..start.saturating_add(files.len()));
        let vectors = vectors.ok_or_else(|| io::Error::other("there is no such vector"))?;
        for (vector, file) in vectors.iter_mut().zip(files) {
            *vector = Some(file);
        }
        Ok(())
    }

    /// Disconnects so many vectors from `start` on.
    pub(super) fn disconnect(&mut self, start: u32, count: u32) {
        let vectors = self.files.iter_mut().skip(start as usize).take(count as usize);
        vectors.for_each(|file| *file = None);
    }

    pub(super) fn disconnect_all(&mut self) {
        self.files.fill_with(|| None);
    }

    /// Sends the interrupts of this mask; those that nobody has connected are lost, as they are on a bus.
    pub(super) fn send(&mut self, mask: u64) {
        for (vector, file) in self.files.iter_mut().enumerate() {
            if mask & 1 << vector != 0
                && let Some(file) = file
            {
                // A counter that is full says all that there is to say.
                let _ = file.write(&1_u64.to_ne_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::fd::OwnedFd;

    use nix::sys::eventfd::{EfdFlags, EventFd};

    use super::*;

    fn event() -> (File, File) {
        let event = EventFd::from_flags(EfdFlags::EFD_NONBLOCK).unwrap();
        let file = File::from(OwnedFd::from(event));
        (file.try_clone().unwrap(), file)
    }

    fn rang(mut event: &File) -> bool {
        event.read(&mut [0; 8]).is_ok()
    }

    #[test]
    fn each_vector_rings_its_own_bell() {
        let mut interrupts = Interrupts::new(64);
        let ((first, first_seen), (last, last_seen)) = (event(), event());
        interrupts.connect(0, vec![first]).unwrap();
        interrupts.connect(63, vec![last]).unwrap();
        interrupts.send(1 << 63 | 1 << 5);
        assert!(!rang(&first_seen) && rang(&last_seen));
        interrupts.send(1);
        assert!(rang(&first_seen) && !rang(&last_seen));
        interrupts.disconnect(0, 1);
        interrupts.send(u64::MAX);
        assert!(!rang(&first_seen) && rang(&last_seen));
        interrupts.disconnect_all();
        interrupts.send(u64::MAX);
        assert!(!rang(&last_seen));
    }

    #[test]
    fn a_vector_that_the_card_does_not_have_is_refused() {
        assert!(Interrupts::new(64).connect(64, vec![event().0]).is_err());
        assert!(Interrupts::new(64).connect(u32::MAX, vec![event().0]).is_err());
        Interrupts::new(64).disconnect(u32::MAX, u32::MAX);
    }
}
