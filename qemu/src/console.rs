//! The process of a guest and what it writes: one thread reads, one watches the clock.

use std::io::{BufRead, BufReader, PipeReader, PipeWriter};
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{self, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use anstream::adapter::strip_str;
use anyhow::{Context, Result, bail};

use crate::guest::{Line, LineHook};
use crate::process;

/// How many of the console's last lines an error quotes.
const QUOTED_LINES: usize = 12;
/// How often an ending process is asked whether it has ended.
const EXIT_POLL: Duration = Duration::from_millis(1);

/// A QEMU that has just been started.
pub(crate) struct Started {
    pub(crate) console: Arc<Console>,
    pub(crate) input: PipeWriter,
    pub(crate) spawned: Instant,
    pub(crate) pid: u32,
}

/// What is known of a running QEMU; shared by its readers and its threads.
pub(crate) struct Console {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    child: Child,
    lines: Vec<Line>,
    exit: Option<ExitStatus>,
    timed_out: Option<Duration>,
}

/// Starts the command; its output, and its complaints among it, are collected line by line.
pub(crate) fn start(
    mut command: Command,
    limit: Option<Duration>,
    hook: Option<LineHook>,
) -> Result<Started> {
    let (stdin, input) = std::io::pipe()?;
    let (output, stdout) = std::io::pipe()?;
    let stderr = stdout.try_clone()?;
    command.stdin(stdin).stdout(stdout).stderr(stderr);
    process::die_with_parent(&mut command);
    let (sender, receiver) = mpsc::sync_channel(1);
    thread::Builder::new().name("console".into()).spawn(move || run(command, output, hook, &sender))?;
    let (console, spawned, pid) = receiver.recv()??;
    if let Some(limit) = limit {
        let watched = Arc::clone(&console);
        thread::Builder::new().name("watchdog".into()).spawn(move || watched.watch(limit))?;
    }
    Ok(Started { console, input, spawned, pid })
}

/// Spawns the child and stays with it to its end: the child dies with this thread, never before.
fn run(
    mut command: Command,
    output: PipeReader,
    hook: Option<LineHook>,
    started: &SyncSender<Result<(Arc<Console>, Instant, u32)>>,
) {
    let spawned = Instant::now();
    let child = command.spawn().context("cannot run QEMU");
    // The command holds the writing ends of the pipes: without them the output ends when the child does.
    drop(command);
    let child = match child {
        Ok(child) => child,
        Err(error) => return drop(started.send(Err(error))),
    };
    let pid = child.id();
    let state = State { child, lines: Vec::new(), exit: None, timed_out: None };
    let console = Arc::new(Console { state: Mutex::new(state), changed: Condvar::new() });
    if started.send(Ok((Arc::clone(&console), spawned, pid))).is_ok() {
        console.collect(output, hook);
    } else {
        console.kill();
    }
    console.reap();
}

impl Console {
    /// Reads lines until the output ends.
    fn collect(&self, output: PipeReader, mut hook: Option<LineHook>) {
        let mut output = BufReader::new(output);
        let mut bytes = Vec::new();
        while output.read_until(b'\n', &mut bytes).is_ok_and(|length| length > 0) {
            let text = readable(&bytes);
            if let Some(hook) = &mut hook {
                hook(&text);
            }
            self.lock().lines.push(Line { at: Instant::now(), text });
            self.changed.notify_all();
            bytes.clear();
        }
    }

    /// Takes the exit status of a child whose output has ended.
    fn reap(&self) {
        loop {
            let mut state = self.lock();
            if let Ok(Some(status)) = state.child.try_wait() {
                state.exit = Some(status);
                self.changed.notify_all();
                return;
            }
            drop(state);
            thread::sleep(EXIT_POLL);
        }
    }

    /// Kills the child when it has not ended in time.
    fn watch(&self, limit: Duration) {
        if self.wait_for_exit(limit).is_none() {
            self.lock().timed_out = Some(limit);
            self.kill();
        }
    }

    pub(crate) fn kill(&self) {
        let mut state = self.lock();
        if state.exit.is_none() {
            // The only error is that the child has ended by itself.
            let _ = state.child.kill();
        }
    }

    pub(crate) fn wait_for_exit(&self, timeout: Duration) -> Option<ExitStatus> {
        let state = self.lock();
        self.changed
            .wait_timeout_while(state, timeout, |state| state.exit.is_none())
            .expect(UNPOISONED)
            .0
            .exit
    }

    /// The first line behind `from` that `wanted` accepts, and its number.
    pub(crate) fn wait_for_line(
        &self,
        from: usize,
        mut wanted: impl FnMut(&str) -> bool,
        timeout: Duration,
    ) -> Result<(usize, Line)> {
        let deadline = Instant::now() + timeout;
        let mut next = from;
        let mut state = self.lock();
        loop {
            while let Some(line) = state.lines.get(next) {
                if wanted(&line.text) {
                    return Ok((next, line.clone()));
                }
                next += 1;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if state.exit.is_some() || left.is_zero() {
                let reason = state.ending().unwrap_or_else(|| format!("nothing after {timeout:?}"));
                bail!("{reason}; {}", state.tail());
            }
            state = self.changed.wait_timeout(state, left).expect(UNPOISONED).0;
        }
    }

    pub(crate) fn line_count(&self) -> usize {
        self.lock().lines.len()
    }

    pub(crate) fn lines_from(&self, from: usize) -> Vec<Line> {
        self.lock().lines.get(from..).unwrap_or_default().to_vec()
    }

    pub(crate) fn tail(&self) -> String {
        self.lock().tail()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect(UNPOISONED)
    }
}

/// A line without its end, and without the escape sequences by which GRUB and firmware clear a screen.
fn readable(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    strip_str(text.trim_end_matches(['\r', '\n'])).to_string()
}

const UNPOISONED: &str = "no thread panics while it holds the console";

impl State {
    /// Why there will be no more lines.
    fn ending(&self) -> Option<String> {
        let status = self.exit?;
        Some(match self.timed_out {
            Some(limit) => format!("QEMU was ended by its time limit of {limit:?}"),
            None => format!("QEMU ended ({status})"),
        })
    }

    fn tail(&self) -> String {
        if self.lines.is_empty() {
            return "the console is empty".into();
        }
        let first = self.lines.len().saturating_sub(QUOTED_LINES);
        let quoted: String = self.lines[first..].iter().map(|line| format!("\n  | {}", line.text)).collect();
        format!("the console's last lines:{quoted}")
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    const SOON: Duration = Duration::from_secs(60);

    fn shell(script: &str, limit: Option<Duration>) -> Started {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        start(command, limit, None).unwrap()
    }

    #[test]
    fn lines_arrive_without_their_ends_and_complaints_are_among_them() {
        let started = shell("printf 'one\\r\\n'; echo two >&2; printf three", None);
        assert!(started.console.wait_for_exit(SOON).unwrap().success());
        let texts: Vec<_> = started.console.lines_from(0).into_iter().map(|line| line.text).collect();
        assert_eq!(texts, ["one", "two", "three"]);
    }

    #[test]
    fn a_line_that_follows_a_cleared_screen_begins_with_its_text() {
        assert_eq!(readable(b"\x1b[H\x1b[J\x1b[1;1Hsluice ready boot_us=1\r\n"), "sluice ready boot_us=1");
        assert_eq!(readable("µs \u{fffd}\n".as_bytes()), "µs \u{fffd}");
        assert_eq!(readable(b"\xff\n"), "\u{fffd}");
    }

    #[test]
    fn a_line_is_awaited_and_what_was_typed_arrives() {
        let mut started = shell("read line; echo \"got $line\"; exit 7", None);
        started.input.write_all(b"metrics\n").unwrap();
        let (number, line) = started.console.wait_for_line(0, |text| text.starts_with("got"), SOON).unwrap();
        assert_eq!((number, line.text.as_str()), (0, "got metrics"));
        assert_eq!(started.console.wait_for_exit(SOON).unwrap().code(), Some(7));
    }

    #[test]
    fn a_line_that_never_comes_is_reported_with_what_came_instead() {
        let started = shell("echo something else; exit 3", None);
        let error = started.console.wait_for_line(0, |_| false, SOON).unwrap_err().to_string();
        assert!(error.contains("exit status: 3") && error.contains("| something else"), "{error}");
    }

    #[test]
    fn the_watchdog_ends_what_does_not_end() {
        let started = shell("exec sleep 600", Some(Duration::from_millis(50)));
        let error = started.console.wait_for_line(0, |_| false, SOON).unwrap_err().to_string();
        assert!(error.contains("time limit"), "{error}");
    }

    #[test]
    fn a_program_that_cannot_run_is_an_error() {
        let error = start(Command::new("/no/such/program"), None, None).err().unwrap();
        assert!(error.to_string().contains("cannot run QEMU"), "{error}");
    }
}
