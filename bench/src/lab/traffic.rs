//! Programs at both ends of a link: threads whose sockets are in the machines.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use isthmus_lab::Machine;
use nix::sys::socket::{setsockopt, sockopt};

/// A packet that takes longer is lost.
const PATIENCE: Duration = Duration::from_secs(1);

/// Kernel buffers large enough for every link measured here.
const BUFFER: usize = 64 << 20;

/// Two connected UDP sockets.
fn sockets(from: Machine<'_>, to: Machine<'_>) -> anyhow::Result<[UdpSocket; 2]> {
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
    let (near, far) = (from.in_network(bind)??, to.in_network(bind)??);
    near.connect((to.address(), far.local_addr()?.port()))?;
    far.connect((from.address(), near.local_addr()?.port()))?;
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(PATIENCE))?;
        setsockopt(socket, sockopt::RcvBufForce, &BUFFER)?;
        setsockopt(socket, sockopt::SndBuf, &(4 << 20))?;
    }
    Ok([near, far])
}

/// Round trips of small UDP packets, one every `gap`, in milliseconds.
pub fn round_trips(
    from: Machine<'_>,
    to: Machine<'_>,
    count: usize,
    gap: Duration,
) -> anyhow::Result<Vec<f64>> {
    let [near, far] = sockets(from, to)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut buffer = [0; 64];
            while !over.load(Ordering::Relaxed) {
                if let Ok(length) = far.recv(&mut buffer) {
                    // The one who asks notices what didn't come back.
                    let _ = far.send(&buffer[..length]);
                }
            }
        });
        let ask = || -> anyhow::Result<Vec<f64>> {
            let mut times = Vec::with_capacity(count);
            let mut buffer = [0; 64];
            for number in 0..count {
                let start = Instant::now();
                near.send(&number.to_be_bytes())?;
                loop {
                    let length = near.recv(&mut buffer).context("an echo is lost")?;
                    if buffer[..length] == number.to_be_bytes() {
                        break;
                    }
                }
                times.push(start.elapsed().as_secs_f64() * 1e3);
                thread::sleep(gap.saturating_sub(start.elapsed()));
            }
            Ok(times)
        };
        let times = ask();
        over.store(true, Ordering::Relaxed);
        times
    })
}

/// What a stream of numbered packets met.
#[derive(Debug, Default, Clone)]
pub struct Arrivals {
    /// Packets sent.
    pub sent: u64,
    /// Number and one-way time in milliseconds of each that arrived.
    pub packets: Vec<(u64, f64)>,
    /// Time from the first packet to the last, as sent.
    pub sending: Duration,
}

/// Sends UDP packets of so many bytes, IP header included, one every `gap`.
pub fn paced(
    from: Machine<'_>,
    to: Machine<'_>,
    count: u64,
    length: usize,
    gap: Duration,
) -> anyhow::Result<Arrivals> {
    const HEADERS: usize = 28;
    let [near, far] = sockets(from, to)?;
    let start = Instant::now();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut packets = Vec::new();
            let mut buffer = [0; 2048];
            loop {
                match far.recv(&mut buffer) {
                    Ok(_) => {
                        let elapsed = start.elapsed().as_secs_f64();
                        let field = |at: usize| {
                            let mut bytes = [0; 8];
                            bytes.copy_from_slice(&buffer[at..at + 8]);
                            u64::from_be_bytes(bytes)
                        };
                        packets.push((field(0), (elapsed - field(8) as f64 / 1e9) * 1e3));
                        if field(0) + 1 == count {
                            return packets;
                        }
                    }
                    Err(_) if done.load(Ordering::Relaxed) => return packets,
                    Err(_) => {}
                }
            }
        });
        let send = || -> anyhow::Result<Duration> {
            let mut packet = vec![0; length.saturating_sub(HEADERS).max(16)];
            let first = Instant::now();
            for number in 0..count {
                let due = gap * number as u32;
                while first.elapsed() < due {
                    let left = due.saturating_sub(first.elapsed());
                    // A sleep ends late: the last of the wait is looked away.
                    thread::sleep(left.saturating_sub(Duration::from_micros(100)));
                }
                packet[..8].copy_from_slice(&number.to_be_bytes());
                packet[8..16].copy_from_slice(&(start.elapsed().as_nanos() as u64).to_be_bytes());
                near.send(&packet)?;
            }
            Ok(first.elapsed())
        };
        let sending = send();
        done.store(true, Ordering::Relaxed);
        let packets = receiver.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))?;
        Ok(Arrivals { sent: count, packets, sending: sending? })
    })
}

