//! A host on the other end of the wire: smoltcp over a traffic port.

use std::collections::BTreeSet;
use std::net::Ipv4Addr;
use std::sync::mpsc::Receiver;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use qemu::vhost::TrafficPort;
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{ChecksumCapabilities, Device, DeviceCapabilities, RxToken, TxToken};
use smoltcp::socket::{icmp, tcp};
use smoltcp::time::Instant as Time;
use smoltcp::wire::{EthernetAddress, Icmpv4Packet, Icmpv4Repr, IpCidr};

use crate::frames::noise;
use crate::process::PATIENCE;

/// The address of the image's stack.
pub(super) const STACK: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const PEER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 2);
const PEER_MAC: EthernetAddress = EthernetAddress([0x02, 0, 0, 0, 0, 0x99]);
/// What this host's pings are told by.
const IDENT: u16 = 0x51c3;
const ECHO_PORT: u16 = 7;
/// Pings on their way at a time: the way to a stack is a bounded queue, and a machine that is busy may let them pile up.
const PINGS_AT_A_TIME: usize = 32;
/// Between two looks at the wire, and between two pings.
const STEP: Duration = Duration::from_millis(1);

/// The host.
pub(super) struct Peer<'t> {
    interface: Interface,
    sockets: SocketSet<'static>,
    wire: Wire<'t>,
}

impl<'t> Peer<'t> {
    /// A host that sends into `port`; what comes out for it arrives at `inbound`.
    pub(super) fn new(port: &'t TrafficPort, inbound: Receiver<Vec<u8>>) -> Self {
        let mut wire = Wire { port, inbound };
        let mut interface = Interface::new(Config::new(PEER_MAC.into()), &mut wire, Time::now());
        interface.update_ip_addrs(|addresses| {
            addresses.push(IpCidr::new(PEER.into(), 24)).expect("there is room for one");
        });
        Self { interface, sockets: SocketSet::new(Vec::new()), wire }
    }

    /// Pings the stack so many times, and waits for all answers.
    pub(super) fn ping(&mut self, count: u16) -> Result<()> {
        let buffer = || icmp::PacketBuffer::new(vec![icmp::PacketMetadata::EMPTY; 64], vec![0; 64 * 1024]);
        let mut socket = icmp::Socket::new(buffer(), buffer());
        socket.bind(icmp::Endpoint::Ident(IDENT))?;
        let handle = self.sockets.add(socket);

        let mut sent = 0;
        let mut answered = BTreeSet::new();
        let deadline = Instant::now() + PATIENCE;
        while answered.len() < count.into() {
            ensure!(Instant::now() < deadline, "{} of {count} pings came back", answered.len());
            let socket = self.sockets.get_mut::<icmp::Socket<'_>>(handle);
            let on_their_way = usize::from(sent) - answered.len();
            if sent < count && on_their_way < PINGS_AT_A_TIME && socket.can_send() {
                socket.send_slice(&echo_request(sent), STACK.into())?;
                sent += 1;
            }
            while let Ok((packet, _)) = self.sockets.get_mut::<icmp::Socket<'_>>(handle).recv() {
                answered.insert(sequence(packet)?);
            }
            self.step();
        }
        Ok(())
    }

    /// Sends so many bytes to the echo service, closes its half, and compares what comes back.
    pub(super) fn echo(&mut self, total: usize) -> Result<()> {
        let data: Vec<u8> = noise(total).take(total).collect();
        let handle = self.connect()?;
        let (mut sent, mut received) = (0, 0);
        let deadline = Instant::now() + PATIENCE;
        loop {
            ensure!(Instant::now() < deadline, "{sent} of {total} bytes went, {received} came back");
            let socket = self.sockets.get_mut::<tcp::Socket<'_>>(handle);
            if socket.can_send() && sent < total {
                sent += socket.send_slice(&data[sent..])?;
                if sent == total {
                    socket.close();
                }
            }
            while socket.can_recv() {
                let piece = socket.recv(|bytes| (bytes.len(), bytes.to_vec()))?;
                ensure!(data[received..].starts_with(&piece), "other bytes came back behind byte {received}");
                received += piece.len();
            }
            if received == total && !socket.may_recv() {
                return Ok(());
            }
            self.step();
        }
    }

    fn connect(&mut self) -> Result<SocketHandle> {
        let buffer = || tcp::SocketBuffer::new(vec![0; 16 * 1024]);
        let mut socket = tcp::Socket::new(buffer(), buffer());
        let opened = socket.connect(self.interface.context(), (STACK, ECHO_PORT), 40_000);
        opened?;
        Ok(self.sockets.add(socket))
    }

    fn step(&mut self) {
        self.interface.poll(Time::now(), &mut self.wire, &mut self.sockets);
        sleep(STEP);
    }
}

fn echo_request(sequence: u16) -> Vec<u8> {
    let request = Icmpv4Repr::EchoRequest { ident: IDENT, seq_no: sequence, data: &[0x5a; 32] };
    let mut packet = vec![0; request.buffer_len()];
    request.emit(&mut Icmpv4Packet::new_unchecked(&mut packet), &ChecksumCapabilities::default());
    packet
}

/// The sequence number of an answer.
fn sequence(packet: &[u8]) -> Result<u16> {
    match Icmpv4Repr::parse(&Icmpv4Packet::new_checked(packet)?, &ChecksumCapabilities::default())? {
        Icmpv4Repr::EchoReply { ident: IDENT, seq_no, data: [0x5a, ..] } => Ok(seq_no),
        other => Err(anyhow!("no answer to a ping: {other:?}")),
    }
}

/// This host's end of the wire.
struct Wire<'t> {
    port: &'t TrafficPort,
    inbound: Receiver<Vec<u8>>,
}

impl Device for Wire<'_> {
    type RxToken<'a>
        = Received
    where
        Self: 'a;
    type TxToken<'a>
        = Sender<'a>
    where
        Self: 'a;

    fn receive(&mut self, _now: Time) -> Option<(Received, Sender<'_>)> {
        let frame = self.inbound.try_recv().ok()?;
        Some((Received(frame), Sender(self.port)))
    }

    fn transmit(&mut self, _now: Time) -> Option<Sender<'_>> {
        Some(Sender(self.port))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.max_transmission_unit = 1514;
        capabilities
    }
}

struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, look: F) -> R {
        look(&self.0)
    }
}

struct Sender<'a>(&'a TrafficPort);

impl TxToken for Sender<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut frame = vec![0; len];
        let result = write(&mut frame);
        self.0.inject(frame);
        result
    }
}
