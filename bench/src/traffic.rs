//! The two programs whose traffic is measured: one that answers, one that asks
//! for ping-pongs or sends streams.
//!
//! A connection begins with eight bytes: what it will be (1 ping-pong, 2
//! stream), three zero bytes, and the size of a ping. A ping is sent back as it
//! came; a stream, once it has ended, is answered with the number of bytes that
//! came, so that the sender's clock stops when all of it has arrived. Kind 3
//! ends the program that answers.

mod serve;

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream, ToSocketAddrs as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use clap::{Args, Parser, Subcommand};
use isthmus_wire::ticket::TICKET_LEN;
use nix::errno::Errno;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, setsid};
use serde::{Deserialize, Serialize};

/// Longest wait for a single read or write, so that a benchmark doesn't hang.
const PATIENCE: Duration = Duration::from_secs(20);
/// Pause between two tries to connect to a listener that isn't there yet.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);
/// Bytes that a stream's sender by default writes at once, and its receiver reads.
const CHUNK_BYTES: usize = 256 << 10;
/// How many ping-pongs precede those that count.
const WARM_UP: usize = 200;

const PING_PONG: u8 = 1;
const STREAM: u8 = 2;
const STOP: u8 = 3;

/// One end of the traffic.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Answer every connection. With --relay, also dial the relay once for each
    /// ticket on the standard input, and answer there.
    Serve {
        /// The address to listen at.
        #[arg(long)]
        listen: SocketAddr,
        /// The address of the relay.
        #[arg(long)]
        relay: Option<SocketAddr>,
        #[command(flatten)]
        place: Place,
    },
    /// Measure round trips; prints a `Latency` as JSON.
    Ping {
        #[command(flatten)]
        peer: PeerArgs,
        /// Bytes of a message.
        #[arg(long, default_value_t = 64)]
        size: u32,
        #[command(flatten)]
        begin: Begin,
    },
    /// Measure streams; prints a `Throughput` as JSON.
    Stream {
        #[command(flatten)]
        peer: PeerArgs,
        /// Number of streams at once.
        #[arg(long, default_value_t = 1)]
        streams: usize,
        /// Bytes of a message: each is written by one call.
        #[arg(long, default_value_t = CHUNK_BYTES)]
        message: usize,
        #[command(flatten)]
        begin: Begin,
    },
    /// Make connections, one after the other; prints a `Connecting` as JSON.
    Connect {
        #[command(flatten)]
        peer: PeerArgs,
        /// Number of connections.
        #[arg(long, default_value_t = 1)]
        count: u32,
    },
    /// End the program that answers.
    Stop {
        #[command(flatten)]
        peer: PeerArgs,
    },
    /// Carry out these commands, one on each line of the standard input: so a program
    /// that stands in a job gets its measurements.
    Obey(Place),
}

/// Where a program runs.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Place {
    /// On the first core that it may use. So what a message costs doesn't depend on where the
    /// other end happens to run.
    #[arg(long)]
    one_core: bool,
}

impl Place {
    fn take(self) -> anyhow::Result<()> {
        if !self.one_core {
            return Ok(());
        }
        let this = Pid::from_raw(0);
        let allowed = sched_getaffinity(this)?;
        let is_allowed = |core: &usize| allowed.is_set(*core).unwrap_or(false);
        let first = (0..CpuSet::count()).find(is_allowed).context("no core may be used")?;
        let mut only = CpuSet::new();
        only.set(first)?;
        sched_setaffinity(this, &only)?;
        // The scheduler groups processes by sessions (autogroup in sched(7)), and a switch between
        // two groups takes longer than one within a group. So each program has its own, as in a job.
        match setsid() {
            // It leads a session already.
            Ok(_) | Err(Errno::EPERM) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// The peer that is connected to, and for how long.
#[derive(Debug, Args)]
pub(crate) struct PeerArgs {
    /// Where to connect, HOST:PORT; tried for a while until there is a listener.
    address: String,
    /// First show a ticket, read from the standard input.
    #[arg(long)]
    tickets: bool,
    /// How long to measure.
    #[arg(long, default_value = "2s")]
    duration: humantime::Duration,
}

/// When a sender begins to send.
#[derive(Debug, Clone, Copy, Args)]
pub(crate) struct Begin {
    /// Print `{}` when connected, and begin at the next line of the standard
    /// input: so several senders begin at once.
    #[arg(long)]
    wait: bool,
}

impl Begin {
    fn now(self) -> io::Result<()> {
        if self.wait {
            println!("{{}}");
            io::stdin().read_line(&mut String::new())?;
        }
        Ok(())
    }
}

/// The result of [`Command::Ping`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Latency {
    /// Median of half the round trips, in seconds.
    pub half_rtt_seconds: f64,
    /// How many round trips were measured.
    pub round_trips: usize,
    /// How many messages were sent in both directions, before the measurement as well.
    pub messages: u64,
}

/// The result of [`Command::Connect`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Connecting {
    /// How many connections were made.
    pub connections: u32,
}

/// The result of [`Command::Stream`].
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Throughput {
    /// Bytes of all streams that arrived.
    pub bytes: u64,
    /// Time from the first byte sent to the last byte confirmed.
    pub seconds: f64,
}

/// Plays one end of the traffic.
///
/// # Errors
/// A connection fails.
pub(crate) fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve { listen, relay, place } => {
            place.take()?;
            serve::serve(listen, relay)
        }
        Command::Ping { peer, size, begin } => {
            let stream = connect(&peer)?;
            begin.now()?;
            let latency = ping(&stream, size, *peer.duration)?;
            println!("{}", serde_json::to_string(&latency)?);
            Ok(())
        }
        Command::Stream { peer, streams, message, begin } => {
            ensure!(message > 0, "--message must be at least 1");
            let streams: Vec<_> = (0..streams).map(|_| connect(&peer)).collect::<Result<_, _>>()?;
            begin.now()?;
            println!("{}", serde_json::to_string(&stream(streams, message, *peer.duration)?)?);
            Ok(())
        }
        Command::Connect { peer, count } => {
            for _ in 0..count {
                // The peer waits for messages until the connection ends.
                connect(&peer)?.write_all(&header(PING_PONG, 1))?;
            }
            println!("{}", serde_json::to_string(&Connecting { connections: count })?);
            Ok(())
        }
        Command::Stop { peer } => Ok(connect(&peer)?.write_all(&header(STOP, 0))?),
        Command::Obey(place) => {
            place.take()?;
            // Commands are read line by line, since the command itself may read the next lines.
            let mut line = String::new();
            while io::stdin().read_line(&mut line)? > 0 {
                run(Line::try_parse_from(line.split_whitespace())?.command)?;
                line.clear();
            }
            Ok(())
        }
    }
}

