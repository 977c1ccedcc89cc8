//! The settings: words `key=value` of the kernel's command line, and a TOML file with the same keys as first module.
//!
//! The command line wins. Nothing is guessed: a word that is not known, or a value that does not parse, is a
//! [`Refusal`], and the image does not forward with half a configuration.

mod key;
mod module;
mod refusal;
mod value;

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

use log::LevelFilter;

pub use key::Key;
pub use refusal::{Place, Refusal};

use crate::idle::IdleMode;
use crate::programs::Program;
use crate::stack::{self, StackError, StackSetting};
use crate::steer::RxMode;
use crate::txmap::{PlanError, Wish};
use crate::verdict::PortId;

/// The longest command line that is read, in bytes: as long as Linux takes.
pub const MAX_COMMAND_LINE: usize = 2048;
/// The longest module that is read, in bytes.
pub const MAX_MODULE: usize = 64 * 1024;

/// How many cores forward (`workers=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Workers {
    /// As many as there are.
    All,
    /// This many, from core 0 on.
    Count(usize),
}

/// What follows a panic (`on-panic=`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnPanic {
    /// The machine starts again.
    Reboot,
    /// The machine ends, or halts where it can't.
    Exit,
}

/// What the image does.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The verdict program.
    pub program: Program,
    /// How many cores forward.
    pub workers: Workers,
    /// How workers reach TX queues.
    pub tx: Wish,
    /// The least important log lines that are printed.
    pub log: LevelFilter,
    /// What follows a panic.
    pub on_panic: OnPanic,
    /// Descriptors in a ring: a power of two from 64 to 4096.
    pub ring: usize,
    /// Packets that are received at a time, 1 to 64.
    pub batch: usize,
    /// What workers do when there is nothing to do.
    pub idle: IdleMode,
    /// Who spreads flows over the workers.
    pub rx: RxMode,
    /// The addresses of the local stacks.
    pub stack: StackSetting,
    origins: Vec<Setting>,
}

/// A configuration that was refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refused {
    /// The first thing that is wrong.
    pub refusal: Refusal,
    /// What `on-panic=` says nevertheless: the stop honours it.
    pub on_panic: OnPanic,
}

/// What a text sets, and the refusal of the first part of it that sets nothing.
type Settings = (Vec<Setting>, Option<Refusal>);

/// A key and a value as somebody wrote them.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Setting {
    key: String,
    value: String,
    place: Place,
    /// The whole line that it stands in.
    line: String,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            program: Program::Forward,
            workers: Workers::All,
            tx: Wish::Auto,
            log: LevelFilter::Info,
            on_panic: OnPanic::Reboot,
            ring: 256,
            batch: 32,
            idle: IdleMode::Adaptive,
            rx: RxMode::Hardware,
            stack: StackSetting::default(),
            origins: Vec::new(),
        }
    }
}

impl Config {
    /// Reads the command line and the first module, where there is one.
    pub fn read(command_line: &str, module: Option<&[u8]>) -> Result<Config, Refused> {
        let mut config = Config::default();
        let of_module = module.map_or(Ok(()), |text| config.read_module(text));
        // The command line is read in any case: it may say what the stop should do.
        let of_command_line = config.read_command_line(command_line);
        match of_command_line.and(of_module) {
            Ok(()) => Ok(config),
            Err(refusal) => Err(Refused { refusal, on_panic: config.on_panic }),
        }
    }

    /// How many of `cores` cores forward.
    pub fn worker_count(&self, cores: usize) -> Result<usize, Refusal> {
        match self.workers {
            Workers::All => Ok(cores),
            Workers::Count(count) if count <= cores => Ok(count),
            Workers::Count(count) => {
                let wrong = format!("{count} workers and {cores} cores");
                Err(self.refuse(Key::Workers, wrong, format!("all, or 1 to {cores}")))
            }
        }
    }

    /// The refusal of `tx=` where `port`'s queues can't meet it.
    pub(crate) fn refuse_tx(&self, port: PortId, error: PlanError) -> Refusal {
        let allowed = match error {
            PlanError::TooFewQueues { queues: 1.., .. } => "auto, shared, borrowed, or fewer workers",
            PlanError::TooFewQueues { .. } | PlanError::NoQueue => "auto",
        };
        self.refuse(Key::Tx, format!("port {port}: {error}"), allowed.to_string())
    }

