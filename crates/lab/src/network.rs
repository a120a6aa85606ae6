//! Interfaces, addresses, routes and packet filters, by iproute2 and
//! nftables: run by the keeper, in the network namespaces of its machines.

mod settle;

use std::env;
use std::ffi::OsString;
use std::io::{ErrorKind::NotFound, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use nix::sched::{CloneFlags, setns};

use crate::emulator::router_mac;
use crate::rootless;
use crate::state::MachineRecord;
use crate::topology::Topology;

/// Why a lab's or machine's network can't be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum NetworkError {
    /// A program that the lab needs can't be run.
    #[error(
        "cannot run {program}: {cause}; the lab needs iproute2 and nftables, and conntrack to tamper with NATs \
         (Debian: apt install iproute2 nftables conntrack)"
    )]
    Missing {
        /// Name of the program.
        program: &'static str,
        /// The system's error at running the program.
        cause: std::io::Error,
    },
    /// The machine has ended.
    #[error("machine {place} is gone: {cause}")]
    Gone {
        /// Name of the machine.
        place: String,
        /// The system's error at looking for the machine's first process.
        cause: std::io::Error,
    },
    /// A program failed in a machine.
    #[error("{place}: {program} failed: {message}\nits input was:\n{input}")]
    Refused {
        /// Name of the machine, or what the program was to set up, such as "wires".
        place: String,
        /// Name of the program.
        program: &'static str,
        /// What the program printed on its standard error.
        message: String,
        /// The program's standard input.
        input: String,
    },
    /// An interface wasn't in operation in time.
    #[error("{place}: interface {interface} was not up within {limit} s", limit = settle::WITHIN.as_secs())]
    Down {
        /// Name of the machine.
        place: String,
        /// Name of the machine's interface.
        interface: String,
    },
    /// The kernel doesn't tell the state of interfaces.
    #[error("cannot ask for the state of interfaces: {0}")]
    State(nix::Error),
}

/// Index of the first wire's first interface. The kernel itself gives lower ones.
const FIRST_INDEX: u32 = 1000;

/// `path` with the directories of the system's own programs at its end, as ordinary users' paths
/// often lack them.
pub(crate) fn with_system_directories(path: Option<OsString>) -> OsString {
    let path = path.unwrap_or_default();
    let given = env::split_paths(&path).filter(|directory| !directory.as_os_str().is_empty());
    let all = given.chain(["/usr/local/sbin", "/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from));
    // What was split at colons holds none.
    env::join_paths(all).unwrap_or(path.clone())
}

/// Path of a program in this process's path or in a system directory; `None` if it isn't there.
pub(crate) fn find_program(name: &str) -> Option<PathBuf> {
    let path = with_system_directories(env::var_os("PATH"));
    env::split_paths(&path).map(|directory| directory.join(name)).find(|program| program.is_file())
}

/// The namespaces that a program is to run in.
struct Namespaces<'a> {
    /// A network namespace, or a process that is in it.
    descriptor: BorrowedFd<'a>,
    /// The flag for entering the process's user namespace as well. Empty if that is the caller's
    /// own.
    user: CloneFlags,
}

impl<'a> Namespaces<'a> {
    /// A network namespace in the caller's own user namespace.
    fn here(namespace: &'a OwnedFd) -> Self {
        Self { descriptor: namespace.as_fd(), user: CloneFlags::empty() }
    }
}

/// A running program in a network namespace.
struct Running<'a> {
    place: &'a str,
    program: &'static str,
    input: String,
    child: Child,
}

