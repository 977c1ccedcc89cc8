//! The card: registers lead to the parts that give them meaning, and time and data pass through the parts in order.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use crate::core::Core;
use crate::eeprom::Eeprom;
use crate::fault::Fault;
use crate::host::{Memory, Wire};
use crate::i2c::Bus;
use crate::interrupt::Interrupts;
use crate::link::Link;
use crate::mdio::Mdio;
use crate::options::{CardOptions, Model, Module, PciIds};
use crate::queues::rx::Receive;
use crate::queues::tx::Transmit;
use crate::registers::*;
use crate::reset::Reset;
use crate::strict::{Rule, UnknownAccess, Violation, missing_bits, reserved_bits};
use crate::virtual_function::Mailbox;
use crate::{semaphore, stats};

/// The whole state of one function of a card. It has no thread, no clock and no transport of its own.
pub struct Card {
    pub(crate) core: Core,
    pub(crate) interrupts: Interrupts,
    pub(crate) mailboxes: Vec<Mailbox>,
    receive: Receive,
    transmit: Transmit,
    link: Link,
    reset: Reset,
    eeprom: Eeprom,
    module: Bus,
    mdio: Mdio,
}

impl Card {
    /// A card that was just powered up.
    pub fn new(options: CardOptions) -> Card {
        let eeprom = Eeprom::new(&options);
        let mut core = Core::new(options);
        Reset::power_up(&mut core);
        let (link, module) = (Link::new(&core), Bus::new(&core));
        Card {
            core,
            interrupts: Interrupts::new(),
            mailboxes: Vec::new(),
            receive: Receive::default(),
            transmit: Transmit::new(),
            link,
            reset: Reset::default(),
            eeprom,
            module,
            mdio: Mdio::default(),
        }
    }

    /// How the function introduces itself.
    pub fn ids(&self) -> PciIds {
        PciIds::of(self.core.options.model)
    }

    /// Reads the register at a byte offset in BAR0, with all that a read sets off.
    pub fn read(&mut self, offset: u32) -> u32 {
        if self.core.faults.unplugged {
            return u32::MAX;
        }
        let Some((register, index)) = Register::at(offset) else {
            self.core.strict.unknown_read(offset);
            return 0;
        };
        let core = &mut self.core;
        match register {
            Register::EICR | Register::EICS | Register::EIMS | Register::EIMS_EX => {
                self.interrupts.read(core, register, index)
            }
            Register::STATUS => status(core),
            Register::ESDP => esdp(core),
            Register::SWSM => semaphore::read_swsm(core),
            Register::PFMAILBOX => self.mailboxes.get(index).map_or(0, Mailbox::read_physical),
            _ => match register.row().access {
                Access::RC => stats::read(core, register, index),
                Access::WO => 0,
                Access::RW | Access::RO | Access::W1C => core.values.at(register, index),
            },
        }
    }

    /// Writes the register at a byte offset in BAR0, with all that a write sets off.
    pub fn write(&mut self, offset: u32, value: u32) {
        if self.core.faults.unplugged {
            return;
        }
        let Some((register, index)) = Register::at(offset) else {
            self.core.strict.unknown_write(offset, value);
            return;
        };
        if self.reset.swallows(&mut self.core, register, index, value) {
            return;
        }
        if value & reserved_bits(register) != 0 {
            self.core.report(Rule::ReservedBits, register, index, u64::from(value));
        }
        self.write_register(register, index, value & !missing_bits(register));
    }

    fn write_register(&mut self, register: Register, index: usize, value: u32) {
        use Register::*;
        let core = &mut self.core;
        match register {
            CTRL => self.control(value),
            EICR | EICS | EIMS | EIMC | EITR | EICS_EX | EIMS_EX | EIMC_EX => {
                self.interrupts.write(core, register, index, value);
            }
            RDBAL | RDBAH | RDLEN | RDH | RDT | RXDCTL | SRRCTL | RXCTRL => {
                self.receive.write(core, register, index, value);
            }
            TDBAL | TDBAH | TDLEN | TDH | TDT | TXDCTL | TDWBAL | TDWBAH | MTQC => {
                self.transmit.write(core, register, index, value);
            }
            AUTOC => {
                self.link.write_autoc(core, value);
                self.link.update(core, &mut self.interrupts);
            }
            ESDP => {
                core.values.set(ESDP, value);
                self.link.update(core, &mut self.interrupts);
            }
            EERD => self.eeprom.write_eerd(core, value),
            EEC => self.eeprom.write_eec(core, value),
            SWSM => semaphore::write_swsm(core, value),
            CTRL_EXT => {
                core.values.set(CTRL_EXT, value);
                if value & CTRL_EXT_PFRSTD != 0 {
                    self.mailboxes.iter_mut().for_each(Mailbox::reset_is_done);
                }
            }
            PFMAILBOX => self.write_mailbox(index, value),
            PFVFLREC => {
                let resets = core.values.at(PFVFLRE, index);
                core.values.set_at(PFVFLRE, index, resets & !value);
            }
            // Set by the card alone.
            RDRXCTL => {
                let done = core.values.get(RDRXCTL) & RDRXCTL_DMAIDONE;
                core.values.set(RDRXCTL, value & !RDRXCTL_DMAIDONE | done);
            }
            FDIRCTRL => self.receive.buffer.flow_director.write_control(core, value),
            FDIRCMD => self.receive.buffer.flow_director.write_command(core, value),
            I2CCTL => self.module.write(core, value),
            MSCA => self.mdio.write(core, value),
            _ => match register.row().access {
                Access::RW | Access::WO => core.values.set_at(register, index, value),
                Access::W1C => {
                    let old = core.values.at(register, index);
                    core.values.set_at(register, index, old & !value);
                }
                Access::RO | Access::RC => {}
            },
        }
    }

