//! `isthmus-raw`: sends and captures raw packets for an agent. It communicates
//! only with the agent that started it, over the socket at its standard input.

mod helper;

use std::process::ExitCode;

use nix::sys::signal::{SigSet, Signal};

const HELP: &str = "\
isthmus-raw: raw packets for `isthmus agent`, which starts it. Don't start it by hand.

It does two things for the dial `traverse`:
- It connects a socket of the agent's, and sends the agent the SYN that left.
- It injects a SYN from the agent into this host's IP stack, if the SYN is for
  the agent's own listener.

It needs the capability CAP_NET_RAW, and drops every other one. If the agent
doesn't run as root, give the capability to the file:
  setcap cap_net_raw=ep isthmus-raw
Without it isthmus works, but its plans leave `traverse` out.";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => match blocked().and_then(|()| helper::run(std::io::stdin())) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("isthmus-raw: {error}");
                ExitCode::FAILURE
            }
        },
        Some("--help" | "-h") => {
            println!("{HELP}");
            ExitCode::SUCCESS
        }
        Some("--version" | "-V") => {
            println!("isthmus-raw {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some(other) => {
            eprintln!("isthmus-raw: unknown argument {other:?}; see isthmus-raw --help");
            ExitCode::from(2)
        }
    }
}

/// Blocks the signals that a batch system sends to all processes of a job step before its time is over
/// (sbatch(1), `--signal`).
fn blocked() -> std::io::Result<()> {
    let notices: SigSet = [Signal::SIGUSR1, Signal::SIGUSR2].into_iter().collect();
    Ok(notices.thread_block()?)
}
