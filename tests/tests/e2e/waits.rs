//! Connections that can't be made at once: they wait for what comes back, the user reads
//! for what, and a job whose connection is given up ends with the reason.

use std::fs;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, Mpi, World, isthmus, root};

/// The nodes. The first node runs the job, so its agent has a trunk to each other node.
const NODES: [&str; 3] = ["n1.alpha", "n1.beta", "n1.gamma"];
/// Deadline that guards against hanging only, like `LONG`. Where ranks spin on the same cores, it
/// may take long until a program connects.
const SOON: Duration = Duration::from_secs(120);
const LONG: Duration = Duration::from_secs(500);

/// A job whose programs are ready, and connect once they are told to. The broker arranges the
/// connections between its nodes, by way of both gateways.
struct ReadyJob {
    world: World,
    job: Job,
}

/// How long the nodes' kernels, and so their agents, try to connect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// They try for 3 s.
    Short,
    /// They try for 127 s, which is Linux's default.
    Long,
}

impl ReadyJob {
    /// Starts a job on so many of the nodes, in which `command` runs. Returns once the programs
    /// wait.
    fn start(nodes: usize, patience: Patience, options: &[&str], command: &[&str]) -> Result<Self> {
        let world = World::up("waits")?;
        if patience == Patience::Short {
            world.set_syn_retries(&NODES, 1)?;
        }
        let nodes = &NODES[..nodes];
        for pair in nodes.windows(2) {
            let known =
                || Ok(world.plan(pair[0], pair[1])?["steps"].as_array().is_some_and(|it| !it.is_empty()));
            World::eventually("it is known how the nodes are seen from outside", SOON, known)?;
        }
        let (binary, count, nodes) = (isthmus().display().to_string(), nodes.len(), nodes.join(","));
        let words = [&[&*binary, "run", "--nodes", &nodes], options, &["--"], command].concat();
        let directory = world.directory.path().display().to_string();
        let words: Vec<_> = words.iter().map(|word| word.replace("DIRECTORY", &directory)).collect();
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        let job = Job::start(world.command(NODES[0], LONG, &words)?)?;
        let waiting = Self { world, job };
        let ready =
            World::eventually("all programs wait", SOON, || Ok(waiting.files("ready")?.len() == count));
        match ready {
            Ok(()) => Ok(waiting),
            Err(error) => {
                let (status, printed) = waiting.job.end()?;
                Err(error.context(format!("status {status}\n{printed}")))
            }
        }
    }

    /// Starts a job whose ranks wait for the file `go` before they begin with MPI.
    fn ranks(nodes: usize, patience: Patience, mpi: Mpi) -> Result<Self> {
        let script = format!(
            "mktemp DIRECTORY/ready.XXXXXX >&2; until [ -e DIRECTORY/go ]; do sleep 0.05; done; exec {} 100 100",
            mpi.program("ring")
        );
        let count = nodes.to_string();
        Self::start(nodes, patience, &[], &[&mpi.launcher(), "-n", &count, "sh", "-c", &script])
    }

    fn files(&self, prefix: &str) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.world.directory.path())?.collect::<Result<Vec<_>, _>>()?;
        let names = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned());
        Ok(names.filter(|name| name.starts_with(prefix)).collect())
    }

    /// Has the programs connect.
    fn go(&self) -> Result<()> {
        Ok(fs::write(self.world.directory.path().join("go"), "")?)
    }

    fn kill(&self, machine: &str, role: &str) -> Result<()> {
        self.world.kill(machine, "-KILL", &self.world.service(machine, role)?)
    }

    fn back(&self, machine: &str, role: &str) -> Result<Job> {
        self.world.serve(machine, role, &[], &World::config(role))
    }

    /// Waits until an agent has said that a connection isn't there yet.
    fn waits(&self) -> Result<()> {
        let told = || Ok(self.world.logs()?.contains("a connection is not there yet"));
        World::eventually("a connection waits", SOON, told)
    }

    /// Checks that the job ends in order, whatever the test found meanwhile. Returns what the job
    /// printed.
    fn expect_success(self, done: Result<Job>) -> Result<String> {
        let (status, printed) = self.job.end()?;
        let service = done.with_context(|| {
            let logs = self.world.logs().unwrap_or_else(|error| error.to_string());
            format!("{printed}\n{logs}")
        })?;
        ensure!(status == 0, "status {status}\n{printed}\n{}", self.world.logs()?);
        self.world.expect_clean()?;
        drop(service);
        Ok(printed)
    }
}

