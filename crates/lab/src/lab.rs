//! Labs from Rust: what tests and benchmarks use.
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use isthmus_lab::{Grid, Lab};
//!
//! let grid = Grid::load("two-sites.toml".as_ref())?;
//! let lab = Lab::up(&grid)?;
//! let output = lab.machine("n1.alpha")?.command("hostname").output()?;
//! assert!(output.status.success());
//! // Dropped, the lab ends; it ends as well when this process does.
//! # Ok(())
//! # }
//! ```

use std::io::{self, BufRead, BufReader, Write};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;

use crate::emulator::DeviceKind;
use crate::emulator::control::{self, ControlError};
use crate::emulator::statistics::Report;
use crate::entrance;
use crate::grid::Grid;
use crate::keeper::{Report as KeeperReport, Start};
use crate::process::ProcessId;
use crate::state::{LabDirectory, MachineRecord, Record, StateError};

/// Why a lab can't be brought up or used.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The program that keeps the lab can't be run.
    #[error("cannot start the lab's keeper {program}: {cause}", program = .program.display())]
    Keeper {
        /// Path of the program.
        program: PathBuf,
        /// The system's error at starting the program or talking to it.
        cause: io::Error,
    },
    /// The lab didn't come up. The text says why.
    #[error("{0}")]
    Failed(String),
    /// The lab of this name took too long to come up, and has been ended.
    #[error("lab {0:?} was not ready within {limit} s; it has been ended", limit = READY_WITHIN.as_secs())]
    Late(String),
    /// The lab's directory or record can't be used, or the lab doesn't run.
    #[error(transparent)]
    State(#[from] StateError),
    /// The lab has no machine of the requested name.
    #[error("lab {lab:?} has no machine {name:?}; it has: {known}", known = .known.join(", "))]
    Unknown {
        /// Name of the lab.
        lab: String,
        /// The requested name, which no machine has.
        name: String,
        /// Names of the lab's machines.
        known: Vec<String>,
    },
}

/// How long a lab may take to stand, services included.
const READY_WITHIN: Duration = Duration::from_secs(120);

/// How to bring a lab up.
#[derive(Debug, Clone)]
pub struct Options {
    /// The program with the lab's subcommands: isthmus-lab, or `isthmus`, which executes it. By
    /// default it is what `$ISTHMUS_BIN` names, or else the running program. The services are those
    /// of the `isthmus` that belongs to it.
    pub program: PathBuf,
    /// Whether to start isthmus's own services on machines that have roles.
    pub services: bool,
    /// The devices that emulated links end at. `None`: the best that this user may use.
    pub devices: Option<DeviceKind>,
}

impl Default for Options {
    fn default() -> Self {
        Self { program: default_program(), services: true, devices: None }
    }
}

/// A running lab, started by this process or another process.
#[derive(Debug, Clone)]
pub struct Running {
    directory: LabDirectory,
}

impl Running {
    /// Finds the running lab of this name. Without a name, finds the only lab that runs.
    pub fn find(name: Option<&str>) -> Result<Self, LabError> {
        let (directory, _) = LabDirectory::find(name)?;
        Ok(Self { directory })
    }

    /// Name of the lab.
    pub fn name(&self) -> &str {
        self.directory.lab()
    }

    /// What the lab consists of at this moment, and the faults in force.
    pub fn record(&self) -> Result<Record, LabError> {
        Ok(self.directory.read()?)
    }

    /// Changes the lab and its record, while no other process changes them.
    pub(crate) fn change<T, E: From<StateError>>(
        &self,
        change: impl FnOnce(&mut Record) -> Result<T, E>,
    ) -> Result<T, E> {
        self.directory.update(change)
    }

    pub(crate) fn directory(&self) -> &LabDirectory {
        &self.directory
    }
}

/// A running lab that ends with this value, or with this process. All methods of [`Running`] are
/// available.
#[derive(Debug)]
pub struct Lab {
    running: Running,
    record: Record,
    keeper: Child,
    /// The keeper's input. When it closes, the keeper ends the lab. `None` once the lab has been
    /// ended.
    tether: Option<ChildStdin>,
}

impl Lab {
    /// Brings a grid up with the default [`Options`].
    pub fn up(grid: &Grid) -> Result<Self, LabError> {
        Self::up_with(grid, &Options::default())
    }

    /// Brings a grid up. Returns when the lab stands.
    pub fn up_with(grid: &Grid, options: &Options) -> Result<Self, LabError> {
        let (keeper, tether) = start(grid, options)?;
        let directory = LabDirectory::of(&grid.name);
        let record = directory.read()?;
        Ok(Self { running: Running { directory }, record, keeper, tether: Some(tether) })
    }

