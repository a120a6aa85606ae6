//! Interfaces, addresses, routes and packet filters, by iproute2 and
//! nftables: run by the keeper, in the network namespaces of its machines.

mod settle;

use std::io::Write;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, setns};

use crate::state::MachineRecord;
use crate::topology::Topology;

/// Why the network can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A program is missing.
    #[error(
        "cannot run {program}: {cause}; the lab needs iproute2 and nftables, and conntrack to tamper with NATs \
         (Debian: apt install iproute2 nftables conntrack)"
    )]
    Missing {
        /// Which.
        program: &'static str,
        /// What the system said.
        cause: std::io::Error,
    },
    /// The machine isn't there.
    #[error("machine {place} is gone: {cause}")]
    Gone {
        /// Which.
        place: String,
        /// What the system said.
        cause: std::io::Error,
    },
    /// A program refused.
    #[error("{place}: {program} failed: {message}\nits input was:\n{input}")]
    Refused {
        /// The machine it ran in.
        place: String,
        /// Which program.
        program: &'static str,
        /// What it said.
        message: String,
        /// What it was told.
        input: String,
    },
    /// An interface carries nothing.
    #[error("{place}: interface {interface} was not up within {limit} s", limit = settle::WITHIN.as_secs())]
    Down {
        /// The machine.
        place: String,
        /// Its interface.
        interface: String,
    },
    /// The interfaces can't be asked.
    #[error("cannot ask for the state of interfaces: {0}")]
    State(nix::Error),
}

/// Number of the first wire's first interface, above those that the kernel
/// gives others.
const FIRST_INDEX: u32 = 1000;

/// A program at work in a network namespace.
struct Running<'a> {
    place: &'a str,
    program: &'static str,
    input: String,
    child: Child,
}

impl<'a> Running<'a> {
    fn start(
        place: &'a str,
        namespace: Option<BorrowedFd<'_>>,
        program: &'static str,
        arguments: &[&str],
        input: String,
    ) -> Result<Self, NetworkError> {
        let mut command = Command::new(program);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C at the terminal is not for it, half-way through.
        command.process_group(0);
        if let Some(namespace) = namespace.map(|fd| std::os::fd::AsRawFd::as_raw_fd(&fd)) {
            // SAFETY: setns is one system call, allowed between fork and exec;
            // the caller keeps the descriptor open until the spawn returns.
            unsafe {
                command.pre_exec(move || {
                    let namespace = BorrowedFd::borrow_raw(namespace);
                    Ok(setns(namespace, CloneFlags::CLONE_NEWNET)?)
                });
            }
        }
        let missing = |cause| NetworkError::Missing { program, cause };
        let mut child = command.spawn().map_err(missing)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ended early says itself why.
            let _ = stdin.write_all(input.as_bytes());
        }
        Ok(Self { place, program, input, child })
    }

    fn finish(self) -> Result<(), NetworkError> {
        self.output().map(drop)
    }

    /// Waits for it to end; what it printed.
    fn output(self) -> Result<String, NetworkError> {
        let Self { place, program, input, child } = self;
        let output = child.wait_with_output().map_err(|cause| NetworkError::Missing { program, cause })?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(NetworkError::Refused { place: place.to_owned(), program, message, input })
    }
}

/// Runs a program on the network of a machine of a running lab, with `input`;
/// what it printed.
pub fn run_in(
    machine: &MachineRecord,
    program: &'static str,
    arguments: &[&str],
    input: String,
) -> Result<String, NetworkError> {
    let gone = |cause| NetworkError::Gone { place: machine.name.clone(), cause };
    let init = machine.init.open().map_err(gone)?;
    Running::start(&machine.name, Some(init.as_fd()), program, arguments, input)?.output()
}

/// Lays the wires between machines, whose first processes are `pids`. The
/// caller's own network namespace gets nothing.
pub fn wire(topology: &Topology, pids: &[i32]) -> Result<(), NetworkError> {
    let mut input = String::new();
    // Each end has a number of its own in the whole lab: where both ends of a
    // veth pair happen to have the same, the kernel takes them for no pair
    // and may not notice for a second that the other end is up.
    for ([a, b], number) in topology.wires.iter().zip((FIRST_INDEX..).step_by(2)) {
        input.push_str(&format!(
            "link add {} index {number} netns {} type veth peer name {} index {} netns {}\n",
            a.interface,
            pids[a.machine],
            b.interface,
            number + 1,
            pids[b.machine]
        ));
    }
    Running::start("wires", None, "ip", &["-batch", "-"], input)?.finish()
}

/// Configures every machine; `namespaces` are their network namespaces.
pub fn configure(topology: &Topology, namespaces: &[OwnedFd]) -> Result<(), NetworkError> {
    let mut running = Vec::new();
    for (machine, namespace) in topology.machines.iter().zip(namespaces) {
        let input = machine.ip_commands.join("\n") + "\n";
        running.push(Running::start(&machine.name, Some(namespace.as_fd()), "ip", &["-batch", "-"], input)?);
        if !machine.tc_commands.is_empty() {
            let input = machine.tc_commands.join("\n") + "\n";
            running.push(Running::start(
                &machine.name,
                Some(namespace.as_fd()),
                "tc",
                &["-batch", "-"],
                input,
            )?);
        }
        if let Some(rules) = &machine.rules {
            let input = rules.clone();
            running.push(Running::start(&machine.name, Some(namespace.as_fd()), "nft", &["-f", "-"], input)?);
        }
    }
    running.into_iter().try_for_each(Running::finish)?;
    settle::wait(topology, namespaces)
}
