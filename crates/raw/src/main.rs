//! `isthmus-raw`: sends and captures raw packets for an agent. It communicates only
//! with the agent that started it, over the socket that is its standard
//! input.

mod helper;

use std::process::ExitCode;

const HELP: &str = "\
isthmus-raw: raw packets for `isthmus agent`, which starts it; it is of no use by hand.

It does two things for the dial `traverse`: it connects a socket of the agent's
and tells it the segment (SYN) that left, and it puts such a segment that came
another way into this host's IP stack, if it is for the agent's own listener.

It needs the capability CAP_NET_RAW and gives up every other one. Where the
agent doesn't run as root, give it to the file:
  setcap cap_net_raw=ep isthmus-raw
Without, isthmus works all the same, and leaves `traverse` out of its plans.";

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        None => match helper::run(std::io::stdin()) {
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