fn connect(peer: &PeerArgs) -> anyhow::Result<TcpStream> {
    let start = Instant::now();
    let mut stream = loop {
        match resolve(&peer.address).and_then(dial) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && start.elapsed() < PATIENCE => {
                thread::sleep(BETWEEN_TRIES);
            }
            outcome => break outcome.with_context(|| format!("cannot connect to {}", peer.address))?,
        }
    };
    if peer.tickets {
        let mut ticket = [0; TICKET_LEN];
        io::stdin().read_exact(&mut ticket).context("no ticket on the standard input")?;
        stream.write_all(&ticket)?;
    }
    Ok(stream)
}

fn resolve(address: &str) -> io::Result<SocketAddr> {
    address.to_socket_addrs()?.next().ok_or_else(|| ErrorKind::NotFound.into())
}

fn dial(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    prepare(&stream)?;
    Ok(stream)
}

fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

fn ping(mut stream: &TcpStream, size: u32, duration: Duration) -> anyhow::Result<Latency> {
    let mut message = vec![0x5a; usize::try_from(size)?];
    stream.write_all(&header(PING_PONG, size))?;
    let mut round_trips = Vec::new();
    let began = Instant::now();
    let mut start = began;
    let (mut warm_up, mut messages) = (WARM_UP, 0);
    // At least one round trip counts, however late this thread comes to run.
    while round_trips.is_empty() || start.elapsed() < duration {
        let sent = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        messages += 2;
        if warm_up > 0 {
            // Large messages warm up sooner.
            warm_up = if began.elapsed() > duration / 4 { 0 } else { warm_up - 1 };
            start = Instant::now();
        } else {
            round_trips.push(sent.elapsed().as_secs_f64());
        }
    }
    Ok(Latency {
        half_rtt_seconds: crate::verdict::median(&round_trips) / 2.0,
        round_trips: round_trips.len(),
        messages,
    })
}

fn stream(streams: Vec<TcpStream>, message: usize, duration: Duration) -> anyhow::Result<Throughput> {
    let start = Instant::now();
    let senders: Vec<_> = streams
        .into_iter()
        .map(|mut stream| {
            thread::spawn(move || -> io::Result<u64> {
                let message = vec![0x5a; message];
                stream.write_all(&header(STREAM, 0))?;
                // At least one message is sent, however late this thread comes to run.
                loop {
                    stream.write_all(&message)?;
                    if start.elapsed() >= duration {
                        break;
                    }
                }
                stream.shutdown(Shutdown::Write)?;
                let mut arrived = [0; 8];
                stream.read_exact(&mut arrived)?;
                Ok(u64::from_be_bytes(arrived))
            })
        })
        .collect();
    let mut bytes = 0;
    for sender in senders {
        bytes += sender.join().map_err(|_| anyhow::anyhow!("a sender panicked"))??;
    }
    Ok(Throughput { bytes, seconds: start.elapsed().as_secs_f64() })
}

fn header(kind: u8, size: u32) -> [u8; 8] {
    let mut header = [0; 8];
    header[0] = kind;
    header[4..].copy_from_slice(&size.to_be_bytes());
    header
}
