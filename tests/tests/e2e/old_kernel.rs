//! Linux 4.18, the oldest that isthmus is for: system calls and options of sockets that later
//! kernels brought are not there, for services and programs alike.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Job, Mpi, World, compile_program, isthmus};

/// Deadline that guards against hanging only.
const LONG: Duration = Duration::from_secs(180);
/// The services, and what starts them anew: an agent whose gateway isn't there yet ends.
const SERVICES: [(&str, &[&str]); 6] = [
    ("hub", &["broker", "relay"]),
    ("n1.alpha", &["gateway", "agent"]),
    ("n2.alpha", &["agent"]),
    ("n1.beta", &["gateway", "agent"]),
    ("n1.gamma", &["gateway", "agent"]),
    ("n1.delta", &["gateway", "agent"]),
];
const UNTIL_IT_SERVES: [&str; 4] = ["sh", "-c", "until \"$@\"; do sleep 0.2; done", "sh"];
/// Prints whether there is what Linux 5.1 and 5.3 have in place of signals by number.
const ASKS: &str = "import os, signal
try: signal.pidfd_send_signal(os.pidfd_open(os.getpid()), 0); print('new')
except OSError as error: print(error.strerror)";

/// Checks that MPI programs run over sites, by each kind of way, and that nothing of them stays.
#[test]
fn mpi_programs_run_over_sites() -> Result<()> {
    let world = World::up("four-sites")?;
    let old_kernel = compile_program("old_kernel", world.directory.path())?.display().to_string();
    for (machine, roles) in SERVICES {
        for role in roles {
            world.stop(machine, role)?;
        }
    }
    let mut services = Vec::new();
    for (machine, roles) in SERVICES {
        for role in roles {
            let before = [&UNTIL_IT_SERVES[..], &[&old_kernel]].concat();
            services.push(world.serve(machine, role, &before, &World::config(role))?);
        }
    }
    World::eventually("the agent serves", LONG, || Ok(world.status("n1.alpha").is_ok()))?;
    for node in world.nodes() {
        world.attached("n1.alpha", &node)?;
    }
    let program = isthmus().display().to_string();
    let old =
        |words: &[&str]| world.sh("n1.alpha", LONG, &[&[old_kernel.as_str(), &program], words].concat());
    let run = |nodes: &str, words: &[&str]| old(&[&["run", "--nodes", nodes][..], words].concat());
    let asked = run("n1.alpha,n1.beta", &["--each", "--", "/usr/bin/python3", "-c", ASKS])?;
    let absent = "Function not implemented";
    ensure!(asked.status == 0 && asked.stdout.matches(absent).count() == 2, "{}", asked.whole());
    for (mpi, nodes) in [
        // Over the relay, and within a site.
        (Mpi::OpenMpi, "n1.alpha,n2.alpha,n1.beta"),
        // Directly, and by a dial from the other side.
        (Mpi::Mpich, "n1.alpha,n1.gamma,n1.delta"),
    ] {
        let (launcher, ring) = (mpi.launcher(), mpi.program("ring"));
        let output = run(nodes, &["--", &launcher, "-n", "6", &ring])?;
        ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    }
    // A command is ended by its process id.
    for (now, signal) in [(&[][..], libc::SIGTERM), (&["--now"], libc::SIGKILL)] {
        let words =
            [&old_kernel, &program, "run", "--each", "--nodes", "n1.alpha,n1.beta", "--", "sleep", "1d"];
        let job = Job::start(world.command("n1.alpha", LONG, &words)?)?;
        World::eventually("the job runs", LONG, || {
            Ok(world.leftovers("n1.beta")?.iter().any(|line| line.ends_with("sleep 1d")))
        })?;
        let cancelled = old(&[&["cancel", "--all"], now].concat())?;
        ensure!(cancelled.status == 0, "{}", cancelled.whole());
        let (status, text) = job.end()?;
        ensure!(status == 128 + signal, "{now:?}: status {status}\n{text}");
        world.expect_clean()?;
    }
    Ok(())
}
