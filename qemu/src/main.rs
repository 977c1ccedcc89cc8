//! The host command: builds the image, boots it in QEMU and shows what it does.

use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use qemu::cli::{Cli, Command, IsoOptions};
use qemu::{Artefact, Iso, artefact, bench, demo, interrupt, run};

fn main() -> ExitCode {
    let cli = Cli::parse();
    match interrupt::catch().and_then(|()| execute(&cli.command)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) if interrupt::happened() => {
            eprintln!("interrupted");
            ExitCode::from(interrupt::EXIT_CODE)
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn execute(command: &Command) -> Result<()> {
    match command {
        Command::Build => build().map(drop),
        Command::Run(options) => run::run(&build()?, options),
        Command::Demo(options) => demo::demo(&build()?, options),
        Command::Iso(options) => iso(&build()?, options),
        Command::Bench(bench) => bench::bench(bench),
    }
}

fn build() -> Result<Artefact> {
    let artefact = Artefact::build()?;
    println!("image {} ({} KB)", artefact.elf.display(), artefact.size()?.div_ceil(1000));
    Ok(artefact)
}

fn iso(image: &Artefact, options: &IsoOptions) -> Result<()> {
    let output = match &options.output {
        Some(output) => output.clone(),
        None => artefact::output_directory()?.join("sluice.iso"),
    };
    Iso::new(image).words(&options.words).config(options.config.clone()).write(&output)?;
    println!("iso {} ({} KB)", output.display(), output.metadata()?.len().div_ceil(1000));
    Ok(())
}
