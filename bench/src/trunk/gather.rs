//! The programs: senders at one end, the root of gathers at the other. Threads of this
//! process, with sockets in the lab's machines.
//!
//! In a gather the root asks every sender for a message and waits for all. It takes at
//! least a round trip and the time that the link needs for all bytes: the ideal.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use isthmus_lab::Machine;
use isthmus_lab::grid::Slow;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::unistd::{Pid, gettid};
use socket2::{Domain, Socket, Type};

use crate::account::{thread_cpu_time, waiting_thread_cpu_time};

/// The port at which the root listens.
pub(super) const ROOT_PORT: u16 = 7000;
/// Longest wait for a connection, or until anything moves in a gather.
const PATIENCE: Duration = Duration::from_secs(60);
/// Least number of gathers that precede those that count.
const WARM_UP_GATHERS: usize = 2;
/// Least duration of the gathers that don't count. A trunk dials its carriers meanwhile.
const WARM_UP: Duration = Duration::from_millis(300);
/// Most gathers that count, as in the paper. `LEAST_GATHERS` is their least number.
const MOST_GATHERS: usize = 200;
const LEAST_GATHERS: usize = 2;
/// Bytes of a ping's message.
const PING: usize = 64;
/// Least pings for a 99th percentile. Fewer are an error.
const LEAST_PINGS: usize = 100;
/// Pings that suffice for a 99th percentile.
const ENOUGH_PINGS: usize = 500;
/// Longest time of a series of pings, however few they are.
const LONGEST_PINGS: Duration = Duration::from_secs(30);
/// Pause between a ping's answer and the next ping.
const BETWEEN_PINGS: Duration = Duration::from_millis(1);

/// The address that senders connect to, and their congestion control.
#[derive(Debug, Clone, Copy)]
pub(super) struct SenderOptions {
    pub address: SocketAddr,
    /// TCP congestion control of the senders' sockets. `None` for the default.
    pub congestion: Option<&'static str>,
}

/// Connections between senders and the root. The senders end with this value.
#[derive(Debug)]
pub(super) struct Connected {
    root: Vec<TcpStream>,
    senders: Vec<Sender>,
}

/// The thread of a sender.
#[derive(Debug)]
struct Sender {
    id: Pid,
    thread: JoinHandle<io::Result<()>>,
}

impl Sender {
    fn start(socket: TcpStream) -> anyhow::Result<Self> {
        let (id_tx, id_rx) = mpsc::channel();
        let thread = thread::spawn(move || {
            // Nobody listens only if this process ends.
            let _ = id_tx.send(gettid());
            send(socket)
        });
        Ok(Self { id: id_rx.recv().context("a sender has not begun")?, thread })
    }
}

impl Connected {
    /// Connects so many senders to the root's listener.
    ///
    /// # Errors
    /// A connection isn't made in time.
    pub(super) fn new(
        near: Machine<'_>,
        listener: &TcpListener,
        options: SenderOptions,
        senders: usize,
    ) -> anyhow::Result<Self> {
        let mut connected = Self { root: Vec::new(), senders: Vec::new() };
        for _ in 0..senders {
            let [sender, root] = pair(near, listener, options)?;
            connected.root.push(root);
            connected.senders.push(Sender::start(sender)?);
        }
        Ok(connected)
    }

    /// Gathers a message of `size` bytes from each sender. Returns how long that took.
    pub(super) fn gather(&self, size: u64, buffer: &mut [u8]) -> anyhow::Result<Duration> {
        let start = Instant::now();
        for mut socket in &self.root {
            socket.write_all(&size.to_be_bytes())?;
        }
        let mut left: Vec<(&TcpStream, u64)> = self.root.iter().map(|socket| (socket, size)).collect();
        while !left.is_empty() {
            let mut waiting: Vec<PollFd<'_>> =
                left.iter().map(|(socket, _)| PollFd::new(socket.as_fd(), PollFlags::POLLIN)).collect();
            let timeout = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
            ensure!(poll(&mut waiting, timeout)? > 0, "nothing has come for {PATIENCE:?}");
            let ready: Vec<bool> = waiting.iter().map(|one| one.any() == Some(true)).collect();
            for ((socket, bytes), _) in left.iter_mut().zip(ready).filter(|(_, ready)| *ready) {
                let most = buffer.len().min(usize::try_from(*bytes)?);
                match (*socket).read(&mut buffer[..most])? {
                    0 => bail!("a sender's connection ended {bytes} bytes too early"),
                    read => *bytes -= read as u64,
                }
            }
            left.retain(|(_, bytes)| *bytes > 0);
        }
        Ok(start.elapsed())
    }

    /// Processor time of all senders, and of the root, which is the calling thread. To be called between
    /// gathers.
    ///
    /// # Errors
    /// A sender has ended.
    pub(super) fn processor_time(&self) -> anyhow::Result<[Duration; 2]> {
        let senders = self.senders.iter().map(|sender| waiting_thread_cpu_time(sender.id));
        let senders = senders.collect::<anyhow::Result<Vec<_>>>()?;
        Ok([senders.into_iter().sum(), thread_cpu_time()?])
    }

    /// Has the first sender send without a pause, and counts its bytes, until `stop`.
    pub(super) fn stream(&self, bytes: &AtomicU64, stop: &AtomicBool) {
        let Some(mut socket) = self.root.first() else { return };
        if socket.write_all(&u64::MAX.to_be_bytes()).is_err() {
            return;
        }
        let mut buffer = vec![0; 256 << 10];
        while !stop.load(Ordering::Relaxed) {
            match socket.read(&mut buffer) {
                Ok(read) if read > 0 => bytes.fetch_add(read as u64, Ordering::Relaxed),
                _ => return,
            };
        }
    }