/// What a flood of packets met.
#[derive(Debug, Default, Clone, Copy)]
pub struct Flood {
    /// Packets sent.
    pub sent: u64,
    /// Packets that arrived.
    pub received: u64,
    /// Runs of packets that didn't.
    pub bursts: u64,
    /// How long it took.
    pub time: Duration,
}

/// Sends small UDP packets as fast as they arrive, until so many are sent or
/// the time is over.
pub fn flood(from: Machine<'_>, to: Machine<'_>, count: u64, longest: Duration) -> anyhow::Result<Flood> {
    const LENGTH: usize = 32;
    /// Packets of one system call.
    const BATCH: usize = 32;
    /// Packets on their way at most: no queue but the link's is ever full.
    const WINDOW: u64 = 2_000;
    let [near, far] = sockets(from, to)?;
    setsockopt(&near, sockopt::UdpGsoSegment, &(LENGTH as i32))?;
    let next = AtomicU64::new(0);
    let done = AtomicBool::new(false);
    let start = Instant::now();
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let (mut received, mut bursts, mut expected) = (0, 0, 0);
            let mut buffer = [0; 64];
            loop {
                match far.recv(&mut buffer) {
                    Ok(_) => {
                        let mut bytes = [0; 8];
                        bytes.copy_from_slice(&buffer[..8]);
                        let number = u64::from_be_bytes(bytes);
                        bursts += u64::from(number > expected);
                        expected = number + 1;
                        received += 1;
                        next.store(expected, Ordering::Release);
                    }
                    Err(_) if done.load(Ordering::Relaxed) => return (received, bursts, expected),
                    // All that was on its way is lost: the sender goes on.
                    Err(_) => {
                        next.fetch_add(WINDOW / 2, Ordering::AcqRel);
                    }
                }
            }
        });
        let send = || -> anyhow::Result<u64> {
            let mut batch = [0; LENGTH * BATCH];
            let mut sent = 0;
            while sent < count && start.elapsed() < longest {
                if sent.saturating_sub(next.load(Ordering::Acquire)) > WINDOW {
                    thread::sleep(Duration::from_micros(50));
                    continue;
                }
                for packet in batch.chunks_exact_mut(LENGTH) {
                    packet[..8].copy_from_slice(&sent.to_be_bytes());
                    sent += 1;
                }
                near.send(&batch)?;
            }
            Ok(sent)
        };
        let sent = send();
        let time = start.elapsed();
        done.store(true, Ordering::Relaxed);
        let (received, bursts, expected) =
            receiver.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))?;
        let sent = sent?;
        Ok(Flood { sent, received, bursts: bursts + u64::from(expected < sent), time })
    })
}

/// One TCP connection's goodput in bits per second, after `warm_up`.
pub fn stream(from: Machine<'_>, to: Machine<'_>, warm_up: Duration, time: Duration) -> anyhow::Result<f64> {
    let listener = to.in_network(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)))??;
    // Before the connection, so that the window's scale allows it.
    setsockopt(&listener, sockopt::RcvBufForce, &BUFFER)?;
    let address = SocketAddr::from((to.address(), listener.local_addr()?.port()));
    let mut near = from.in_network(|| TcpStream::connect_timeout(&address, 3 * PATIENCE))??;
    setsockopt(&near, sockopt::SndBufForce, &BUFFER)?;
    let (mut far, _) = listener.accept()?;
    near.set_write_timeout(Some(3 * PATIENCE))?;
    far.set_read_timeout(Some(3 * PATIENCE))?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let chunk = vec![0x5a; 256 << 10];
            // The receiver closes when it has seen enough.
            while !over.load(Ordering::Relaxed) && near.write_all(&chunk).is_ok() {}
        });
        let mut receive = || -> anyhow::Result<f64> {
            let mut chunk = vec![0; 256 << 10];
            let start = Instant::now();
            let (mut total, mut counted_from) = (0u64, None);
            loop {
                let read = far.read(&mut chunk)?;
                ensure!(read > 0, "the connection ended early");
                let elapsed = start.elapsed();
                match counted_from {
                    None if elapsed >= warm_up => counted_from = Some(elapsed),
                    None => {}
                    Some(from) => {
                        total += read as u64;
                        if elapsed - from >= time {
                            return Ok(total as f64 * 8.0 / (elapsed - from).as_secs_f64());
                        }
                    }
                }
            }
        };
        let rate = receive();
        over.store(true, Ordering::Relaxed);
        // Wakes a sender that waits for room.
        let _ = far.shutdown(std::net::Shutdown::Both);
        drop(far);
        rate
    })
}