    fn control(&mut self, value: u32) {
        if value & (CTRL_RST | CTRL_LRST) == 0 {
            self.core.values.set(Register::CTRL, value);
            return;
        }
        self.restart(value);
    }

    fn write_mailbox(&mut self, function: usize, value: u32) {
        let Some(mailbox) = self.mailboxes.get_mut(function) else { return };
        if mailbox.write_physical(value) {
            self.interrupts.functions[function].mailbox();
        }
    }

    /// All parts begin anew.
    fn restart(&mut self, ctrl: u32) {
        self.reset.begin(&mut self.core, ctrl);
        self.interrupts.reset();
        self.mailboxes.iter_mut().for_each(Mailbox::reset_begins);
        self.receive.reset();
        self.transmit.reset();
        self.link.restart(&self.core);
    }

    /// Tells the card the time, which never goes back: resets end, links come up, held-back interrupts become due.
    pub fn advance(&mut self, now: Duration) {
        self.core.now = self.core.now.max(now);
        self.reset.update(&mut self.core);
        self.link.update(&mut self.core, &mut self.interrupts);
    }

    /// Runs the engines: fetches descriptors, sends, receives, writes back. The number of frames that moved; when it
    /// is zero there was nothing to do.
    pub fn run(&mut self, memory: &dyn Memory, wire: &mut dyn Wire) -> usize {
        if self.core.faults.unplugged {
            return 0;
        }
        let sent = self.transmit.run(&mut self.core, &mut self.interrupts, &mut self.receive, memory, wire);
        sent + self.receive.run(&mut self.core, &mut self.interrupts, memory, wire)
    }

    /// The MSI-X messages to be sent since the last call: bit n is entry n of the table. Without MSI-X, bit 0 is the
    /// one message or the interrupt line.
    pub fn take_interrupts(&mut self) -> u64 {
        if self.core.faults.unplugged {
            return 0;
        }
        self.interrupts.take(&mut self.core)
    }

    /// What the driver did that real silicon punishes, oldest first; only the first thousand are kept.
    pub fn violations(&self) -> &[Violation] {
        self.core.strict.violations()
    }

    /// Accesses to addresses at which the model knows no register, by offset.
    pub fn unknown(&self) -> &BTreeMap<u32, UnknownAccess> {
        self.core.strict.unknown()
    }

    /// Makes something go wrong.
    pub fn inject(&mut self, fault: Fault) {
        self.core.faults.insert(fault);
        match fault {
            Fault::LinkDown => self.link.set_cable(&self.core, false),
            Fault::LinkUp => self.link.set_cable(&self.core, true),
            Fault::SpontaneousReset => {
                self.restart(0);
                // Nobody can wait for what nobody knows of.
                self.reset.end(&mut self.core);
            }
            _ => {}
        }
        self.link.update(&mut self.core, &mut self.interrupts);
    }

    /// Tells the card that a range of memory is not the driver's any more: an enabled ring in it is a violation.
    pub fn memory_withdrawn(&mut self, range: Range<u64>) {
        self.receive.withdrawn(&mut self.core, &range);
        self.transmit.withdrawn(&mut self.core, &range);
    }
}

/// The card stops making requests as soon as it is told to (5.2.5.3.2).
fn status(core: &Core) -> u32 {
    let stopped = core.values.has(Register::CTRL, CTRL_PCIE_MASTER_DISABLE) && core.faults.busy_master == 0;
    core.values.get(Register::STATUS) & if stopped { !STATUS_MASTER_ENABLED } else { !0 }
}

/// A pin says whether there is a module in the cage.
fn esdp(core: &Core) -> u32 {
    let plugged = core.options.model == Model::Sfp82599 && core.options.module != Module::Empty;
    core.values.get(Register::ESDP) & !ESDP_SDP2 | if plugged { ESDP_SDP2 } else { 0 }
}
