//! `isthmus lab capture`.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use clap_complete::engine::ArgValueCandidates;

use super::interrupt::Interrupt;
use super::{Which, complete, output};
use crate::capture::Until;

/// The captured interface, and the capture's limits.
#[derive(Debug, clap::Args)]
pub struct CaptureArgs {
    /// Which of the running labs is meant.
    #[command(flatten)]
    which: Which,
    /// A link (SITE, HOST) or a node (NODE.SITE).
    #[arg(value_name = "LINK|NODE", add = ArgValueCandidates::new(complete::targets))]
    target: String,
    /// Write to this file [default: standard output].
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// At the other end: for a link at the wide area's router, for a node at its site's.
    #[arg(long)]
    far: bool,
    /// End after this time [default: at ctrl-C].
    #[arg(long = "for", value_name = "TIME", value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// End after so many packets.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

pub(super) fn capture(args: &CaptureArgs) -> anyhow::Result<ExitCode> {
    if args.out.is_none() && io::stdout().is_terminal() {
        bail!(
            "packets are nothing for a terminal: give --out FILE, or pipe into a program that reads pcap, \
             such as | tcpdump -nr - or | wireshark -k -i -"
        );
    }
    let capture = args.which.running()?.capture(&args.target, args.far)?;
    let interrupt = Interrupt::prepare()?;
    let out: Box<dyn Write> = match &args.out {
        Some(path) => {
            let file = output::create(path, 0o600);
            Box::new(file.with_context(|| format!("cannot write {}", path.display()))?)
        }
        None => Box::new(io::stdout().lock()),
    };
    eprintln!("capturing at {} of {}", capture.end().interface, capture.end().machine);
    let until = Until { count: args.count, time: args.time };
    let captured = capture.write_to(out, until, Some(interrupt.as_fd()))?;
    let packets = if captured.packets == 1 { "packet" } else { "packets" };
    eprintln!("{} {packets} captured, {} dropped by the kernel", captured.packets, captured.dropped);
    Ok(ExitCode::SUCCESS)
}
