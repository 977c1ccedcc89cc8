//! The front end for drivers in the same process.
#![allow(unsafe_code)] // The card's DMA is copies to and from memory that the driver hands over by address.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::card::Card;
use crate::host::{Memory, Unmapped, Wire};
use crate::options::CardOptions;
use crate::virtual_function::{HostDriver, Policy};

/// A card in this process: a handle that can be cloned and sent to other threads.
///
/// A register access tells the card the time, so resets and links take as long as [`CardOptions`] says by the clock on
/// the wall. Frames move when [`InProcess::step`] is called, or all the time with [`InProcess::work`].
#[derive(Clone)]
pub struct InProcess {
    shared: Arc<Mutex<Shared>>,
}

struct Shared {
    card: Card,
    /// The driver of the physical function, where virtual ones are tested.
    host: Option<HostDriver>,
    memory: Ranges,
    wire: Box<dyn Wire + Send>,
    clock: Clock,
}

/// Where the time comes from.
enum Clock {
    Wall(Instant),
    Manual(Duration),
}

impl Clock {
    fn now(&self) -> Duration {
        match self {
            Clock::Wall(begin) => begin.elapsed(),
            Clock::Manual(now) => *now,
        }
    }
}

impl InProcess {
    /// Plugs in a card.
    pub fn new(options: CardOptions, wire: impl Wire + Send + 'static) -> InProcess {
        Self::with_clock(options, wire, Clock::Wall(Instant::now()))
    }

    /// Plugs in a card whose time stands still but for [`InProcess::pass`].
    pub fn with_manual_time(options: CardOptions, wire: impl Wire + Send + 'static) -> InProcess {
        Self::with_clock(options, wire, Clock::Manual(Duration::ZERO))
    }

    fn with_clock(options: CardOptions, wire: impl Wire + Send + 'static, clock: Clock) -> InProcess {
        let (card, memory) = (Card::new(options), Ranges::default());
        InProcess {
            shared: Arc::new(Mutex::new(Shared { card, host: None, memory, wire: Box::new(wire), clock })),
        }
    }

    /// Hands over memory for the card's DMA. An address for the card is the address in this process.
    ///
    /// # Safety
    /// Until the range is withdrawn, or the last clone of the handle is dropped, it has to stay allocated, and whoever
    /// accesses it has to expect a device that reads and writes at any time: no reference to any of it may be alive
    /// while the card may work on that part, except for plain data that the card only reads.
    pub unsafe fn hand_over(&self, range: Range<u64>) {
        self.lock().memory.0.push(range);
    }

    /// Takes memory back. A ring that is enabled in it is a violation; the card does not reach the memory any more.
    pub fn withdraw(&self, range: Range<u64>) {
        let mut shared = self.lock();
        shared.card.memory_withdrawn(range.clone());
        shared.memory.0.retain(|kept| kept.end <= range.start || range.end <= kept.start);
    }

    /// Reads a register: its byte offset in BAR0.
    pub fn read(&self, offset: u32) -> u32 {
        let mut shared = self.lock();
        shared.tick();
        shared.card.read(offset)
    }

    /// Writes a register: its byte offset in BAR0.
    pub fn write(&self, offset: u32, value: u32) {
        let mut shared = self.lock();
        shared.tick();
        shared.card.write(offset, value);
    }

    /// Lets the card work for a while; the number of frames that moved.
    pub fn step(&self) -> usize {
        let shared = &mut *self.lock();
        shared.tick();
        shared.card.run(&shared.memory, &mut *shared.wire)
    }

    /// Lets the card work on a thread of its own until the answer is dropped.
    pub fn work(&self) -> Working {
        let stop = Arc::new(AtomicBool::new(false));
        let (card, stopped) = (self.clone(), Arc::clone(&stop));
        let thread = thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                if card.step() == 0 {
                    thread::sleep(REST);
                }
            }
        });
        Working { stop, thread: Some(thread) }
    }

    /// Puts a driver on the physical function that gives a virtual function to each address, and answers them.
    ///
    /// It sets up the whole card: nobody else should.
    pub fn share(&self, addresses: &[[u8; 6]], policy: Policy) -> Vec<VirtualInProcess> {
        let shared = &mut *self.lock();
        shared.tick();
        shared.host = Some(HostDriver::start(&mut shared.card, addresses, policy));
        (0..addresses.len())
            .map(|function| VirtualInProcess { shared: Arc::clone(&self.shared), function })
            .collect()
    }

    /// Lets time pass, with [`InProcess::with_manual_time`].
    pub fn pass(&self, time: Duration) {
        let mut shared = self.lock();
        if let Clock::Manual(now) = &mut shared.clock {
            *now += time;
        }
        shared.tick();
    }

    /// Whatever else the card does.
    pub fn with_card<R>(&self, use_card: impl FnOnce(&mut Card) -> R) -> R {
        let mut shared = self.lock();
        shared.tick();
        use_card(&mut shared.card)
    }

    /// Whatever else the driver of the physical function does; nothing where nobody shares the card.
    pub fn with_host<R>(&self, use_host: impl FnOnce(&mut HostDriver, &mut Card) -> R) -> Option<R> {
        let shared = &mut *self.lock();
        shared.tick();
        shared.host.as_mut().map(|host| use_host(host, &mut shared.card))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        lock(&self.shared)
    }
}

