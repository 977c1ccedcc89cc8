//! The image on Intel cards, as the model is one that QEMU plugs in: the same driver as on a real card.
//!
//! Every test ends with the model's word that nothing was done to it which real silicon punishes.
//!
//! `SLUICE_SOAK=10 cargo test -p qemu --test system -- card::soak` has faults of all kinds befall two cards for ten minutes.

mod oversize;
mod virtual_function;

use std::hash::{BuildHasher, RandomState};
use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use libtest_mimic::Trial;
use qemu::vfio::{Cable, CardOptions, CardPort, CardReport, Fault, LentLink, Model, Policy};
use qemu::vhost::{Sink, Source, TrafficConfig, TrafficPort};
use qemu::{Flows, Guest, Machine, PortSpec, StopReport, Transform};
use tempfile::TempDir;

use crate::frames::reflected;
use crate::harness::{Need, test_with};
use crate::image::image;
use crate::lane::Lane;
use crate::rig::{check_balance, check_stopped, wait_until};

/// How long the image may take to boot, with 72 cores on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);
/// Frames of each lane.
const FRAMES: u64 = 10_000;

const SFP: Kind = Kind::Card(Model::Sfp82599);

pub(crate) fn trials() -> Vec<Trial> {
    let card = |name, body: fn() -> Result<()>| test_with(&[Need::CardsFromOutside], name, body);
    let mut trials = vec![
        card("card::one_core_reflects", || {
            exchange(&Setup {
                ports: &[SFP],
                cores: 1,
                words: "program=reflect",
                queues: 1,
                line: "tx=dedicated",
            })
        }),
        card("card::two_cards_forward_over_four_queues", || {
            exchange(&Setup {
                ports: &[SFP, SFP],
                cores: 4,
                words: "program=forward",
                queues: 4,
                line: "rx-queues=4",
            })
        }),
        card("card::sixteen_queues", || {
            exchange(&Setup {
                ports: &[SFP],
                cores: 16,
                words: "program=reflect",
                queues: 16,
                line: "rx-queues=16",
            })
        }),
        card("card::seventy_two_cores_share_sixty_four_rings", || {
            let words = "program=reflect rx=software";
            exchange(&Setup {
                ports: &[SFP],
                cores: 72,
                words,
                queues: 64,
                line: "tx=shared(1-2 cores/queue)",
            })
        }),
        card("card::seventy_two_cores_have_a_ring_each_on_demand", || {
            let words = "program=reflect rx=software tx=dedicated";
            exchange(&Setup { ports: &[SFP], cores: 72, words, queues: 72, line: "tx-queues=72" })
        }),
        card("card::x540_and_x550_forward", || {
            let ports = &[Kind::Card(Model::X540), Kind::Card(Model::X550)];
            exchange(&Setup { ports, cores: 2, words: "program=forward", queues: 2, line: "ixgbe" })
        }),
        card("card::to_virtio_and_back", || {
            let ports = &[SFP, Kind::Virtio];
            exchange(&Setup { ports, cores: 2, words: "program=forward", queues: 2, line: "ixgbe" })
        }),
        card("card::tags_stay_in_the_frame", tags_stay),
        card("card::a_frame_longer_than_a_buffer_is_counted", oversize::is_counted_and_others_flow),
        card("card::a_link_that_flaps", || faults(SFP, &Misfortune::flaps())),
    ];
    trials.extend(virtual_function::trials());
    if let Some(minutes) = soak_minutes() {
        let body = move || faults(SFP, &Misfortune::soak(minutes));
        trials.push(test_with(&[Need::CardsFromOutside], "card::soak", body));
        let body = move || faults(Kind::Lent(Model::X540), &virtual_function::soak(minutes));
        trials.push(test_with(&[Need::CardsFromOutside], "card::virtual_function::soak", body));
    }
    trials
}

/// A kind of port.
#[derive(Clone, Copy)]
enum Kind {
    Card(Model),
    /// A virtual function of a card.
    Lent(Model),
    Virtio,
}

/// An image with ports of these kinds.
struct Setup {
    ports: &'static [Kind],
    cores: usize,
    words: &'static str,
    /// Transmit queues of each card that send.
    queues: usize,
    /// What the image says of its first port at boot.
    line: &'static str,
}