fn waits_for(mpi: Mpi, machine: &str, role: &str) -> Result<()> {
    let waiting = ReadyJob::ranks(2, Patience::Long, mpi)?;
    waiting.kill(machine, role)?;
    let done = waiting.go().and_then(|()| waiting.waits());
    // The service comes back in any case, so that the job ends.
    let service = waiting.back(machine, role);
    let printed = waiting.expect_success(done.and(service))?;
    for text in [" can't connect to n1.", "it tries on, 127 s in all", " has connected to n1."] {
        ensure!(printed.contains(text), "no {text:?} in\n{printed}");
    }
    ensure!(printed.matches("can't connect to").count() <= 2, "once for each direction:\n{printed}");
    Ok(())
}

/// The broker stays away. The job's own trunk takes the connections that the broker no longer
/// arranges.
#[test]
#[ignore = "test-all"]
fn a_connection_goes_over_the_trunk_that_stands() -> Result<()> {
    let waiting = ReadyJob::ranks(2, Patience::Long, Mpi::OpenMpi)?;
    waiting.kill("hub", "broker")?;
    waiting.go()?;
    let (status, printed) = waiting.job.end()?;
    ensure!(status == 0 && printed.contains("end-to-end, encrypted"), "status {status}\n{printed}");
    waiting.world.expect_clean()
}

#[test]
#[ignore = "test-all"]
fn openmpi_waits_for_its_own_gateway() -> Result<()> {
    waits_for(Mpi::OpenMpi, "fe.alpha", "gateway")
}

#[test]
fn mpich_waits_for_the_other_gateway() -> Result<()> {
    waits_for(Mpi::Mpich, "fe.beta", "gateway")
}

#[test]
#[ignore = "test-all"]
fn openmpi_waits_for_the_broker() -> Result<()> {
    waits_for(Mpi::OpenMpi, "hub", "broker")
}

/// Checks that a job works although a service is started anew in the moment in which its ranks
/// connect.
fn restarts_while_ranks_connect(mpi: Mpi) -> Result<()> {
    for (machine, role) in [("fe.alpha", "gateway"), ("hub", "broker"), ("fe.beta", "gateway")] {
        let waiting = ReadyJob::ranks(2, Patience::Long, mpi)?;
        waiting.go()?;
        waiting.kill(machine, role)?;
        let service = waiting.back(machine, role);
        waiting.expect_success(service).with_context(|| format!("{role} of {machine}"))?;
    }
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn openmpi_connects_while_services_restart() -> Result<()> {
    restarts_while_ranks_connect(Mpi::OpenMpi)
}

#[test]
#[ignore = "test-all"]
fn mpich_connects_while_services_restart() -> Result<()> {
    restarts_while_ranks_connect(Mpi::Mpich)
}

fn ends_with_the_reason(mpi: Mpi) -> Result<()> {
    // The last two have no trunk, so that nothing is left to them.
    let waiting = ReadyJob::ranks(3, Patience::Short, mpi)?;
    waiting.kill("hub", "broker")?;
    waiting.go()?;
    let (status, printed) = waiting.job.end()?;
    // The run has ended by itself: a run that hangs is ended with status 124.
    ensure!(status != 0 && status != 124, "status {status}\n{printed}");
    for text in ["\nisthmus: n1.", " could not connect to n1.", "\n  cause: n1."] {
        ensure!(printed.contains(text), "no {text:?} in\n{printed}");
    }
    waiting.world.expect_clean()
}

#[test]
fn openmpi_ends_with_the_reason() -> Result<()> {
    ends_with_the_reason(Mpi::OpenMpi)
}

#[test]
#[ignore = "test-all"]
fn mpich_ends_with_the_reason() -> Result<()> {
    ends_with_the_reason(Mpi::Mpich)
}

#[test]
#[ignore = "test-all"]
fn a_program_gets_the_error_if_the_job_is_to_go_on() -> Result<()> {
    let program = root().join("tests/programs/late.py").display().to_string();
    let command = ["python3", &program, "DIRECTORY", NODES[0]];
    let waiting = ReadyJob::start(2, Patience::Short, &["--keep-going", "--each"], &command)?;
    waiting.kill("hub", "broker")?;
    waiting.go()?;
    let (status, printed) = waiting.job.end()?;
    ensure!(status == 0 && printed.contains("failed: EHOSTUNREACH"), "status {status}\n{printed}");
    waiting.world.expect_clean()
}