/// A test that failed while it held the card leaves it in a state that is as good as any.
fn lock(shared: &Mutex<Shared>) -> MutexGuard<'_, Shared> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A virtual function of a card in this process, whose other functions are [`InProcess`]'s to work.
#[derive(Clone)]
pub struct VirtualInProcess {
    shared: Arc<Mutex<Shared>>,
    function: usize,
}

impl VirtualInProcess {
    /// Reads a register: its byte offset in the function's BAR0.
    pub fn read(&self, offset: u32) -> u32 {
        let mut shared = lock(&self.shared);
        shared.tick();
        shared.card.read_virtual(self.function, offset)
    }

    /// Writes a register: its byte offset in the function's BAR0. The host answers what is asked before this returns.
    pub fn write(&self, offset: u32, value: u32) {
        let mut shared = lock(&self.shared);
        shared.tick();
        shared.card.write_virtual(self.function, offset, value);
        shared.tick();
    }

    /// The function's interrupts that are to be sent since the last call.
    pub fn take_interrupts(&self) -> u64 {
        let mut shared = lock(&self.shared);
        shared.tick();
        shared.card.take_virtual_interrupts(self.function)
    }
}

/// How long a card that works on its own thread waits when there was nothing to do.
const REST: Duration = Duration::from_micros(20);

/// A card that works on a thread of its own; it stops when this is dropped.
pub struct Working {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Working {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It panicked if the wire did, which has been printed.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn tick(&mut self) {
        self.card.advance(self.clock.now());
        if let Some(host) = &mut self.host {
            host.serve(&mut self.card);
        }
    }
}

/// The memory that was handed over.
#[derive(Default)]
struct Ranges(Vec<Range<u64>>);

impl Ranges {
    fn check(&self, address: u64, len: usize) -> Result<(), Unmapped> {
        let end = address.checked_add(len as u64).ok_or(Unmapped { address, len })?;
        let inside = self.0.iter().any(|range| range.start <= address && end <= range.end);
        if inside { Ok(()) } else { Err(Unmapped { address, len }) }
    }
}

/// Bytes that are copied at a time.
const WORD: usize = size_of::<u64>();

impl Memory for Ranges {
    fn read(&self, address: u64, into: &mut [u8]) -> Result<(), Unmapped> {
        self.check(address, into.len())?;
        for (offset, word) in chunks(address, into.len()) {
            let from = address as usize + offset;
            if word {
                // SAFETY: the range was handed over, so it is allocated, and nobody relies on its not being read; the
                // address is aligned, as `chunks` says.
                let value = unsafe { AtomicU64::from_ptr(from as *mut u64) }.load(Ordering::Relaxed);
                into[offset..offset + WORD].copy_from_slice(&value.to_ne_bytes());
            } else {
                // SAFETY: as above; a byte is always aligned.
                into[offset] = unsafe { AtomicU8::from_ptr(from as *mut u8) }.load(Ordering::Relaxed);
            }
        }
        fence(Ordering::Acquire);
        Ok(())
    }