/// 1,000 flows cross the image from every port; nothing is lost, changed or out of order, and every buffer comes home.
fn exchange(setup: &Setup) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let count = setup.ports.len();
    let transform = if count == 1 { Transform::MacsSwapped } else { Transform::Unchanged };
    let lanes = Lane::several(count, FRAMES, transform);
    let leaving = |port: usize| &lanes[if count == 1 { port } else { port ^ 1 }];
    let ports: Vec<_> = (0..count)
        .map(|port| Port::listen(&folder, port, setup, &lanes[port], leaving(port)))
        .collect::<Result<_>>()?;
    let guest = boot(&ports, setup.cores, setup.words)?;
    let line = guest.wait_for_line(|line| line.contains("port 0 ixgbe"), PATIENCE)?.text;
    ensure!(line.contains(setup.line), "no {} in {line}", setup.line);
    if let Some((_, plan)) = line.split_once(" tx=shared") {
        let warning = format!("port 0: cores take turns at the TX queues: shared{plan}");
        ensure!(guest.log().contains(&warning), "no warning that {warning}:\n{}", guest.log());
    }
    wait_for_links(&guest, &ports)?;
    for port in &ports {
        if let Port::Virtio(port) = port {
            port.wait_running(setup.cores, PATIENCE)?;
        }
    }
    for (number, port) in ports.iter().enumerate() {
        port.start(lanes[number].source(), leaving(number).sink());
    }
    for (number, lane) in lanes.iter().enumerate() {
        lane.wait_for_all().with_context(|| {
            let drops = guest.metrics().map(|metrics| metrics.count("sluice_drops_total", &[]));
            format!("from port {number}, {drops:?} dropped by the image\n{}", guest.log())
        })?;
    }
    check_stopped(&guest.stop()?, count)?;
    ports.into_iter().try_for_each(|port| port.stop(setup.queues))
}

fn boot(ports: &[Port], cores: usize, words: &str) -> Result<Guest> {
    let machine = Machine::new(image()?).cpus(cores).memory_mib(512).words("on-panic=exit").words(words);
    let machine = machine.time_limit(Some(Duration::from_secs(600)));
    let guest = ports.iter().fold(machine, |machine, port| machine.port(port.spec())).start()?;
    guest.wait_ready(PATIENCE)?;
    Ok(guest)
}

/// What is sent on a link that is still down is lost.
fn wait_for_links(guest: &Guest, ports: &[Port]) -> Result<()> {
    let cards = ports.iter().filter(|port| matches!(port, Port::Card(_))).count();
    let links = || guest.lines().iter().filter(|line| line.text.contains("link up, ")).count();
    wait_until(guest, "the links are up", || links() >= cards)
}

/// A port of either kind.
enum Port {
    Card(CardPort),
    Virtio(TrafficPort),
}

impl Port {
    /// A port that lane `enters` goes in at, and lane `leaves` comes out of.
    fn listen(folder: &TempDir, number: usize, setup: &Setup, enters: &Lane, leaves: &Lane) -> Result<Self> {
        let (takes, gives) = (Some(enters.window()), Some(leaves.window()));
        let path = folder.path().join(format!("port{number}"));
        match setup.ports[number] {
            Kind::Card(_) | Kind::Lent(_) => {
                plug_in(path, setup.ports[number], number, Cable::Traffic { takes, gives }).map(Self::Card)
            }
            Kind::Virtio => {
                let config =
                    TrafficConfig { queue_pairs: setup.cores as u16, takes, gives, ..Default::default() };
                TrafficPort::listen(path, config).map(Self::Virtio)
            }
        }
    }

    fn spec(&self) -> PortSpec {
        match self {
            Self::Card(card) => card.spec(),
            Self::Virtio(port) => port.spec(),
        }
    }

    fn start(&self, source: impl Source, sink: impl Sink) {
        match self {
            Self::Card(card) => card.start(source, sink),
            Self::Virtio(port) => port.start(source, sink),
        }
    }

    fn stop(self, queues: usize) -> Result<()> {
        match self {
            Self::Card(card) => {
                let report = card.stop();
                let used = report.cable.queues_out();
                ensure!(used == queues, "{used} queues sent, not {queues}");
                nothing_is_wrong(&report)
            }
            Self::Virtio(port) => {
                let report = port.stop();
                ensure!(report.faults.total() == 0, "{report}");
                Ok(())
            }
        }
    }
}

