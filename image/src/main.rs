//! The image: puts the kernel, the drivers and the forwarder together.
#![no_std]
#![no_main]

use kernel::boot::Boot;

kernel::entry!(main);

fn main(boot: &'static Boot) -> ! {
    log::info!("command line: {}", boot.command_line);
    kernel::power::stop(kernel::power::Code::Stopped)
}
