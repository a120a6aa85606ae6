//! Pilots on plain hosts, which have no scheduler but the login node's ssh.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Result, ensure};
use isthmus_e2e::{Job, Mpi, World, promised};

use super::logins::{Agent, Logins};
use super::written;
use crate::clusters::{self, GONE, GRID, SOON, sh};

/// The hosts of alpha.
const HOSTS: [&str; 2] = ["n2", "n3"];

/// Starts an sshd on each host, and makes a directory with an `ssh` that reaches them.
fn serve(world: &World, directory: &Path) -> Result<Vec<Job>> {
    let at = |name: &str| directory.join(name).display().to_string();
    fs::create_dir_all(directory)?;
    for key in ["host", "user"] {
        let made =
            Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(key)]).status()?;
        ensure!(made.success(), "ssh-keygen failed");
    }
    let config = format!(
        "HostKey {}\nAuthorizedKeysFile {}\nStrictModes no\nPidFile none\nUsePAM no\n\
         PermitRootLogin prohibit-password\nPasswordAuthentication no\n",
        at("host"),
        at("user.pub")
    );
    fs::write(at("sshd_config"), config)?;
    let config = format!(
        "IdentityFile {}\nIdentitiesOnly yes\nStrictHostKeyChecking no\nUserKnownHostsFile /dev/null\n",
        at("user")
    );
    fs::write(at("ssh_config"), config)?;
    fs::write(at("ssh"), format!("#!/bin/sh\nexec /usr/bin/ssh -F {} \"$@\"\n", at("ssh_config")))?;
    fs::set_permissions(at("ssh"), fs::Permissions::from_mode(0o755))?;
    let serve = format!("mkdir -p /run/sshd && exec /usr/sbin/sshd -D -e -f {}", at("sshd_config"));
    let start = |host: &&str| {
        let machine = format!("{host}.alpha");
        let job = Job::start(world.command(&machine, SOON, &["sh", "-c", &serve])?)?;
        let listens = || Ok(sh(world, &machine, &["ss", "-Htln", "sport = :22"])?.stdout.contains(":22"));
        World::eventually("sshd listens", SOON, listens)?;
        Ok(job)
    };
    HOSTS.iter().map(start).collect()
}

#[test]
fn plain_hosts_at_one_site_and_a_slurm_at_the_other() -> Result<()> {
    let world = GRID.take()?;
    let directory = world.directory.path().join("ssh");
    let _sshd = serve(&world, &directory)?;
    let hosts = HOSTS.map(|host| {
        let address = world.lab().machine(&format!("{host}.alpha")).map(|machine| machine.address());
        address.map(|address| format!("[[agent.hosts]]\naddress = \"{address}\"\npilots = 1\n"))
    });
    let hosts = hosts.into_iter().collect::<Result<String, _>>()?;
    let alpha = ("alpha", format!("submit = \"hosts\"\n{hosts}"), Some(directory.as_path()));
    let logins = Logins::start_by(&world, "4", [alpha, ("beta", "submit = \"slurm\"\n".to_owned(), None)])?;
    let ring = Mpi::OpenMpi.program("ring");
    let words = ["mpirun.openmpi", "-n", "4", "--map-by", "node", &ring];
    let output = logins.run("alpha=2,beta=2", &words)?.output()?;
    let text = written(&output);
    ensure!(output.status.success(), "{text}");
    for words in [" No Errors", "of Slurm at beta: n2-root-p1.beta", "4 nodes at 2 sites"] {
        ensure!(text.contains(words), "{words:?} is not in\n{text}");
    }
    logins.nothing_left(promised(GONE))?;
    // More than there are.
    let output = logins.run("alpha=3,beta=1", &["hostname"])?.output()?;
    let text = written(&output);
    ensure!(output.status.code() == Some(125) && text.contains("alpha"), "{text}");
    logins.nothing_left(promised(GONE))
}

/// Its agent's end ends the run, which names it.
#[test]
fn a_pilot_that_is_killed_on_its_host_is_named() -> Result<()> {
    let world = GRID.take()?;
    let directory = world.directory.path().join("ssh-killed");
    let _sshd = serve(&world, &directory)?;
    let address = world.lab().machine("n2.alpha")?.address();
    let lines = format!("submit = \"hosts\"\n[[agent.hosts]]\naddress = \"{address}\"\npilots = 1\n");
    let login = Agent::start_by(
        &world,
        ("alpha", Some(&directory)),
        ("login", "root"),
        &["--nodes", "1", "--pilot-nodes", "4"],
        &lines,
    )?;
    let logins = Logins::of(&world, vec![login]);
    let run = Job::start(logins.run("alpha=1", &["sleep", "600"])?)?;
    World::eventually("the program runs", SOON, || Ok(!world.processes("n1.alpha", "sleep")?.is_empty()))?;
    sh(&world, "n2.alpha", &["pkill", "-KILL", "-x", "isthmus"])?;
    let (status, text) = run.end()?;
    ensure!(status != 0 && text.contains("n2-root-p1.alpha"), "status {status}\n{text}");
    clusters::nothing_left(promised(GONE), || logins.left())
}