/// A card of this kind, or a virtual function of one, as port `number`. What is for others comes in to no function of an 82599,
/// so a function has the address that its flows are for.
fn plug_in(path: PathBuf, kind: Kind, number: usize, cable: Cable) -> Result<CardPort> {
    match kind {
        Kind::Card(model) => CardPort::listen(path, CardOptions { model, ..Default::default() }, cable),
        Kind::Lent(model) => {
            let mac = Flows::destination(number as u16);
            let options = CardOptions { model, mac, ..Default::default() };
            CardPort::listen_virtual(path, options, Policy::default(), cable)
        }
        Kind::Virtio => bail!("a virtio port is no card"),
    }
}

/// What real silicon punishes was not done, and nothing was done that the model does not know.
pub(crate) fn nothing_is_wrong(report: &CardReport) -> Result<()> {
    ensure!(report.violations.is_empty() && report.unknown.is_empty(), "{report}");
    Ok(())
}

/// A card whose frames the image reflects, and what came back.
struct Mirror {
    guest: Guest,
    card: CardPort,
    came_back: Receiver<Vec<u8>>,
    _folder: TempDir,
}

impl Mirror {
    /// Boots the image, and sends it these frames.
    fn before(frames: Vec<Vec<u8>>) -> Result<Mirror> {
        let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
        let cable = Cable::Traffic { takes: None, gives: None };
        let card = CardPort::listen(folder.path().join("card"), CardOptions::default(), cable)?;
        let port = [Port::Card(card)];
        let guest = boot(&port, 1, "program=reflect")?;
        let [Port::Card(card)] = port else { unreachable!("it was made above") };
        let mut frames = frames.into_iter();
        let source =
            move |frame: &mut Vec<u8>| frames.next().is_some_and(|next| frame.write_all(&next).is_ok());
        let (sender, came_back) = channel();
        card.start(source, move |_: u16, frame: &[u8]| drop(sender.send(frame.to_vec())));
        Ok(Mirror { guest, card, came_back, _folder: folder })
    }

    /// The next frame that comes back.
    fn next(&self) -> Result<Vec<u8>> {
        self.came_back.recv_timeout(PATIENCE).context("a frame did not come back")
    }

    /// Ends it; nothing was done that a card punishes.
    fn stop(self) -> Result<StopReport> {
        let report = self.guest.stop()?;
        check_stopped(&report, 1)?;
        nothing_is_wrong(&self.card.stop())?;
        Ok(report)
    }
}

/// Frames with one VLAN tag and with two come back as they went in, but for their addresses.
fn tags_stay() -> Result<()> {
    let frames = [tagged(&[0x8100_2064]), tagged(&[0x88a8_0065, 0x8100_e066])];
    let mirror = Mirror::before(frames.to_vec())?;
    for frame in frames {
        let (back, expected) = (mirror.next()?, reflected(&frame));
        ensure!(back == expected, "{back:02x?} is not {expected:02x?}");
    }
    mirror.stop().map(drop)
}

/// An experimental frame of 80 bytes with these tags, protocol and control information each.
fn tagged(tags: &[u32]) -> Vec<u8> {
    let mut frame = vec![0x02, 0, 0, 0, 0, 1, 0x02, 0, 0, 0, 0, 2];
    frame.extend(tags.iter().flat_map(|tag| tag.to_be_bytes()));
    frame.extend([0x88, 0xb5]);
    frame.resize(80, 0x5a);
    frame
}

// ---------------------------------------------------------------------------------------------------------- misfortune

/// What befalls the cards, one fault after the other.
struct Misfortune {
    /// The next fault, for all cards.
    strike: fn(&[CardPort], usize),
    /// Between two of them.
    pause: Duration,
    lasts: Duration,
    /// What the model may say in the end.
    verdict: fn(&CardReport) -> Result<()>,
}

/// How long to soak, from `SLUICE_SOAK`; not at all where that is absent.
fn soak_minutes() -> Option<u64> {
    let minutes = std::env::var("SLUICE_SOAK").ok()?;
    Some(minutes.parse().unwrap_or_else(|_| panic!("SLUICE_SOAK={minutes} is no number of minutes")))
}

