//! Echo on TCP.

use forwarder::stack::{CONNECTIONS, Duration, ECHO_PORT};
use smoltcp::iface::SocketHandle;
use smoltcp::socket::tcp::{Socket, State};
use smoltcp::wire::IpAddress;

use crate::rig::{Loss, Rig, STACK_IPV4, STACK_IPV6};

/// Byte `index` of what connection `seed` sends.
fn pattern(seed: usize, index: usize) -> u8 {
    let word = (index / 8 + seed * 7919).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word.to_le_bytes()[index % 8]
}

/// One connection that sends `total` bytes, closes its half, and compares what comes back.
struct Transfer {
    handle: SocketHandle,
    seed: usize,
    total: usize,
    sent: usize,
    received: usize,
}

impl Transfer {
    fn start(rig: &mut Rig, address: IpAddress, seed: usize, total: usize) -> Transfer {
        let local = 40_000 + seed as u16;
        let handle = rig.peer.connect(address, ECHO_PORT, local, 32 * 1024);
        Transfer { handle, seed, total, sent: 0, received: 0 }
    }

    /// Writes and reads what can be; says whether all has come back and the connection is closed.
    fn advance(&mut self, rig: &mut Rig) -> bool {
        let socket = rig.peer.socket::<Socket<'_>>(self.handle);
        while socket.can_send() && self.sent < self.total {
            let chunk: Vec<u8> =
                (self.sent..self.total.min(self.sent + 4096)).map(|i| pattern(self.seed, i)).collect();
            self.sent += socket.send_slice(&chunk).expect("an open half");
            if self.sent == self.total {
                socket.close();
            }
        }
        while socket.can_recv() {
            let received = socket.recv(|data| (data.len(), data.to_vec())).expect("data");
            for byte in received {
                assert_eq!(
                    byte,
                    pattern(self.seed, self.received),
                    "byte {} of {}",
                    self.received,
                    self.seed
                );
                self.received += 1;
            }
        }
        self.received == self.total && matches!(socket.state(), State::TimeWait | State::Closed)
    }
}

#[test]
fn ten_megabytes_come_back_over_a_lossy_wire() {
    let mut rig = Rig::new();
    rig.loss = Loss::one_in(100);
    let mut transfer = Transfer::start(&mut rig, STACK_IPV4, 1, 10_000_000);
    rig.run_until(Duration::from_secs(3_600), |rig| transfer.advance(rig));
    println!("{} of virtual time", rig.now);
    rig.finish();
}
