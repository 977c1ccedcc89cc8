//! Builds the image: the ELF that boots, and its symbols beside it.

use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use cargo_metadata::{Message, MetadataCommand};

use crate::process;

/// The cargo profile, and the package, of the image.
const PROFILE: &str = "image";
const PACKAGE: &str = "image";

/// Flags beside the profile's: frame pointers let a crash report walk the stack.
const RUSTFLAGS: &str = r#"target.x86_64-unknown-linux-gnu.rustflags=["-Cforce-frame-pointers=yes"]"#;

/// An image that has been built and installed.
#[derive(Clone, Debug)]
pub struct Artefact {
    /// The stripped ELF64: what QEMU or GRUB loads.
    pub elf: PathBuf,
    /// The same ELF with its symbols and line tables.
    pub symbols: PathBuf,
}

impl Artefact {
    /// Builds the image and installs it as `sluice.elf` and `sluice.sym.elf` in `target/sluice/`.
    ///
    /// Cargo decides what is stale. The installation is atomic, so several processes may build at once.
    ///
    /// # Errors
    /// When cargo fails (it has printed why), or when `objcopy` is missing.
    pub fn build() -> Result<Self> {
        Self::build_binary(PACKAGE, "sluice")
    }

    /// Builds the image that crashes on purpose, installed as `crash.elf` beside the other.
    ///
    /// # Errors
    /// As [`Self::build`].
    pub fn build_crash() -> Result<Self> {
        Self::build_binary("crash", "crash")
    }

    fn build_binary(binary: &str, installed: &str) -> Result<Self> {
        let built = cargo_build(binary)?;
        let directory = output_directory()?;
        let artefact = Self {
            elf: directory.join(format!("{installed}.elf")),
            symbols: directory.join(format!("{installed}.sym.elf")),
        };
        install(&artefact.symbols, |path| fs::copy(&built, path).map(drop).map_err(Into::into))?;
        install(&artefact.elf, |path| strip(&built, path))?;
        Ok(artefact)
    }

    /// The size of the stripped ELF in bytes.
    ///
    /// # Errors
    /// When the file has gone.
    pub fn size(&self) -> Result<u64> {
        let metadata =
            fs::metadata(&self.elf).with_context(|| format!("cannot read {}", self.elf.display()))?;
        Ok(metadata.len())
    }
}

/// `target/sluice` of the workspace, wherever cargo keeps its target directory.
///
/// # Errors
/// When cargo cannot say where, or when the folder cannot be made.
pub fn output_directory() -> Result<PathBuf> {
    let metadata = MetadataCommand::new()
        .manifest_path(manifest())
        .no_deps()
        .exec()
        .context("cannot ask cargo for the target directory")?;
    let directory = metadata.target_directory.join("sluice").into_std_path_buf();
    fs::create_dir_all(&directory).with_context(|| format!("cannot create {}", directory.display()))?;
    Ok(directory)
}

fn manifest() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml")
}

/// Has cargo build one binary of the image package; returns where it lies.
fn cargo_build(binary: &str) -> Result<PathBuf> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut child = Command::new(cargo)
        .args(["build", "--profile", PROFILE, "--package", PACKAGE, "--bin", binary])
        .args(["--message-format", "json-render-diagnostics", "--config", RUSTFLAGS, "--manifest-path"])
        .arg(manifest())
        // The image is built the same way whatever flags the host command was built with.
        .env_remove("RUSTFLAGS")
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot run cargo to build the image")?;
    let messages = std::io::BufReader::new(child.stdout.take().context("cargo has no output")?);
    let mut executable = None;
    for message in Message::parse_stream(messages) {
        if let Message::CompilerArtifact(artifact) = message.context("cannot read cargo's messages")? {
            executable = artifact.executable.or(executable);
        }
    }
    ensure!(child.wait()?.success(), "cargo could not build the image (package {PACKAGE}, binary {binary})");
    executable.map(Into::into).with_context(|| format!("cargo built no binary {binary}"))
}

/// Copies the ELF without symbols, line tables and section names that only tools read.
fn strip(from: &Path, to: &Path) -> Result<()> {
    let mut objcopy = Command::new("objcopy");
    objcopy.args(["--strip-all", "--remove-section=.comment"]).args([from, to]);
    process::run(&mut objcopy, "binutils")
}

/// Makes a file under a private name in the same folder, then renames it into place.
fn install(path: &Path, make: impl FnOnce(&Path) -> Result<()>) -> Result<()> {
    let directory = path.parent().context("the file has no folder")?;
    let staged = tempfile::Builder::new().prefix(".new-").tempfile_in(directory)?;
    make(staged.path())?;
    // A private name comes with private access; what is installed is for everyone to boot.
    fs::set_permissions(staged.path(), Permissions::from_mode(0o755))?;
    staged.persist(path).with_context(|| format!("cannot install {}", path.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_installed_file_appears_whole_or_not_at_all() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        install(&path, |staged| Ok(fs::write(staged, "first")?)).unwrap();
        install(&path, |staged| {
            fs::write(staged, "half")?;
            anyhow::bail!("interrupted")
        })
        .unwrap_err();
        assert_eq!(fs::read_to_string(&path).unwrap(), "first");
        assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1, "a staged file was left behind");
    }
}
