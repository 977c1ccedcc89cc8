//! What the ports of `sluice run` are plugged into: something outside, or a traffic port of the command's own.

use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::vfio::{Cable, CardOptions, CardPort, Model, Policy};
use crate::vhost::{MAX_QUEUE_PAIRS, TrafficConfig, TrafficPort};
use crate::{Flows, PortSpec, Source, ports};

/// How a traffic port of the command's own is written, before the number of queue pairs.
const TRAFFIC: &str = "vhost-user:queues=";
/// The Intel cards that can be plugged in, as they are written.
const CARDS: [(&str, Model); 3] = [("82599", Model::Sfp82599), ("x540", Model::X540), ("x550", Model::X550)];
/// What follows the name of a card of which only a virtual function is plugged in.
const VIRTUAL: &str = "vf";
/// The flows that a traffic port sends.
const FLOWS: u32 = 1000;
/// As many frames as their sequence numbers tell apart: nobody waits for the last.
const FRAMES: u64 = FLOWS as u64 * u32::MAX as u64;

/// What `--port` asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plug {
    /// Something that is there already.
    Outside(PortSpec),
    /// A traffic port with so many queue pairs, written `vhost-user:queues=N`.
    Traffic {
        /// Queue pairs of the card.
        queue_pairs: u16,
    },
    /// An Intel card of the command's own, written `82599`, `x540` or `x550`, or a virtual function of one, written with
    /// `vf` after that; behind a colon what its cable leads to, `dgram:LOCAL,REMOTE` or `tap:NAME`, where that is not
    /// traffic.
    Card {
        /// Which card.
        model: Model,
        /// How much of it is plugged in.
        share: Share,
        /// What its cable leads to, if not to traffic.
        outside: Option<PortSpec>,
    },
}

/// How much of a card the machine gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Share {
    /// All of it.
    Whole,
    /// A virtual function; the command is the host that lends it.
    VirtualFunction,
}

impl FromStr for Plug {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
        let (card, share) = match kind.strip_suffix(VIRTUAL) {
            Some(card) => (card, Share::VirtualFunction),
            None => (kind, Share::Whole),
        };
        if let Some((_, model)) = CARDS.iter().find(|(name, _)| *name == card) {
            return parse_card(*model, share, rest);
        }
        let Some(number) = text.strip_prefix(TRAFFIC) else { return text.parse().map(Self::Outside) };
        let queue_pairs = number.parse().ok().filter(|pairs| (1..=MAX_QUEUE_PAIRS).contains(pairs));
        let queue_pairs = queue_pairs
            .with_context(|| format!("queues=\"{number}\" is not a number from 1 to {MAX_QUEUE_PAIRS}"))?;
        Ok(Self::Traffic { queue_pairs })
    }
}

fn parse_card(model: Model, share: Share, cable: &str) -> Result<Plug> {
    let outside = if cable.is_empty() { None } else { Some(cable.parse()?) };
    let leads = matches!(outside, None | Some(PortSpec::Dgram { .. } | PortSpec::Tap { queues: 1, .. }));
    ensure!(leads, "the cable of a card leads to dgram:LOCAL,REMOTE or tap:NAME, not to \"{cable}\"");
    Ok(Plug::Card { model, share, outside })
}

/// The plugs, with the traffic ports and the cards among them at work: each that sends traffic sends 1,000 UDP flows as
/// fast as the guest takes them.
#[derive(Debug)]
pub struct Plugged {
    specs: Vec<PortSpec>,
    /// With the number of each port.
    traffic: Vec<(usize, TrafficPort)>,
    /// With the number of each port.
    cards: Vec<(usize, CardPort)>,
    /// Holds the sockets.
    folder: TempDir,
}

