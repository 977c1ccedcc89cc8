//! What the console says about a configuration that is refused.

use alloc::string::String;
use core::fmt::{self, Write};

/// The most characters of an offending line that are shown.
const SHOWN: usize = 200;

/// Where a setting stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Nowhere: nobody set it.
    Default,
    /// On the kernel's command line.
    CommandLine,
    /// In the first module.
    Module {
        /// The line, from 1.
        line: usize,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Default => f.write_str("default"),
            Place::CommandLine => f.write_str("command line"),
            Place::Module { line } => write!(f, "module line {line}"),
        }
    }
}

/// A setting that can't be had. Displays as two lines, what is wrong and the line that it stands in:
/// ```text
/// sluice refused: module line 2: ring: unknown value "100"; allowed: a power of two from 64 to 4096
/// ring = 100
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Refusal {
    pub(super) place: Place,
    pub(super) key: String,
    pub(super) wrong: String,
    pub(super) allowed: String,
    pub(super) line: String,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sluice refused: {}: ", self.place)?;
        write_plain(f, &self.key)?;
        writeln!(f, ": {}; allowed: {}", self.wrong, self.allowed)?;
        write_plain(f, &self.line)
    }
}

/// Writes text of unknown origin so that it stays one line and does nothing to a terminal.
fn write_plain(f: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mut chars = text.chars();
    for character in chars.by_ref().take(SHOWN) {
        match character {
            '\t' => f.write_char(' ')?,
            character if character.is_control() => write!(f, "{}", character.escape_default())?,
            character => f.write_char(character)?,
        }
    }
    if chars.next().is_some() { f.write_str("…") } else { Ok(()) }
}
