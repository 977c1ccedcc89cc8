//! A hybrid ISO that boots the image by BIOS and by UEFI, through GRUB and Multiboot2.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::{Artefact, process};

/// The GRUB modules that the ISO needs; with these alone it has a quarter of the usual size.
///
/// All partition maps are among them since GRUB's own start-up script asks for each, and complains on the console.
const MODULES: &str = "multiboot2 normal iso9660 serial terminal boot search search_fs_file configfile echo \
     part_acorn part_amiga part_apple part_bsd part_dfly part_dvh part_gpt part_msdos part_plan part_sun part_sunpc";
/// What must be installed: a file or program, and the Debian package that brings it.
const PROGRAMS: [(&str, &str); 3] =
    [("grub-mkrescue", "grub-common"), ("xorriso", "xorriso"), ("mformat", "mtools")];
const PLATFORMS: [(&str, &str); 2] =
    [("/usr/lib/grub/i386-pc", "grub-pc-bin"), ("/usr/lib/grub/x86_64-efi", "grub-efi-amd64-bin")];

/// An ISO that is yet to be written.
#[derive(Clone, Debug)]
pub struct Iso {
    artefact: Artefact,
    words: String,
    config: Option<PathBuf>,
}

impl Iso {
    /// An ISO with this image.
    pub fn new(artefact: &Artefact) -> Self {
        Self { artefact: artefact.clone(), words: String::new(), config: None }
    }

    /// The command line words.
    #[must_use]
    pub fn words(mut self, words: impl Into<String>) -> Self {
        self.words = words.into();
        self
    }

    /// The TOML file that is handed over as first module.
    #[must_use]
    pub fn config(mut self, config: Option<PathBuf>) -> Self {
        self.config = config;
        self
    }

    /// Writes the ISO.
    ///
    /// # Errors
    /// When a tool is missing (named with its package) or fails, or when the words cannot stand in a GRUB menu.
    pub fn write(&self, output: &Path) -> Result<()> {
        check_tools()?;
        let menu = grub_menu(&self.words, self.config.is_some())?;
        let staging = tempfile::tempdir().context("cannot create a folder")?;
        let boot = staging.path().join("boot");
        fs::create_dir_all(boot.join("grub"))?;
        fs::write(boot.join("grub/grub.cfg"), menu)?;
        copy(&self.artefact.elf, &boot.join("sluice.elf"))?;
        if let Some(config) = &self.config {
            copy(config, &boot.join("sluice.toml"))?;
        }
        let mut grub = Command::new("grub-mkrescue");
        grub.arg(format!("--install-modules={MODULES}"))
            .args(["--fonts=", "--locales=", "--themes=", "-o"])
            .args([output, staging.path()]);
        process::run(&mut grub, "grub-common")
    }
}

/// The menu: it asks nothing, speaks on COM1 as the image does, and boots at once.
fn grub_menu(words: &str, has_config: bool) -> Result<String> {
    ensure!(!words.chars().any(char::is_control), "the words hold a control character");
    // In single quotes GRUB takes everything as it is, except that quote itself.
    let words: String =
        words.split_whitespace().map(|word| format!(" '{}'", word.replace('\'', r"'\''"))).collect();
    let module = if has_config { "module2 /boot/sluice.toml\n" } else { "" };
    Ok(format!(
        "serial --unit=0 --speed=115200\n\
         terminal_input serial\n\
         terminal_output serial\n\
         multiboot2 /boot/sluice.elf{words}\n\
         {module}\
         boot\n"
    ))
}

fn check_tools() -> Result<()> {
    let programs = PROGRAMS.iter().filter(|(program, _)| process::find(program).is_none());
    let platforms = PLATFORMS.iter().filter(|(folder, _)| !Path::new(folder).is_dir());
    let missing: Vec<_> =
        programs.chain(platforms).map(|(what, package)| format!("{what} ({package})")).collect();
    ensure!(
        missing.is_empty(),
        "missing for an ISO: {}; {} installs them",
        missing.join(", "),
        process::SETUP
    );
    Ok(())
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::copy(from, to).with_context(|| format!("cannot read {}", from.display()))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_menu_hands_over_words_and_config() {
        let menu = grub_menu("program=drop log=it's", true).unwrap();
        assert!(menu.contains(r"multiboot2 /boot/sluice.elf 'program=drop' 'log=it'\''s'"), "{menu}");
        assert!(menu.contains("\nmodule2 /boot/sluice.toml\nboot\n"), "{menu}");
        assert!(!grub_menu("", false).unwrap().contains("module2"));
    }

    #[test]
    fn words_that_would_end_the_line_are_refused() {
        assert!(grub_menu("program=drop\nhalt", false).is_err());
    }
}