impl<'a> Running<'a> {
    fn start(
        place: &'a str,
        namespaces: Option<Namespaces<'_>>,
        program: &'static str,
        arguments: &[&str],
        input: String,
    ) -> Result<Self, NetworkError> {
        let missing = |cause| NetworkError::Missing { program, cause };
        let mut command = Command::new(find_program(program).ok_or_else(|| missing(NotFound.into()))?);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        // Ctrl-C at the terminal is not for it, half-way through.
        command.process_group(0);
        if let Some(Namespaces { descriptor, user }) = namespaces {
            let descriptor = descriptor.as_raw_fd();
            // SAFETY: system calls are allowed between fork and exec; the
            // caller keeps the descriptor open until the spawn returns.
            unsafe {
                command.pre_exec(move || {
                    let namespace = BorrowedFd::borrow_raw(descriptor);
                    setns(namespace, user | CloneFlags::CLONE_NEWNET)?;
                    if user.is_empty() {
                        return Ok(());
                    }
                    rootless::keep_only(&rootless::network_rights()).map_err(std::io::Error::other)
                });
            }
        }
        let mut child = command.spawn().map_err(missing)?;
        if let Some(mut stdin) = child.stdin.take() {
            // A program that ended early has printed the reason itself.
            let _ = stdin.write_all(input.as_bytes());
        }
        Ok(Self { place, program, input, child })
    }

    fn finish(self) -> Result<(), NetworkError> {
        self.output().map(drop)
    }

    /// Waits for the program's end. Returns what it printed.
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

/// Runs a program in the network of a running lab's machine. `input` is its standard input. Returns
/// what it printed.
pub(crate) fn run_in(
    machine: &MachineRecord,
    program: &'static str,
    arguments: &[&str],
    input: String,
) -> Result<String, NetworkError> {
    let gone = |cause| NetworkError::Gone { place: machine.name.clone(), cause };
    let init = machine.init.open().map_err(gone)?;
    let user = rootless::entry_flag(machine.init.pid).map_err(gone)?;
    let namespaces = Namespaces { descriptor: init.as_fd(), user };
    Running::start(&machine.name, Some(namespaces), program, arguments, input)?.output()
}

/// Lays the wires between machines, whose first processes are `pids`. No wire ends in the caller's
/// own network namespace.
pub(crate) fn wire(topology: &Topology, pids: &[i32]) -> Result<(), NetworkError> {
    let mut input = String::new();
    // Each end has a number of its own in the whole lab. Where both ends of a veth pair have the
    // same number, the kernel takes them for no pair. It may then not notice for a second that the
    // other end is up.
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

/// Name of the emulator's interface for an end of the link number `link`. `side` is 0 for the near
/// end and 1 for the far end.
pub(crate) fn emulator_interface(link: usize, side: usize) -> String {
    format!("link{link}-{side}")
}

/// Lays the wires between machines and the emulator, for links that end at packet sockets. The
/// emulator's ends are in the caller's own network namespace, which is empty otherwise.
pub(crate) fn wire_emulator(topology: &Topology, pids: &[i32]) -> Result<(), NetworkError> {
    let address = router_mac();
    let mut input = String::new();
    for (number, link) in topology.links.iter().enumerate() {
        for (side, port) in [&link.near, &link.far].into_iter().enumerate() {
            let end = emulator_interface(number, side);
            input.push_str(&format!(
                "link add {end} type veth peer name {} netns {} address {address}\n",
                port.interface, pids[port.machine]
            ));
            input.push_str(&format!("link set {end} arp off up\n"));
        }
    }
    Running::start("wires to the emulator", None, "ip", &["-batch", "-"], input)?.finish()
}

/// Configures the network of every machine. `namespaces` are the machines' network namespaces, in
/// the same order.
pub(crate) fn configure(topology: &Topology, namespaces: &[OwnedFd]) -> Result<(), NetworkError> {
    let mut running = Vec::new();
    for (machine, namespace) in topology.machines.iter().zip(namespaces) {
        let input = machine.ip_commands.join("\n") + "\n";
        running.push(Running::start(
            &machine.name,
            Some(Namespaces::here(namespace)),
            "ip",
            &["-batch", "-"],
            input,
        )?);
        if !machine.tc_commands.is_empty() {
            let input = machine.tc_commands.join("\n") + "\n";
            running.push(Running::start(
                &machine.name,
                Some(Namespaces::here(namespace)),
                "tc",
                &["-batch", "-"],
                input,
            )?);
        }
        if let Some(rules) = &machine.rules {
            let input = rules.clone();
            running.push(Running::start(
                &machine.name,
                Some(Namespaces::here(namespace)),
                "nft",
                &["-f", "-"],
                input,
            )?);
        }
    }
    running.into_iter().try_for_each(Running::finish)?;
    settle::wait(topology, namespaces)
}
