#![allow(unsafe_code)] // A hook between fork and exec ties a child's life to the thread that started it.
//! Child processes: tools that run to their end, and children that must not outlive us.

use std::io::ErrorKind;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};
use nix::sys::prctl;
use nix::sys::signal::Signal;

/// What installs the tools that the host command calls.
pub const SETUP: &str = "./scripts/setup.sh";

/// Runs a tool to its end; its output is shown only when it fails.
///
/// # Errors
/// When the tool is missing (the message names the Debian `package`) or says that it failed.
pub fn run(command: &mut Command, package: &str) -> Result<()> {
    output(command, package).map(drop)
}

/// The same; what it printed.
///
/// # Errors
/// As [`run`].
pub fn output(command: &mut Command, package: &str) -> Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = match command.output() {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("{name} is missing (Debian package {package}); {SETUP} installs it")
        }
        result => result.with_context(|| format!("cannot run {name}"))?,
    };
    if !output.status.success() {
        bail!("{name} failed ({}): {}", output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The path of a program, looked up in `PATH`.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

/// Has the kernel kill the child when the thread that spawns it ends, however it ends.
///
/// A destructor cannot promise that: a test runner that is killed runs none.
pub fn die_with_parent(command: &mut Command) -> &mut Command {
    // SAFETY: the hook runs in the forked child of a threaded process, so it may only do what is async-signal-safe:
    // it makes one system call, and neither allocates nor takes a lock.
    unsafe { command.pre_exec(|| prctl::set_pdeathsig(Signal::SIGKILL).map_err(Into::into)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_tool_is_named_with_its_package() {
        let error = run(&mut Command::new("no-such-tool"), "some-package").unwrap_err().to_string();
        assert!(
            error.contains("no-such-tool") && error.contains("some-package") && error.contains(SETUP),
            "{error}"
        );
    }

    #[test]
    fn a_failing_tool_is_quoted() {
        let error =
            run(Command::new("sh").args(["-c", "echo broken >&2; exit 3"]), "dash").unwrap_err().to_string();
        assert!(error.contains("broken") && error.contains('3'), "{error}");
    }

    #[test]
    fn a_program_is_found_where_path_says() {
        assert!(find("sh").is_some_and(|path| path.is_absolute()));
        assert_eq!(find("no-such-tool"), None);
    }

    #[test]
    fn a_child_dies_with_the_thread_that_started_it() {
        let start = || die_with_parent(Command::new("sleep").arg("60")).spawn().unwrap();
        let mut child = std::thread::spawn(start).join().unwrap();
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(Signal::SIGKILL as i32));
    }
}