    /// The refusal of `stack=` where a stack can't be had.
    pub(crate) fn refuse_stack(&self, port: PortId, wrong: impl fmt::Display) -> Refusal {
        self.refuse(Key::Stack, format!("port {port}: {wrong}"), stack::ALLOWED.to_string())
    }

    fn refuse(&self, key: Key, wrong: String, allowed: String) -> Refusal {
        let setting = self.origins.iter().rev().find(|setting| setting.key == key.name());
        let (place, line) = match setting {
            Some(setting) => (setting.place, setting.line.clone()),
            None => (Place::Default, String::new()),
        };
        Refusal { place, key: key.name().to_string(), wrong, allowed, line }
    }

    fn read_module(&mut self, text: &[u8]) -> Result<(), Refusal> {
        self.apply(module::settings(text))
    }

    fn read_command_line(&mut self, line: &str) -> Result<(), Refusal> {
        if line.len() > MAX_COMMAND_LINE {
            let wrong = format!("{} bytes are too many", line.len());
            return Err(refusal_of_line(line, "length", wrong, format!("{MAX_COMMAND_LINE} bytes")));
        }
        self.apply(split_words(line))
    }

    /// Applies every setting that can be, and returns the first refusal.
    fn apply(&mut self, (settings, bad): Settings) -> Result<(), Refusal> {
        let mut result = bad.map_or(Ok(()), Err);
        for (index, setting) in settings.iter().enumerate() {
            let twice = settings[..index].iter().any(|earlier| earlier.key == setting.key);
            let applied = if twice { Err(setting.refuse_twice()) } else { self.apply_one(setting) };
            result = result.and(applied);
        }
        self.origins.extend(settings);
        result
    }

    fn apply_one(&mut self, setting: &Setting) -> Result<(), Refusal> {
        let key = Key::named(&setting.key).ok_or_else(|| setting.refuse_key())?;
        let value = setting.value.as_str();
        let applied = match key {
            Key::Program => value::program(value).map(|program| self.program = program),
            Key::Workers => value::workers(value).map(|workers| self.workers = workers),
            Key::Tx => value::tx(value).map(|wish| self.tx = wish),
            Key::Idle => value::idle(value).map(|idle| self.idle = idle),
            Key::Rx => value::rx(value).map(|rx| self.rx = rx),
            Key::Stack => {
                self.stack = stack::parse(value).map_err(|error| setting.refuse_stack(&error))?;
                Ok(())
            }
            Key::Log => value::log(value).map(|level| self.log = level),
            Key::OnPanic => value::on_panic(value).map(|on_panic| self.on_panic = on_panic),
            Key::Ring => value::ring(value).map(|ring| self.ring = ring),
            Key::Batch => value::batch(value).map(|batch| self.batch = batch),
        };
        applied.map_err(|value::Unparsable| setting.refuse_value(key))
    }
}

/// The words of a command line, and the refusal of the first that is not `key=value`. Spaces and tabs separate words;
/// there is no quoting.
fn split_words(line: &str) -> Settings {
    let mut settings = Vec::new();
    let mut bad = None;
    for word in line.split([' ', '\t', '\r', '\n', '\0']).filter(|word| !word.is_empty()) {
        match word.split_once('=') {
            Some((key, value)) => settings.push(Setting {
                key: key.to_string(),
                value: value.to_string(),
                place: Place::CommandLine,
                line: line.to_string(),
            }),
            None => {
                bad.get_or_insert_with(|| {
                    refusal_of_line(line, word, "not of the form key=value".to_string(), Key::list())
                });
            }
        }
    }
    (settings, bad)
}

fn refusal_of_line(line: &str, key: &str, wrong: String, allowed: String) -> Refusal {
    Refusal { place: Place::CommandLine, key: key.to_string(), wrong, allowed, line: line.to_string() }
}

impl Setting {
    fn refuse(&self, wrong: String, allowed: String) -> Refusal {
        Refusal { place: self.place, key: self.key.clone(), wrong, allowed, line: self.line.clone() }
    }

    fn refuse_key(&self) -> Refusal {
        self.refuse("unknown key".to_string(), Key::list())
    }

    fn refuse_twice(&self) -> Refusal {
        self.refuse("given twice".to_string(), "each key once".to_string())
    }

    fn refuse_stack(&self, error: &StackError) -> Refusal {
        self.refuse(error.to_string(), stack::ALLOWED.to_string())
    }

    fn refuse_value(&self, key: Key) -> Refusal {
        self.refuse(format!("unknown value {:?}", self.value), key.allowed().to_string())
    }
}

#[cfg(test)]
mod tests;
