//! A running machine: its console, its metrics, its orderly stop.

use std::fmt;
use std::io::{PipeWriter, Write};
use std::process::{Command, ExitStatus};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempDir;

use crate::console::{self, Console};
use crate::metrics::{self, Metrics};

/// What QEMU exits with after a stop in good order: `0x10 << 1 | 1`.
pub const EXIT_STOPPED: i32 = 33;
/// What QEMU exits with after a panic or an exception of the image.
pub const EXIT_CRASHED: i32 = 35;
/// What QEMU exits with after the image refused its configuration.
pub const EXIT_REFUSED: i32 = 37;

/// How long the image may take to answer on its console, and QEMU to exit; generous, since the host may be busy.
const PATIENCE: Duration = Duration::from_secs(60);

/// A function that is called with every line of the console.
pub(crate) type LineHook = Box<dyn FnMut(&str) + Send>;

/// One line of the console.
#[derive(Clone, Debug)]
pub struct Line {
    /// When the line was complete.
    pub at: Instant,
    /// The line without its end.
    pub text: String,
}

/// The image's word that forwarding has begun.
#[derive(Clone, Copy, Debug)]
pub struct Ready {
    /// When the line arrived.
    pub at: Instant,
    /// Microseconds from the image's entry to this line, by its own clock.
    pub boot_us: u64,
    /// Cores that forward.
    pub cores: usize,
    /// Ports that forward.
    pub ports: usize,
}

/// The image's last words.
#[derive(Clone, Debug)]
pub struct StopReport {
    /// Buffers of the pool.
    pub pool: u64,
    /// Buffers that were back in the pool.
    pub home: u64,
    /// The final metrics.
    pub metrics: Metrics,
    /// What QEMU exited with: [`EXIT_STOPPED`].
    pub exit_code: Option<i32>,
}

/// A running QEMU. Dropping it kills the process.
pub struct Guest {
    console: Arc<Console>,
    input: Mutex<PipeWriter>,
    spawned: Instant,
    pid: u32,
    /// Sockets, ISO and the like that only this machine uses; removed with it.
    _scratch: TempDir,
}

impl Guest {
    pub(crate) fn spawn(
        command: Command,
        limit: Option<Duration>,
        hook: Option<LineHook>,
        scratch: TempDir,
    ) -> Result<Self> {
        let started = console::start(command, limit, hook)?;
        Ok(Self {
            console: started.console,
            input: Mutex::new(started.input),
            spawned: started.spawned,
            pid: started.pid,
            _scratch: scratch,
        })
    }

    /// When QEMU was spawned.
    pub fn spawned(&self) -> Instant {
        self.spawned
    }

    /// QEMU's process.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Everything that the console has said so far, QEMU's own complaints included.
    pub fn lines(&self) -> Vec<Line> {
        self.console.lines_from(0)
    }

    /// The console so far as one text.
    pub fn log(&self) -> String {
        self.lines().iter().map(|line| format!("{}\n", line.text)).collect()
    }

    /// The console's last lines, for the message of an error.
    pub fn tail(&self) -> String {
        self.console.tail()
    }

    /// Waits for the first line, of those that came already and those that will come, that `wanted` accepts.
    ///
    /// # Errors
    /// When QEMU ends, or the time is over, without such a line; the message ends with the console's last lines.
    pub fn wait_for_line(&self, wanted: impl FnMut(&str) -> bool, timeout: Duration) -> Result<Line> {
        self.console.wait_for_line(0, wanted, timeout).map(|(_, line)| line)
    }

    /// Waits until forwarding has begun.
    ///
    /// # Errors
    /// When it does not begin in time; when the image refuses its configuration or crashes, with that reason.
    pub fn wait_ready(&self, timeout: Duration) -> Result<Ready> {
        let decisive = |text: &str| text.starts_with("sluice ready ") || text.starts_with("sluice refused: ");
        let line = self.wait_for_line(decisive, timeout).context("the image did not get ready")?;
        ensure!(!line.text.starts_with("sluice refused"), "{}", line.text);
        let number = |key| field(&line.text, key).with_context(|| format!("no {key}= in \"{}\"", line.text));
        Ok(Ready {
            at: line.at,
            boot_us: number("boot_us")?,
            cores: number("cores")? as usize,
            ports: number("ports")? as usize,
        })
    }

