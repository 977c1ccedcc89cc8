//! Child processes that never outlive the test that started them.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// How long a test waits for something that happens at once on an idle machine. Reached only when it never happens.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);
/// Between two looks at something that will change without anybody's saying so.
pub(crate) const PAUSE: Duration = Duration::from_millis(10);

/// A program that runs beside the test; killed when this is dropped, and by the kernel should the test's thread die.
pub(crate) struct Background {
    name: String,
    child: Child,
    lines: Receiver<String>,
    seen: Vec<String>,
}

impl Background {
    /// Starts `program` with its standard output and error read line by line.
    pub(crate) fn start(program: &[&str]) -> Result<Self> {
        let mut child = dies_with_this_thread(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.join(" ")))?;
        let (sender, lines) = channel();
        let streams: [Box<dyn std::io::Read + Send>; 2] = [
            Box::new(child.stdout.take().context("no stdout")?),
            Box::new(child.stderr.take().context("no stderr")?),
        ];
        for stream in streams {
            let sender = sender.clone();
            thread::spawn(move || {
                for line in BufReader::new(stream).split(b'\n').map_while(Result::ok) {
                    // The receiver is gone once the test has ended: nobody wants the rest.
                    let _ = sender.send(String::from_utf8_lossy(&line).trim_end().to_owned());
                }
            });
        }
        Ok(Self { name: program.join(" "), child, lines, seen: Vec::new() })
    }

    /// The process id of the program.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the first line that contains `text`.
    pub(crate) fn wait_for_line(&mut self, text: &str) -> Result<String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                Ok(line) => {
                    self.seen.push(line.clone());
                    if line.contains(text) {
                        return Ok(line);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    bail!("{}: no line with {text:?} in time; {}", self.name, self.said())
                }
                Err(RecvTimeoutError::Disconnected) => {
                    bail!("{}: ended without a line with {text:?}; {}", self.name, self.said())
                }
            }
        }
    }

    /// Types a line on the program's standard input.
    pub(crate) fn type_line(&mut self, line: &str) -> Result<()> {
        let input = self.child.stdin.as_mut().context("no stdin")?;
        writeln!(input, "{line}").with_context(|| format!("{} does not read its input", self.name))
    }

    /// Waits until the program has ended by itself.
    pub(crate) fn wait_for_end(&mut self) -> Result<ExitStatus> {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            if let Some(status) = self.child.try_wait()? {
                return Ok(status);
            }
            thread::sleep(Duration::from_millis(10));
        }
        bail!("{}: does not end; {}", self.name, self.said())
    }

    fn said(&self) -> String {
        format!("it said:\n{}", self.seen.join("\n"))
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Fails only when the program has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Runs `program` to its end, which must be a success, and returns what it printed.
pub(crate) fn run(program: &[&str]) -> Result<String> {
    let output = output(program)?;
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    ensure!(
        output.status.success(),
        "{}: {}\n{stdout}{}",
        program.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(stdout)
}

/// Runs `program` to its end, however it ends, and returns its status and what it printed.
pub(crate) fn output(program: &[&str]) -> Result<Output> {
    dies_with_this_thread(program)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run {}", program.join(" ")))
}

fn dies_with_this_thread(program: &[&str]) -> Command {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]);
    qemu::process::die_with_parent(&mut command);
    command
}
