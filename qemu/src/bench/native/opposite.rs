//! What stands opposite a frontend: a backend on the second core.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nix::time::ClockId;
use tempfile::TempDir;

use super::Work;
use super::backend::{Backend, Habits};
use super::frames::{Expected, Seen};
use super::run::Setup;
use super::testpmd::Testpmd;
use crate::bench::cpu;

/// Whose backend.
#[derive(Clone, Debug)]
pub(super) enum Whose {
    /// Ours.
    Own,
    /// DPDK's net_vhost.
    Dpdk,
    /// The one that listens there.
    At(PathBuf),
}

/// A backend that waits for its frontend.
pub(super) struct Opposite {
    sockets: Vec<PathBuf>,
    backend: Kind,
    _folder: TempDir,
}

enum Kind {
    Own(Backend),
    Dpdk(Testpmd),
    Foreign,
}

impl Opposite {
    /// With one card, or two for those who redirect. `checks` is what our own looks at.
    ///
    /// # Errors
    /// When it can't be started.
    pub(super) fn start(whose: &Whose, setup: Setup, checks: Option<Expected>) -> Result<Self> {
        let [_, core] = cpu::two_cores()?;
        let folder =
            tempfile::Builder::new().prefix("sluice-").tempdir().context("cannot create a folder")?;
        let ports = if setup.work == Work::Redirect { 2 } else { 1 };
        let mut sockets: Vec<_> = (0..ports).map(|port| folder.path().join(port.to_string())).collect();
        let backend = match whose {
            Whose::Own => {
                let gives = (setup.work != Work::Txonly).then_some(setup.length);
                let places: Vec<&Path> = sockets.iter().map(AsRef::as_ref).collect();
                Kind::Own(Backend::listen(&places, Habits { core, gives, checks })?)
            }
            Whose::Dpdk => Kind::Dpdk(Testpmd::backend(&sockets[0], core, setup)?),
            Whose::At(socket) => {
                sockets = vec![socket.clone()];
                Kind::Foreign
            }
        };
        Ok(Opposite { sockets, backend, _folder: folder })
    }

    /// Where its cards are.
    pub(super) fn sockets(&self) -> Vec<&Path> {
        self.sockets.iter().map(AsRef::as_ref).collect()
    }

    /// Its CPU time; nothing where only a frontend can learn whose it is.
    ///
    /// # Errors
    /// When it has ended.
    pub(super) fn clock(&self) -> Result<Option<ClockId>> {
        Ok(match &self.backend {
            Kind::Own(backend) => Some(backend.clock()),
            Kind::Dpdk(testpmd) => Some(testpmd.clock()?),
            Kind::Foreign => None,
        })
    }

    /// What came out of each of its cards, where it looked.
    pub(super) fn seen(&self) -> Vec<Seen> {
        match &self.backend {
            Kind::Own(backend) => backend.seen(),
            Kind::Dpdk(_) | Kind::Foreign => Vec::new(),
        }
    }
}
