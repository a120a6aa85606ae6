//! The two programs whose traffic is measured: one that answers, one that asks
//! for ping-pongs or sends streams.
//!
//! A connection begins with eight bytes: what it will be (1 ping-pong, 2
//! stream), three zero bytes, and the size of a ping. A ping is sent back as it
//! came; a stream, once it has ended, is answered with the number of bytes that
//! came, so that the sender's clock stops when all of it has arrived. Kind 3
//! ends the program that answers.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs as _};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::{Args, Parser, Subcommand};
use isthmus_wire::ticket::TICKET_LEN;
use serde::{Deserialize, Serialize};

/// Longest wait for a single read or write; a benchmark doesn't hang.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two tries to connect to somebody who isn't there yet.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);
/// What a stream's sender writes, and its receiver reads, at once.
const CHUNK_BYTES: usize = 256 << 10;
/// Ping-pongs before those that count.
const WARM_UP: usize = 200;

const PING_PONG: u8 = 1;
const STREAM: u8 = 2;
const STOP: u8 = 3;

/// One end of the traffic.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Answer whoever connects; with --relay also dial it once for each ticket
    /// that comes on the standard input, and answer there.
    Serve {
        /// Where to listen.
        #[arg(long)]
        listen: SocketAddr,
        /// The relay.
        #[arg(long)]
        relay: Option<SocketAddr>,
    },
    /// Measure round trips; prints a `Latency` as JSON.
    Ping {
        #[command(flatten)]
        target: Target,
        /// Bytes of a message.
        #[arg(long, default_value_t = 64)]
        size: u32,
    },
    /// Measure streams; prints a `Throughput` as JSON.
    Stream {
        #[command(flatten)]
        target: Target,
        /// Number of streams at once.
        #[arg(long, default_value_t = 1)]
        streams: usize,
    },
    /// End the program that answers.
    Stop {
        #[command(flatten)]
        target: Target,
    },
    /// Do what the lines of the standard input say, each of them one of these
    /// commands; how a program that stands in a job is told what to measure.
    Obey,
}

#[derive(Debug, Parser)]
#[command(no_binary_name = true)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

/// With whom, for how long.
#[derive(Debug, Args)]
pub struct Target {
    /// Where to connect, HOST:PORT; tried again for a while if nobody listens
    /// there yet.
    address: String,
    /// First show a ticket, read from the standard input.
    #[arg(long)]
    tickets: bool,
    /// How long to measure.
    #[arg(long, default_value = "2s")]
    duration: humantime::Duration,
}

/// What [`Command::Ping`] found.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Latency {
    /// Median of half the round trips, seconds.
    pub half_rtt_seconds: f64,
    /// Round trips measured.
    pub round_trips: usize,
}

/// What [`Command::Stream`] found.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Throughput {
    /// Bytes that arrived, all streams.
    pub bytes: u64,
    /// From the first byte sent to the last confirmed.
    pub seconds: f64,
}

/// Plays one end.
///
/// # Errors
/// If a connection fails.
pub fn run(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Serve { listen, relay } => serve(listen, relay),
        Command::Ping { target, size } => {
            let latency = ping(&connect(&target)?, size, *target.duration)?;
            println!("{}", serde_json::to_string(&latency)?);
            Ok(())
        }
        Command::Stream { target, streams } => {
            let streams: Vec<_> = (0..streams).map(|_| connect(&target)).collect::<Result<_, _>>()?;
            println!("{}", serde_json::to_string(&stream(streams, *target.duration)?)?);
            Ok(())
        }
        Command::Stop { target } => Ok(connect(&target)?.write_all(&header(STOP, 0))?),
        Command::Obey => {
            for line in io::stdin().lines() {
                run(Line::try_parse_from(line?.split_whitespace())?.command)?;
            }
            Ok(())
        }
    }
}

fn connect(target: &Target) -> anyhow::Result<TcpStream> {
    let start = Instant::now();
    let mut stream = loop {
        match resolve(&target.address).and_then(dial) {
            Err(error) if error.kind() == ErrorKind::ConnectionRefused && start.elapsed() < PATIENCE => {
                thread::sleep(BETWEEN_TRIES);
            }
            outcome => break outcome.with_context(|| format!("cannot connect to {}", target.address))?,
        }
    };
    if target.tickets {
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
    let mut start = Instant::now();
    let mut warm_up = WARM_UP;
    while warm_up > 0 || start.elapsed() < duration {
        let sent = Instant::now();
        stream.write_all(&message)?;
        stream.read_exact(&mut message)?;
        if warm_up > 0 {
            warm_up -= 1;
            start = Instant::now();
        } else {
            round_trips.push(sent.elapsed().as_secs_f64());
        }
    }
    Ok(Latency {
        half_rtt_seconds: crate::report::median(&round_trips) / 2.0,
        round_trips: round_trips.len(),
    })
}

fn stream(streams: Vec<TcpStream>, duration: Duration) -> anyhow::Result<Throughput> {
    let start = Instant::now();
    let senders: Vec<_> = streams
        .into_iter()
        .map(|mut stream| {
            thread::spawn(move || -> io::Result<u64> {
                let chunk = vec![0x5a; CHUNK_BYTES];
                stream.write_all(&header(STREAM, 0))?;
                while start.elapsed() < duration {
                    stream.write_all(&chunk)?;
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

fn serve(listen: SocketAddr, relay: Option<SocketAddr>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    if let Some(relay) = relay {
        thread::spawn(move || {
            let mut ticket = [0; TICKET_LEN];
            while io::stdin().read_exact(&mut ticket).is_ok() {
                report(dial(relay).and_then(|mut stream| {
                    stream.write_all(&ticket)?;
                    Ok(stream)
                }));
            }
        });
    }
    for stream in listener.incoming() {
        report(stream);
    }
    Ok(())
}

/// Answers on a connection, in a thread of its own; says what goes wrong.
fn report(stream: io::Result<TcpStream>) {
    thread::spawn(move || {
        if let Err(error) = stream.and_then(answer) {
            eprintln!("a connection failed: {error}");
        }
    });
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    prepare(&stream)?;
    let mut header = [0; 8];
    match stream.read_exact(&mut header) {
        // Somebody who looked whether anybody listens.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
        outcome => outcome?,
    }
    let [kind, _, _, _, size @ ..] = header;
    if kind == STOP {
        std::process::exit(0);
    }
    if kind == PING_PONG {
        let mut message = vec![0; u32::from_be_bytes(size) as usize];
        loop {
            match stream.read_exact(&mut message) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                outcome => outcome?,
            }
            stream.write_all(&message)?;
        }
    }
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut arrived = 0;
    loop {
        match stream.read(&mut chunk)? {
            0 => break,
            read => arrived += read as u64,
        }
    }
    stream.write_all(&u64::to_be_bytes(arrived))
}
