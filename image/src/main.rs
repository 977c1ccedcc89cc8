//! The image: joins the kernel, the drivers and the forwarder. The steps of a boot, in their order.
#![no_std]
#![no_main]

extern crate alloc;

mod interrupts;
mod memory;
mod operator;
mod platform;
mod ports;
mod settings;

use alloc::boxed::Box;
use alloc::sync::Arc;

use forwarder::{Assembly, Clock, Control, Cpu, Worker};
use kernel::boot::Boot;
use kernel::{println, smp, time};
use netdrv::pool::Pool;
use netdrv::port::{Rx, Tx};

use operator::Operator;
use platform::Platform;
use ports::Ports;

kernel::entry!(main);

fn main(boot: &'static Boot) -> ! {
    let config = settings::read(boot);
    memory::need();

    kernel::machine::init(boot);
    let cores = smp::start_all();
    let workers = config.worker_count(cores).unwrap_or_else(|refusal| settings::refuse(&refusal));

    let mut ports = Ports::probe(&config, workers);
    let (rx_queues, count) = (ports.rx_queues(), ports.count());
    let buffers = ports.buffers() + forwarder::buffers_outside_rings(&config, workers, rx_queues, count);
    memory::check(&config, workers, buffers, forwarder::heap(&config, workers, rx_queues, count));
    let pool = Pool::new::<Platform>(buffers).expect("memory was checked");

    ports.route_interrupts(workers);
    let clock = Clock { now: time::tsc, hz: time::tsc_hz() };
    let cpu = Cpu { clock, sleep: interrupts::sleep, wake: smp::wake };
    let Assembly { control, workers } = forwarder::assemble(ports.start(pool), &config, workers, pool, cpu)
        .unwrap_or_else(|refusal| settings::refuse(&refusal));
    ports.announce(&control);

    let mut workers = workers.into_iter();
    let own = workers.next().expect("there is a worker for the boot core");
    for (core, worker) in (1..).zip(workers) {
        start(core, worker, control.clone());
    }
    memory::need_no_more();
    println!("sluice ready boot_us={} cores={cores} ports={}", time::since_entry_us(), ports.count());

    let mut operator = Operator::default();
    let mut chores = || {
        operator.attend(&control, &ports);
        ports.attend();
    };
    own.run(&control, Some(&mut chores));
    operator::wind_down(&control, ports, pool)
}

/// Lets `core` run `worker`, or sleep where that has nothing to do.
fn start(core: usize, worker: Worker<Rx, Tx>, control: Arc<Control<Rx, Tx>>) {
    if worker.has_work() {
        smp::launch(core, Box::new(move || worker.run(&control, None))).expect("a core that is up");
    } else {
        worker.retire(&control);
    }
}