impl Misfortune {
    /// The cable is pulled and plugged in again, twenty times.
    fn flaps() -> Self {
        Self {
            strike: |cards, turn| {
                inject(cards, if turn.is_multiple_of(2) { Fault::LinkDown } else { Fault::LinkUp });
            },
            pause: Duration::from_millis(100),
            lasts: Duration::from_secs(4),
            verdict: nothing_is_wrong,
        }
    }

    /// Everything that the image has to live through, in any order.
    fn soak(minutes: u64) -> Self {
        Self {
            strike: |cards, _| inject(cards, any_fault()),
            pause: Duration::from_secs(3),
            lasts: Duration::from_secs(60 * minutes),
            verdict: nothing_is_unknown,
        }
    }
}

fn inject(cards: &[CardPort], fault: Fault) {
    cards.iter().for_each(|card| card.with_card(|card| card.inject(fault)));
}

fn any_fault() -> Fault {
    const FAULTS: [Fault; 7] = [
        Fault::LinkDown,
        Fault::LinkUp,
        Fault::LostCompletions { queue: 0, count: 3 },
        Fault::TransmitHang { queue: 1 },
        Fault::ReceiveStall { queue: 0 },
        Fault::SpontaneousReset,
        Fault::NeedsSecondReset,
    ];
    let fault = FAULTS[any_below(FAULTS.len())];
    eprintln!("soak: {fault:?}");
    fault
}

/// Any number below `end`, from the standard library's only source of chance.
fn any_below(end: usize) -> usize {
    RandomState::new().hash_one(()) as usize % end
}

/// A card that resets itself makes its driver break rules before it can know.
fn nothing_is_unknown(report: &CardReport) -> Result<()> {
    ensure!(report.unknown.is_empty(), "{report}");
    Ok(())
}

/// Two ports of a kind under traffic without an end meet with misfortune; frames come out again afterwards, every frame is
/// accounted for, and every buffer comes home.
fn faults(kind: Kind, misfortune: &Misfortune) -> Result<()> {
    let folder = tempfile::Builder::new().prefix("sluice-test-").tempdir()?;
    let cards: Vec<_> = (0..2)
        .map(|port| {
            let cable = Cable::Traffic { takes: None, gives: None };
            plug_in(folder.path().join(format!("port{port}")), kind, port, cable)
        })
        .collect::<Result<_>>()?;
    let machine = Machine::new(image()?).cpus(2).memory_mib(256).words("on-panic=exit program=forward");
    let limit = misfortune.lasts + Duration::from_secs(300);
    let machine = cards.iter().fold(machine, |machine, card| machine.port(card.spec()));
    let guest = machine.time_limit(Some(limit)).start()?;
    guest.wait_ready(PATIENCE)?;

    let flowing = Arc::new(AtomicBool::new(true));
    for (number, card) in cards.iter().enumerate() {
        card.start(endless(number, &flowing), |_: u16, _: &[u8]| {});
    }
    let begin = Instant::now();
    for turn in (0..).take_while(|_| begin.elapsed() < misfortune.lasts) {
        (misfortune.strike)(&cards, turn);
        std::thread::sleep(misfortune.pause);
    }
    inject(&cards, Fault::LinkUp);
    for card in &cards {
        card.with_host(|host, card| host.set_link(card, 0, LentLink::Given));
    }
    for card in &cards {
        let before = card.report().cable.frames_out();
        wait_until(&guest, "frames come out", || card.report().cable.frames_out() >= before + 1_000)?;
    }
    flowing.store(false, Ordering::Relaxed);
    let report = guest.stop()?;
    ensure!(report.pool > 0 && report.home == report.pool, "{} of {} buffers home", report.home, report.pool);
    check_balance(&report.metrics, cards.len())?;
    cards.into_iter().try_for_each(|card| (misfortune.verdict)(&card.stop()))
}

/// Flows without an end, while they flow.
fn endless(number: usize, flowing: &Arc<AtomicBool>) -> impl Source + use<> {
    let mut flows = Flows::new(number as u16, 1000, 1000 * u64::from(u32::MAX));
    let flowing = Arc::clone(flowing);
    move |frame: &mut Vec<u8>| flowing.load(Ordering::Relaxed) && qemu::Source::next(&mut flows, frame)
}
