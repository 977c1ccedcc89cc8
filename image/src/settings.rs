//! The settings, or the end of the boot.

use forwarder::config::{Config, OnPanic, Refusal, Refused};
use kernel::boot::Boot;
use kernel::power::{self, Code};
use kernel::println;

/// Reads command line and module, and lets `log=` and `on-panic=` take effect. Does not return when any of it is refused.
pub(crate) fn read(boot: &Boot) -> Config {
    let (config, on_panic) = match Config::read(boot.command_line, boot.module) {
        Ok(config) => {
            let on_panic = config.on_panic;
            (Ok(config), on_panic)
        }
        Err(Refused { refusal, on_panic }) => (Err(refusal), on_panic),
    };
    power::set_on_panic(match on_panic {
        OnPanic::Exit => power::OnPanic::Exit,
        OnPanic::Reboot => power::OnPanic::Reboot,
    });
    let config = config.unwrap_or_else(|refusal| refuse(&refusal));
    log::set_max_level(config.log);
    config
}

/// Says what was refused, and ends: the image does not forward with half a configuration.
pub(crate) fn refuse(refusal: &Refusal) -> ! {
    println!("{refusal}");
    power::stop(Code::Refused)
}
