//! The keys, and the values that each may have.

use alloc::string::String;

use crate::stack;

/// A key of the configuration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// `program=`
    Program,
    /// `workers=`
    Workers,
    /// `tx=`
    Tx,
    /// `idle=`
    Idle,
    /// `rx=`
    Rx,
    /// `stack=`
    Stack,
    /// `log=`
    Log,
    /// `on-panic=`
    OnPanic,
    /// `ring=`
    Ring,
    /// `batch=`
    Batch,
}

impl Key {
    /// Every key.
    pub const ALL: [Key; 10] = [
        Key::Program,
        Key::Workers,
        Key::Tx,
        Key::Idle,
        Key::Rx,
        Key::Stack,
        Key::Log,
        Key::OnPanic,
        Key::Ring,
        Key::Batch,
    ];

    /// As it is written.
    pub fn name(self) -> &'static str {
        match self {
            Key::Program => "program",
            Key::Workers => "workers",
            Key::Tx => "tx",
            Key::Idle => "idle",
            Key::Rx => "rx",
            Key::Stack => "stack",
            Key::Log => "log",
            Key::OnPanic => "on-panic",
            Key::Ring => "ring",
            Key::Batch => "batch",
        }
    }

    /// The values that it may have.
    pub fn allowed(self) -> &'static str {
        match self {
            Key::Program => "drop, pass, reflect, forward",
            Key::Workers => "all, or a number from 1 to 256",
            Key::Tx => "auto, dedicated, shared, shared:N with N from 1 to 256 cores a queue, borrowed",
            Key::Idle => "adaptive, poll",
            Key::Rx => "hardware, software",
            Key::Stack => stack::ALLOWED,
            Key::Log => "error, warn, info, debug, trace",
            Key::OnPanic => "reboot, exit",
            Key::Ring => "a power of two from 64 to 4096",
            Key::Batch => "a number from 1 to 64",
        }
    }

    /// The key that is written so.
    pub fn named(name: &str) -> Option<Key> {
        Key::ALL.into_iter().find(|key| key.name() == name)
    }

    /// All of them, as a refusal lists them: `program=, workers=, …`.
    pub(super) fn list() -> String {
        Key::ALL.map(|key| alloc::format!("{}=", key.name())).join(", ")
    }
}
