//! Programs at both ends of a link: threads whose sockets are in the machines.

use std::io::{self, IoSliceMut, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, ensure};
use isthmus_lab::Machine;
use nix::sys::socket::{ControlMessageOwned, MsgFlags, recvmsg, setsockopt, sockopt};
use nix::sys::time::TimeSpec;

/// When a packet counts as lost: no packet takes longer.
const PATIENCE: Duration = Duration::from_secs(1);

/// Size in bytes of kernel buffers, large enough for every measured link.
const BUFFER: usize = 64 << 20;

/// Two connected UDP sockets. The kernel notes when their packets arrive. So however long a program
/// then waits for a processor, the measured time is the link's.
fn sockets(from: Machine<'_>, to: Machine<'_>) -> anyhow::Result<[UdpSocket; 2]> {
    let bind = || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0));
    let (near, far) = (from.in_network(bind)??, to.in_network(bind)??);
    near.connect((to.address(), far.local_addr()?.port()))?;
    far.connect((from.address(), near.local_addr()?.port()))?;
    for socket in [&near, &far] {
        socket.set_read_timeout(Some(PATIENCE))?;
        setsockopt(socket, sockopt::RcvBufForce, &BUFFER)?;
        setsockopt(socket, sockopt::SndBuf, &(4 << 20))?;
        setsockopt(socket, sockopt::ReceiveTimestampns, &true)?;
    }
    Ok([near, far])
}

/// Time since the epoch, by the clock that stamps packets.
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// Receives a packet: its number, and the milliseconds from its sender's call to its receiver's
/// kernel. `None` if none comes for a while.
fn receive(socket: &UdpSocket) -> Option<(u64, f64)> {
    let mut buffer = [0; 2048];
    let mut control = nix::cmsg_space!(TimeSpec);
    let mut parts = [IoSliceMut::new(&mut buffer)];
    let message =
        recvmsg::<()>(socket.as_raw_fd(), &mut parts, Some(&mut control), MsgFlags::empty()).ok()?;
    let arrived = message.cmsgs().ok()?.find_map(|control| match control {
        ControlMessageOwned::ScmTimestampns(time) => Some(Duration::from(time)),
        _ => None,
    })?;
    let field =
        |at: usize| -> Option<u64> { Some(u64::from_be_bytes(buffer.get(at..at + 8)?.try_into().ok()?)) };
    let took = arrived.as_secs_f64() - Duration::from_nanos(field(8)?).as_secs_f64();
    Some((field(0)?, took * 1e3))
}

/// Sends a packet with its number and the present time.
fn send(socket: &UdpSocket, packet: &mut [u8], number: u64) -> io::Result<()> {
    packet[..8].copy_from_slice(&number.to_be_bytes());
    packet[8..16].copy_from_slice(&(now().as_nanos() as u64).to_be_bytes());
    socket.send(packet).map(drop)
}

/// Round trips in milliseconds of small UDP packets, of which each leaves `gap` after the one
/// before. They count the ways there and back, without the time that the answering end takes.
pub(super) fn round_trips(
    from: Machine<'_>,
    to: Machine<'_>,
    count: u64,
    gap: Duration,
) -> anyhow::Result<Vec<f64>> {
    let [near, far] = sockets(from, to)?;
    thread::scope(|scope| {
        let answers = scope.spawn(|| -> anyhow::Result<Vec<f64>> {
            let mut there = Vec::new();
            while (there.len() as u64) < count {
                let (number, took) = receive(&far).context("a packet is lost")?;
                there.push(took);
                send(&far, &mut [0; 64], number)?;
            }
            Ok(there)
        });
        let ask = || -> anyhow::Result<Vec<f64>> {
            (0..count)
                .map(|number| {
                    let start = Instant::now();
                    send(&near, &mut [0; 64], number)?;
                    let (answered, took) = receive(&near).context("an answer is lost")?;
                    ensure!(answered == number, "packets are not in order");
                    thread::sleep(gap.saturating_sub(start.elapsed()));
                    Ok(took)
                })
                .collect()
        };
        let back = ask();
        let there = answers.join().map_err(|_| anyhow::anyhow!("the one who answers panicked"))?;
        Ok(there?.iter().zip(back?).map(|(there, back)| there + back).collect())
    })
}

/// What became of a stream of numbered packets.
#[derive(Debug, Default, Clone)]
pub(super) struct Arrivals {
    /// The packets that arrived, each with its number and its one-way time in milliseconds.
    pub packets: Vec<(u64, f64)>,
    /// When each packet was sent, in seconds since the first packet.
    pub sent_at: Vec<f64>,
}

/// Sends `count` UDP packets of `length` bytes, IP header included, a packet every `gap`. A sender
/// that is held up goes on at its pace and doesn't catch up.
pub(super) fn paced(
    from: Machine<'_>,
    to: Machine<'_>,
    count: u64,
    length: usize,
    gap: Duration,
) -> anyhow::Result<Arrivals> {
    const HEADERS: usize = 28;
    const HELD_UP: Duration = Duration::from_millis(2);
    let [near, far] = sockets(from, to)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut packets = Vec::new();
            loop {
                match receive(&far) {
                    Some(packet) => {
                        packets.push(packet);
                        if packet.0 + 1 == count {
                            return packets;
                        }
                    }
                    None if done.load(Ordering::Relaxed) => return packets,
                    None => {}
                }
            }
        });
        let pace = || -> anyhow::Result<Vec<f64>> {
            let mut sent_at = Vec::new();
            let mut packet = vec![0; length.saturating_sub(HEADERS).max(16)];
            let first = Instant::now();
            let mut due = first;
            for number in 0..count {
                loop {
                    let left = due.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        break;
                    }
                    // A sleep ends late: the last of the wait is looked away.
                    thread::sleep(left.saturating_sub(Duration::from_micros(100)));
                }
                send(&near, &mut packet, number)?;
                sent_at.push(first.elapsed().as_secs_f64());
                due = (due + gap).max(Instant::now() - HELD_UP);
            }
            Ok(sent_at)
        };
        let sent_at = pace();
        done.store(true, Ordering::Relaxed);
        let packets = receiver.join().map_err(|_| anyhow::anyhow!("the receiver panicked"))?;
        Ok(Arrivals { packets, sent_at: sent_at? })
    })
}

/// What became of a flood of packets.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Flood {
    /// How many packets were sent.
    pub sent: u64,
    /// How many packets arrived.
    pub received: u64,
    /// How many runs of packets in a row were lost.
    pub bursts: u64,
    /// How long the flood took.
    pub time: Duration,
}

/// Sends small UDP packets as fast as they arrive, until `count` are sent or `longest` is over.
pub(super) fn flood(
    from: Machine<'_>,
    to: Machine<'_>,
    count: u64,
    longest: Duration,
) -> anyhow::Result<Flood> {
    const LENGTH: usize = 32;
    /// How many packets a system call sends.
    const BATCH: usize = 32;
    /// Most packets under way, so that no queue but the link's is ever full.
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

/// Goodput of a TCP connection in bits per second, measured after `warm_up`.
pub(super) fn stream(
    from: Machine<'_>,
    to: Machine<'_>,
    warm_up: Duration,
    time: Duration,
) -> anyhow::Result<f64> {
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
            while !over.load(Ordering::Relaxed) {
                if near.write_all(&chunk).is_err() {
                    break;
                }
            }
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