    /// Gathers for `duration`, as it is without slow motion. Returns how long each gather that counts
    /// took. `begin` is called between those that don't count and those that do.
    ///
    /// # Errors
    /// A connection breaks, or nothing moves.
    pub(super) fn gathers<T>(
        &self,
        size: u64,
        duration: Duration,
        slow: Slow,
        begin: impl FnOnce() -> anyhow::Result<T>,
    ) -> anyhow::Result<(Vec<Duration>, T)> {
        let mut buffer = vec![0; 256 << 10];
        let start = Instant::now();
        let mut warm = 0;
        while warm < WARM_UP_GATHERS || start.elapsed() < slow.time(WARM_UP) {
            self.gather(size, &mut buffer)?;
            warm += 1;
        }
        let begun = begin()?;
        let start = Instant::now();
        let mut took = Vec::new();
        while took.len() < LEAST_GATHERS
            || (took.len() < MOST_GATHERS && start.elapsed() < slow.time(duration))
        {
            took.push(self.gather(size, &mut buffer)?);
        }
        Ok((took, begun))
    }
}

impl Drop for Connected {
    fn drop(&mut self) {
        for socket in &self.root {
            // Broken already, if it fails; senders end either way.
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
        for sender in self.senders.drain(..) {
            let _ = sender.thread.join();
        }
    }
}

/// Connects a sender to the root. Returns the sockets of both, the sender's first.
fn pair(near: Machine<'_>, listener: &TcpListener, options: SenderOptions) -> anyhow::Result<[TcpStream; 2]> {
    let connecting = near.in_network(|| connect(options))?;
    let sender = connecting.with_context(|| format!("cannot connect to {}", options.address))?;
    let mut waiting = [PollFd::new(listener.as_fd(), PollFlags::POLLIN)];
    let timeout = PollTimeout::try_from(PATIENCE).unwrap_or(PollTimeout::MAX);
    ensure!(poll(&mut waiting, timeout)? > 0, "no connection has come to the root");
    let root = listener.accept()?.0;
    for socket in [&sender, &root] {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
    }
    Ok([sender, root])
}

fn connect(options: SenderOptions) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(congestion) = options.congestion {
        socket.set_tcp_congestion(congestion.as_bytes())?;
    }
    socket.connect_timeout(&options.address.into(), PATIENCE)?;
    Ok(socket.into())
}

/// Sends as many bytes as the root asks for, until the root ends the connection.
fn send(mut socket: TcpStream) -> io::Result<()> {
    let chunk = vec![7; 256 << 10];
    loop {
        let mut size = [0; 8];
        match socket.read_exact(&mut size) {
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            done => done?,
        }
        let mut left = u64::from_be_bytes(size);
        while left > 0 {
            let most = chunk.len().min(usize::try_from(left).unwrap_or(usize::MAX));
            left -= socket.write(&chunk[..most])? as u64;
        }
    }
}

/// Round trips of small messages beside gathers, for at least `duration`, as it is without slow
/// motion. They take connections of the same kind.
///
/// # Errors
/// A connection breaks, nothing moves, or there are too few round trips.
pub(super) fn pings(
    near: Machine<'_>,
    listener: &TcpListener,
    (options, senders, size): (SenderOptions, usize, u64),
    duration: Duration,
    slow: Slow,
) -> anyhow::Result<Vec<Duration>> {
    let [duration, warm_up, longest, between] =
        [duration, WARM_UP, LONGEST_PINGS, BETWEEN_PINGS].map(|time| slow.time(time));
    let bulk = Connected::new(near, listener, options, senders)?;
    let [mut asking, mut answering] = pair(near, listener, options)?;
    let answers = thread::spawn(move || -> io::Result<()> {
        let mut message = [0; PING];
        loop {
            answering.read_exact(&mut message)?;
            answering.write_all(&message)?;
        }
    });
    let done = AtomicBool::new(false);
    let found = thread::scope(|scope| {
        let gathers = scope.spawn(|| {
            let mut buffer = vec![0; 256 << 10];
            while !done.load(Ordering::Relaxed) {
                bulk.gather(size, &mut buffer)?;
            }
            anyhow::Ok(())
        });
        let mut ask = || -> anyhow::Result<Vec<Duration>> {
            let start = Instant::now();
            let mut took = Vec::new();
            let mut message = [3; PING];
            while !gathers.is_finished() {
                let sent = Instant::now();
                asking.write_all(&message)?;
                asking.read_exact(&mut message)?;
                if start.elapsed() > warm_up {
                    took.push(sent.elapsed());
                }
                let enough = took.len() >= ENOUGH_PINGS && start.elapsed() > warm_up + duration;
                if enough || start.elapsed() > longest {
                    break;
                }
                thread::sleep(between);
            }
            Ok(took)
        };
        let asked = ask();
        done.store(true, Ordering::Relaxed);
        gathers.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        asked
    })?;
    // The answering thread ends with its connection.
    let _ = asking.shutdown(std::net::Shutdown::Both);
    let _ = answers.join();
    ensure!(found.len() >= LEAST_PINGS, "{} pings are too few", found.len());
    Ok(found)
}

/// The root's listener in the machine `far`.
///
/// # Errors
/// The port can't be listened at.
pub(super) fn listen(far: Machine<'_>) -> anyhow::Result<TcpListener> {
    Ok(far.in_network(|| TcpListener::bind((Ipv4Addr::UNSPECIFIED, ROOT_PORT)))??)
}
