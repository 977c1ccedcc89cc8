//! Bare-metal library: boot, memory, cores, time, PCI, console. It knows no network card.
#![no_std]
