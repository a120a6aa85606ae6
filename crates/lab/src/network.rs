//! Interfaces, addresses, routes and packet filters, by iproute2 and
//! nftables: run by the keeper, in the network namespaces of its machines.

mod settle;

use std::env;
use std::ffi::OsString;
use std::io::{ErrorKind::NotFound, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, setns};

use crate::emulator::ROUTER_MAC;
use crate::topology::Topology;

/// Why the network can't be set up.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A program is missing.
    #[error(
        "cannot run {program}: {cause}; the lab needs iproute2 and nftables (Debian: apt install iproute2 nftables)"
    )]
    Missing {
        /// Which.
        program: &'static str,
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
/// A search path with the directories of the system's own programs at its
/// end, where ordinary users' often lack them.
pub fn with_system_directories(path: Option<OsString>) -> OsString {
    let path = path.unwrap_or_default();
    let given = env::split_paths(&path).filter(|directory| !directory.as_os_str().is_empty());
    let all = given.chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    // What was split at colons holds none.
    env::join_paths(all).unwrap_or(path.clone())
}

fn find_program(name: &str) -> Option<PathBuf> {
    let path = with_system_directories(env::var_os("PATH"));
    env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

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
        let missing = |cause| NetworkError::Missing { program, cause };
        let mut command = Command::new(find_program(program).ok_or_else(|| missing(NotFound.into()))?);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
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
        let mut child = command.spawn().map_err(missing)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ended early says itself why.
            let _ = stdin.write_all(input.as_bytes());
        }
        Ok(Self { place, program, input, child })
    }

    fn finish(self) -> Result<(), NetworkError> {
        let Self { place, program, input, child } = self;
        let output = child.wait_with_output().map_err(|cause| NetworkError::Missing { program, cause })?;
        if output.status.success() {
            return Ok(());
        }
        let message = String::from_utf8_lossy(&output.stderr).trim().to_owned();
        Err(NetworkError::Refused { place: place.to_owned(), program, message, input })
    }
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

/// The emulator's end of one end of a link, by the link's number and 0 for the
/// near or 1 for the far end.
pub fn emulator_interface(link: usize, side: usize) -> String {
    format!("link{link}-{side}")
}

/// Lays the wires between machines and the emulator, for links that end at
/// packet sockets. The emulator's ends are in the caller's own network
/// namespace, which has nothing else.
pub fn wire_emulator(topology: &Topology, pids: &[i32]) -> Result<(), NetworkError> {
    let mut input = String::new();
    for (number, link) in topology.links.iter().enumerate() {
        for (side, port) in [&link.near, &link.far].into_iter().enumerate() {
            let end = emulator_interface(number, side);
            input.push_str(&format!(
                "link add {end} type veth peer name {} netns {} address {ROUTER_MAC}\n",
                port.interface, pids[port.machine]
            ));
            input.push_str(&format!("link set {end} arp off up\n"));
        }
    }
    Running::start("wires to the emulator", None, "ip", &["-batch", "-"], input)?.finish()
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