    fn write(&self, address: u64, from: &[u8]) -> Result<(), Unmapped> {
        self.check(address, from.len())?;
        fence(Ordering::Release);
        for (offset, word) in chunks(address, from.len()) {
            let to = address as usize + offset;
            if word {
                let value = u64::from_ne_bytes(std::array::from_fn(|byte| from[offset + byte]));
                // SAFETY: the range was handed over, so it is allocated, and whoever accesses it expects the card to
                // write; the address is aligned, as `chunks` says. Release: the last word becomes visible last.
                unsafe { AtomicU64::from_ptr(to as *mut u64) }.store(value, Ordering::Release);
            } else {
                // SAFETY: as above; a byte is always aligned.
                unsafe { AtomicU8::from_ptr(to as *mut u8) }.store(from[offset], Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// Cuts a range into aligned words and, before and after them, bytes: the offset of each, and whether it is a word.
fn chunks(address: u64, len: usize) -> impl Iterator<Item = (usize, bool)> {
    let head = (address.next_multiple_of(WORD as u64) - address) as usize;
    let head = head.min(len);
    let tail = head + (len - head) / WORD * WORD;
    (0..head)
        .map(|offset| (offset, false))
        .chain((head..tail).step_by(WORD).map(|offset| (offset, true)))
        .chain((tail..len).map(|offset| (offset, false)))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Sender, channel};

    use super::*;
    use crate::registers::*;
    use crate::strict::Rule;

    /// A cable that leads to a channel.
    struct Outgoing(Sender<Vec<u8>>);

    impl Wire for Outgoing {
        fn transmit(&mut self, _queue: u16, frame: &[u8]) {
            self.0.send(frame.to_vec()).expect("the test listens");
        }

        fn receive(&mut self, _frame: &mut Vec<u8>) -> bool {
            false
        }
    }

    /// A page: a ring of eight descriptors, and behind it a frame.
    #[repr(align(4096))]
    struct Page([AtomicU64; 512]);

    impl Page {
        const FRAME: usize = 64;

        fn address(&self, word: usize) -> u64 {
            self.0[word].as_ptr() as u64
        }
    }

    fn write(card: &InProcess, register: Register, value: u32) {
        card.write(register.offset(0), value);
    }

    #[test]
    fn a_driver_on_another_thread_is_served() {
        let (sender, sent) = channel();
        let page = Box::new(Page([const { AtomicU64::new(0) }; 512]));
        let card = InProcess::new(
            CardOptions { link_time: Duration::ZERO, ..CardOptions::default() },
            Outgoing(sender),
        );
        // SAFETY: the page outlives the card, and is accessed through its atomics only.
        unsafe { card.hand_over(page.address(0)..page.address(0) + 4096) };
        write(&card, Register::DMATXCTL, DMATXCTL_TE);
        write(&card, Register::TDBAL, page.address(0) as u32);
        write(&card, Register::TDBAH, (page.address(0) >> 32) as u32);
        write(&card, Register::TDLEN, 128);
        write(&card, Register::TXDCTL, DCTL_ENABLE);
        let working = card.work();
        for round in 0..100u64 {
            let index = round as usize % 8;
            page.0[Page::FRAME].store(round, Ordering::Relaxed);
            page.0[2 * index].store(page.address(Page::FRAME), Ordering::Relaxed);
            // An advanced descriptor of 60 bytes: EOP, IFCS, RS.
            page.0[2 * index + 1].store(60 << 46 | 0x2b << 24 | 3 << 20 | 60, Ordering::Relaxed);
            fence(Ordering::Release);
            write(&card, Register::TDT, (index as u32 + 1) % 8);
            let frame = sent.recv_timeout(Duration::from_secs(20)).expect("a frame");
            assert_eq!(frame.first_chunk(), Some(&round.to_le_bytes()));
            while page.0[2 * index + 1].load(Ordering::Acquire) != 1 << 32 {
                thread::yield_now();
            }
        }
        drop(working);
        assert_eq!(card.with_card(|card| card.violations().to_vec()), []);
        card.withdraw(page.address(0)..page.address(0) + 4096);
        assert_eq!(card.with_card(|card| card.violations()[0].rule), Rule::RingFreedWhileEnabled);
    }

    #[test]
    fn a_virtual_function_is_answered_at_once() {
        let options = CardOptions { link_time: Duration::ZERO, ..CardOptions::default() };
        let card = InProcess::with_manual_time(options, Outgoing(channel().0));
        let functions = card.share(&[[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]], Policy::default());
        let guest = functions[1].clone();
        let (memory, mailbox) = (0x200, 0x2fc);
        guest.write(0, CTRL_RST);
        guest.write(mailbox, 1 << 2);
        guest.write(memory, 1);
        guest.write(mailbox, 1 << 0);
        assert_eq!(guest.read(mailbox) & 0x30, 0x30, "an answer, and an acknowledgement");
        assert_eq!([0, 4, 8].map(|word| guest.read(memory + word)), [0x8000_0001, 2, 0x0101]);
        assert_eq!(guest.take_interrupts(), 0);
    }

    #[test]
    fn time_may_stand_still() {
        let card = InProcess::with_manual_time(CardOptions::default(), Outgoing(channel().0));
        write(&card, Register::CTRL, CTRL_RST);
        assert_ne!(card.read(Register::CTRL.offset(0)) & CTRL_RST, 0);
        card.pass(Duration::from_millis(1));
        assert_eq!(card.read(Register::CTRL.offset(0)) & CTRL_RST, 0);
    }

    #[test]
    fn a_range_is_cut_into_words_and_bytes() {
        for (address, len) in [(8, 16), (3, 20), (7, 1), (5, 2), (16, 0), (1, 64)] {
            let mut next = 0;
            for (offset, word) in chunks(address, len) {
                assert_eq!(offset, next);
                assert!(!word || (address as usize + offset).is_multiple_of(WORD));
                next += if word { WORD } else { 1 };
            }
            assert_eq!(next, len);
        }
    }

    #[test]
    fn memory_is_what_was_handed_over() {
        let words = [const { AtomicU64::new(0) }; 8];
        let start = words.as_ptr() as u64;
        let mut memory = Ranges::default();
        memory.0.push(start..start + 64);
        memory.write(start + 3, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).expect("inside");
        let mut bytes = [0; 10];
        memory.read(start + 3, &mut bytes).expect("inside");
        assert_eq!(bytes, [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]);
        for (address, len) in [(start - 1, 2), (start + 60, 5), (u64::MAX, 2)] {
            assert_eq!(memory.write(address, &vec![0; len]), Err(Unmapped { address, len }));
        }
    }
}