    /// Types a line on the console.
    ///
    /// # Errors
    /// When QEMU has gone.
    pub fn send_command(&self, command: &str) -> Result<()> {
        let mut input = self.input.lock().expect("no thread panics while it types");
        writeln!(input, "{command}").context("QEMU does not read its console any more")
    }

    /// Asks the image for its metrics.
    ///
    /// # Errors
    /// When no answer comes, or one that is not OpenMetrics.
    pub fn metrics(&self) -> Result<Metrics> {
        let from = self.console.line_count();
        self.send_command("metrics")?;
        self.exposition(from)
    }

    /// Ends forwarding in good order and waits until QEMU has exited.
    ///
    /// # Errors
    /// When the image does not stop, or does not exit.
    pub fn stop(&self) -> Result<StopReport> {
        let from = self.console.line_count();
        self.send_command("stop")?;
        let metrics = self.exposition(from)?;
        let stopped = |text: &str| text.starts_with("sluice stopped ");
        let (_, line) =
            self.console.wait_for_line(from, stopped, PATIENCE).context("the image did not stop")?;
        let number = |key| field(&line.text, key).with_context(|| format!("no {key}= in \"{}\"", line.text));
        let (pool, home) = (number("pool")?, number("home")?);
        // Without `on-panic=exit` the image sleeps now: it has said all that it had to say.
        let exit_code = self.wait_exit(PATIENCE).ok().flatten();
        Ok(StopReport { pool, home, metrics, exit_code })
    }

    /// Waits until QEMU has exited; returns its exit code, `None` when a signal ended it.
    ///
    /// # Errors
    /// When it still runs when the time is over.
    pub fn wait_exit(&self, timeout: Duration) -> Result<Option<i32>> {
        match self.console.wait_for_exit(timeout) {
            Some(status) => Ok(status.code()),
            None => bail!("QEMU still runs after {timeout:?}; {}", self.console.tail()),
        }
    }

    /// How QEMU ended, if it has.
    pub fn exited(&self) -> Option<ExitStatus> {
        self.console.wait_for_exit(Duration::ZERO)
    }

    /// Kills QEMU and waits for its end.
    pub fn kill(&self) {
        self.console.kill();
        self.console.wait_for_exit(PATIENCE);
    }

    /// The first whole exposition behind line `from`.
    fn exposition(&self, from: usize) -> Result<Metrics> {
        let end = |text: &str| text == metrics::END;
        let (end, _) =
            self.console.wait_for_line(from, end, PATIENCE).context("the image gave no metrics")?;
        let lines = self.console.lines_from(from);
        // Log lines of other cores may stand between the samples; they begin with a bracketed time.
        let text: String = lines[..=end - from]
            .iter()
            .filter(|line| line.text.starts_with("sluice_") || line.text.starts_with('#'))
            .map(|line| format!("{}\n", line.text))
            .collect();
        Metrics::parse(&text)
    }
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.kill();
    }
}

impl fmt::Debug for Guest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guest").field("pid", &self.pid).finish_non_exhaustive()
    }
}

/// The number behind `key=` in an event line.
fn field(line: &str, key: &str) -> Option<u64> {
    line.split_whitespace().find_map(|word| word.strip_prefix(key)?.strip_prefix('=')?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let line = "sluice ready boot_us=12345 cores=2 ports=x";
        assert_eq!(field(line, "boot_us"), Some(12345));
        assert_eq!(field(line, "cores"), Some(2));
        assert_eq!(field(line, "us"), None);
        assert_eq!(field(line, "ports"), None);
    }
}