    /// The machine of this name in the lab: `NODE.SITE`, `HOST`, `router.SITE` or `wan`.
    pub fn machine(&self, name: &str) -> Result<Machine<'_>, LabError> {
        let machine = find_machine(&self.record, name)?;
        Ok(Machine { running: &self.running, program: &self.record.program, machine })
    }

    /// Asks the emulator of the links for its report. `None` if no link is emulated.
    pub fn emulation(&self) -> Result<Option<Report>, ControlError> {
        match self.record.emulator {
            Some(_) => control::report(&self.running.directory.emulator_socket()).map(Some),
            None => Ok(None),
        }
    }

    /// The lab's record from when it came up.
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// The lab's record at this moment, with the faults in force.
    pub fn current(&self) -> Result<Record, LabError> {
        self.running.record()
    }

    /// Ends the lab and waits until nothing of it is left.
    pub fn down(mut self) -> Result<(), LabError> {
        self.end()
    }

    fn end(&mut self) -> Result<(), LabError> {
        if self.tether.take().is_none() {
            return Ok(());
        }
        let _ = self.keeper.wait();
        Ok(self.running.directory.wait_gone()?)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("ending lab {:?}: {error}", self.running.name());
        }
    }
}

impl std::ops::Deref for Lab {
    type Target = Running;

    fn deref(&self) -> &Running {
        &self.running
    }
}

/// A machine of a running lab.
#[derive(Debug, Clone, Copy)]
pub struct Machine<'a> {
    running: &'a Running,
    program: &'a Path,
    machine: &'a MachineRecord,
}

impl Machine<'_> {
    /// Name of the machine in the lab.
    pub fn name(&self) -> &str {
        &self.machine.name
    }

    pub(crate) fn running(&self) -> &Running {
        self.running
    }

    /// A command that runs `program` in the machine. `program` is killed when the process that the
    /// command's `spawn` makes is killed.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(self.program);
        command.args(["lab", "exec", "--lab", self.running.name(), &self.machine.name, "--"]).arg(program);
        command
    }

    /// A command that runs `program` in the machine with root's rights over the machine's network,
    /// for programs such as `nft` and `tcpdump`. For root, it is as [`command`](Self::command).
    pub fn privileged_command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new(self.program);
        let arguments =
            ["lab", "exec", "--privileged", "--lab", self.running.name(), &self.machine.name, "--"];
        command.args(arguments).arg(program);
        command
    }

    /// Runs a function in a thread that has the machine's network. Sockets that it makes are the
    /// machine's, wherever they are used afterwards. The function must not start threads: they may
    /// end with it.
    pub fn in_network<T: Send>(&self, function: impl FnOnce() -> T + Send) -> io::Result<T> {
        entrance::in_network(self.machine, function)
    }

    /// The address that the machine's host name stands for.
    pub fn address(&self) -> Ipv4Addr {
        self.machine.address
    }

    /// The machine's first process, as the real machine sees it.
    pub fn init(&self) -> ProcessId {
        self.machine.init
    }
}

pub(crate) fn find_machine<'a>(record: &'a Record, name: &str) -> Result<&'a MachineRecord, LabError> {
    record.machine(name).ok_or_else(|| LabError::Unknown {
        lab: record.grid.name.clone(),
        name: name.to_owned(),
        known: record.machines.iter().map(|machine| machine.name.clone()).collect(),
    })
}

/// The default program with the lab's subcommands.
fn default_program() -> PathBuf {
    match std::env::var_os("ISTHMUS_BIN") {
        Some(program) => program.into(),
        None => std::env::current_exe().unwrap_or_else(|_| "isthmus".into()),
    }
}

/// Starts a keeper and waits until its lab stands. The returned [`ChildStdin`] is the keeper's
/// input: when it is dropped without another byte, the lab ends.
pub(crate) fn start(grid: &Grid, options: &Options) -> Result<(Child, ChildStdin), LabError> {
    let failed = |cause| LabError::Keeper { program: options.program.clone(), cause };
    let mut command = Command::new(&options.program);
    command.args(["lab", "keeper"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    command.current_dir("/");
    // SAFETY: setsid is a system call, allowed between fork and exec.
    unsafe {
        command.pre_exec(|| Ok(nix::unistd::setsid().map(drop)?));
    }
    let mut keeper = command.spawn().map_err(failed)?;
    let (Some(mut stdin), Some(stdout)) = (keeper.stdin.take(), keeper.stdout.take()) else {
        return Err(failed(io::ErrorKind::BrokenPipe.into()));
    };
    let start = Start { grid: grid.clone(), services: options.services, devices: options.devices };
    let line = serde_json::to_string(&start).map_err(|error| failed(error.into()))?;
    stdin.write_all(format!("{line}\n").as_bytes()).map_err(failed)?;

    // The keeper reports when it is ready. A thread waits for that, so that this one
    // can give up.
    let (line_tx, line_rx) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut line = String::new();
        let read = BufReader::new(stdout).read_line(&mut line);
        // This fails only if the receiver has stopped waiting.
        let _ = line_tx.send(read.map(|_| line));
    });
    let line = match line_rx.recv_timeout(READY_WITHIN) {
        Ok(line) => line.map_err(failed)?,
        Err(_) => {
            let _ = keeper.kill();
            let _ = keeper.wait();
            return Err(LabError::Late(grid.name.clone()));
        }
    };
    match serde_json::from_str(&line) {
        Ok(KeeperReport::Ready) => Ok((keeper, stdin)),
        Ok(KeeperReport::Failed(message)) => {
            let _ = keeper.wait();
            Err(LabError::Failed(message))
        }
        Err(_) => {
            let status = keeper.wait().map_err(failed)?;
            Err(LabError::Failed(format!("the lab's keeper ended without a word ({status})")))
        }
    }
}