impl Plugged {
    /// Puts a traffic port behind each plug that asks for one.
    ///
    /// # Errors
    /// When there is no room for their sockets.
    pub fn new(plugs: &[Plug]) -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot create a folder")?;
        let mut plugged = Self { specs: Vec::new(), traffic: Vec::new(), cards: Vec::new(), folder };
        for (index, plug) in plugs.iter().enumerate() {
            let spec = match plug {
                Plug::Outside(spec) => spec.clone(),
                Plug::Traffic { queue_pairs } => plugged.start_traffic(index, *queue_pairs)?,
                Plug::Card { model, share, outside } => {
                    plugged.start_card(index, (*model, *share), outside.as_ref())?
                }
            };
            plugged.specs.push(spec);
        }
        Ok(plugged)
    }

    fn start_traffic(&mut self, index: usize, queue_pairs: u16) -> Result<PortSpec> {
        let port =
            TrafficPort::listen(self.socket(index), TrafficConfig { queue_pairs, ..Default::default() })?;
        port.start(flows(index), |_: u16, _: &[u8]| {});
        let spec = port.spec();
        self.traffic.push((index, port));
        Ok(spec)
    }

    fn start_card(
        &mut self,
        index: usize,
        (model, share): (Model, Share),
        outside: Option<&PortSpec>,
    ) -> Result<PortSpec> {
        let cable = match outside.cloned() {
            Some(PortSpec::Dgram { local, remote }) => Cable::Dgram { local, remote },
            Some(PortSpec::Tap { name, .. }) => Cable::Tap { name },
            _ => Cable::Traffic { takes: None, gives: None },
        };
        let mac = match share {
            Share::Whole => ports::mac_octets(index),
            // Where a function gets nothing else it gets its flows at least.
            Share::VirtualFunction => Flows::destination(index as u16),
        };
        let options = CardOptions { model, mac, ..Default::default() };
        let card = match share {
            Share::Whole => CardPort::listen(self.socket(index), options, cable)?,
            Share::VirtualFunction => {
                CardPort::listen_virtual(self.socket(index), options, Policy::default(), cable)?
            }
        };
        card.start(flows(index), |_: u16, _: &[u8]| {});
        let spec = card.spec();
        self.cards.push((index, card));
        Ok(spec)
    }

    fn socket(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("port{index}"))
    }

    /// What to give to the machine, in the order of the plugs.
    pub fn specs(&self) -> &[PortSpec] {
        &self.specs
    }

    /// Ends the traffic; returns what each traffic port and each card has to tell, by the number of the port.
    pub fn finish(self) -> Vec<(usize, String)> {
        let traffic = self.traffic.into_iter().map(|(index, port)| (index, port.stop().to_string()));
        let cards = self.cards.into_iter().map(|(index, card)| (index, card.stop().to_string()));
        let mut reports: Vec<_> = traffic.chain(cards).collect();
        reports.sort_by_key(|(index, _)| *index);
        reports
    }
}

/// The flows into port `index`, without an end.
fn flows(index: usize) -> impl FnMut(&mut Vec<u8>) -> bool + Send + 'static {
    let mut flows = Flows::new(index as u16, FLOWS, FRAMES);
    move |frame| flows.next(frame)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_traffic_port_is_told_from_a_socket() {
        assert_eq!("vhost-user:queues=4".parse::<Plug>().unwrap(), Plug::Traffic { queue_pairs: 4 });
        let socket = PortSpec::VhostUser { socket: "/run/a".into(), queues: 4 };
        assert_eq!("vhost-user:/run/a,queues=4".parse::<Plug>().unwrap(), Plug::Outside(socket));
        assert_eq!("user".parse::<Plug>().unwrap(), Plug::Outside(PortSpec::User));
        for wrong in ["vhost-user:queues=0", "vhost-user:queues=129", "vhost-user:queues="] {
            let error = wrong.parse::<Plug>().unwrap_err().to_string();
            assert!(error.contains("from 1 to 128"), "{error}");
        }
    }

    #[test]
    fn a_card_names_what_its_cable_leads_to() {
        let card = |model, outside| Plug::Card { model, share: Share::Whole, outside };
        assert_eq!("82599".parse::<Plug>().unwrap(), card(Model::Sfp82599, None));
        let tap = PortSpec::Tap { name: "t".into(), queues: 1 };
        assert_eq!("x540:tap:t".parse::<Plug>().unwrap(), card(Model::X540, Some(tap)));
        let function = Plug::Card { model: Model::X550, share: Share::VirtualFunction, outside: None };
        assert_eq!("x550vf".parse::<Plug>().unwrap(), function);
        for wrong in ["82599:user", "82599:tap:t,queues=2", "82599:vhost-user:/run/a", "82599:dgram:a"] {
            let error = wrong.parse::<Plug>().unwrap_err().to_string();
            assert!(error.contains("dgram:LOCAL,REMOTE"), "{error}");
        }
    }

    #[test]
    fn plugs_keep_their_order() {
        let card = Plug::Card { model: Model::Sfp82599, share: Share::Whole, outside: None };
        let plugs = [card, Plug::Outside(PortSpec::User), Plug::Traffic { queue_pairs: 2 }];
        let plugged = Plugged::new(&plugs).unwrap();
        let [PortSpec::VfioUser { socket: card }, PortSpec::User, PortSpec::VhostUser { socket, queues: 2 }] =
            plugged.specs()
        else {
            panic!("{plugged:?}");
        };
        assert!(socket.exists() && card.exists());
        let sockets = [card.clone(), socket.clone()];
        assert_eq!(plugged.finish().iter().map(|(index, _)| *index).collect::<Vec<_>>(), [0, 2]);
        assert!(sockets.iter().all(|socket| !socket.exists()));
    }
}
