//! What the ports of `sluice run` are plugged into: something outside, or a traffic port of the command's own.

use std::str::FromStr;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::vhost::{MAX_QUEUE_PAIRS, TrafficConfig, TrafficPort};
use crate::{Flows, PortSpec, Source};

/// How a traffic port of the command's own is written, before the number of queue pairs.
const TRAFFIC: &str = "vhost-user:queues=";
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
}

impl FromStr for Plug {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let Some(number) = text.strip_prefix(TRAFFIC) else { return text.parse().map(Self::Outside) };
        let queue_pairs = number.parse().ok().filter(|pairs| (1..=MAX_QUEUE_PAIRS).contains(pairs));
        let queue_pairs = queue_pairs
            .with_context(|| format!("queues=\"{number}\" is not a number from 1 to {MAX_QUEUE_PAIRS}"))?;
        Ok(Self::Traffic { queue_pairs })
    }
}

/// The plugs, with the traffic ports among them at work: each sends 1,000 UDP flows as fast as the guest takes them.
#[derive(Debug)]
pub struct Plugged {
    specs: Vec<PortSpec>,
    /// With the number of each port.
    traffic: Vec<(usize, TrafficPort)>,
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
        let mut plugged = Self { specs: Vec::new(), traffic: Vec::new(), folder };
        for (index, plug) in plugs.iter().enumerate() {
            let spec = match plug {
                Plug::Outside(spec) => spec.clone(),
                Plug::Traffic { queue_pairs } => plugged.start_traffic(index, *queue_pairs)?,
            };
            plugged.specs.push(spec);
        }
        Ok(plugged)
    }

    fn start_traffic(&mut self, index: usize, queue_pairs: u16) -> Result<PortSpec> {
        let path = self.folder.path().join(format!("port{index}"));
        let port = TrafficPort::listen(path, TrafficConfig { queue_pairs, ..Default::default() })?;
        let mut flows = Flows::new(index as u16, FLOWS, FRAMES);
        port.start(move |frame: &mut Vec<u8>| flows.next(frame), |_: u16, _: &[u8]| {});
        let spec = port.spec();
        self.traffic.push((index, port));
        Ok(spec)
    }

    /// What to give to the machine, in the order of the plugs.
    pub fn specs(&self) -> &[PortSpec] {
        &self.specs
    }

    /// Ends the traffic; returns what each traffic port has counted, by the number of the port.
    pub fn finish(self) -> Vec<(usize, crate::vhost::Report)> {
        self.traffic.into_iter().map(|(index, port)| (index, port.stop())).collect()
    }
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
    fn plugs_keep_their_order() {
        let plugs = [Plug::Outside(PortSpec::User), Plug::Traffic { queue_pairs: 2 }];
        let plugged = Plugged::new(&plugs).unwrap();
        let [PortSpec::User, PortSpec::VhostUser { socket, queues: 2 }] = plugged.specs() else {
            panic!("{plugged:?}");
        };
        assert!(socket.exists());
        let socket = socket.clone();
        assert_eq!(plugged.finish().iter().map(|(index, _)| *index).collect::<Vec<_>>(), [1]);
        assert!(!socket.exists());
    }
}
