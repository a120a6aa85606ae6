//! Two users of a cluster, with accounts of their own, whose pilots are on one node at a time.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Output, Printing, World, files, promised};
use serde_json::{Value, json};

use super::logins::{self, BROKER, isthmus_on};
use super::secrets::{PROCESSES, TOKEN};
use crate::clusters::{self, GONE, OutOfService, SOON, VIA, sh};

/// Where all machines of alpha see the users' homes and programs, as on a file system that they share.
const SHARED: &str = "/run/users";
const ISTHMUS: &str = "/run/users/bin/isthmus";
/// A command that says where it runs and as whom, and lasts until there is a file.
const LASTS: &str = "echo on $ISTHMUS_NODE as $(id -u); until [ -e $0 ]; do sleep 0.1; done";
/// Longest time of a run, after which it is ended.
const AT_MOST: Duration = Duration::from_secs(600);

/// A user of the cluster, whose agent on the login node submits batch jobs. It ends with this value.
struct User<'a> {
    world: &'a World,
    /// Their name in the grid.
    name: &'static str,
    /// Their account on the machines, and its id. That of its group is the same.
    account: (&'static str, &'static str),
}

impl<'a> User<'a> {
    fn start(world: &'a World, name: &'static str, account: (&'static str, &'static str)) -> Result<Self> {
        let (_, id) = account;
        let user = Self { world, name, account };
        let token = world.directory.path().join(format!("{name}.token")).display().to_string();
        let invite = ["grid", "invite", "--state", BROKER, "--site", "alpha", "--owner", name];
        let more = ["--nodes", "1", "--pilot-nodes", "2", "--out", &token];
        isthmus_on(world, "hub", &[&invite[..], &more].concat())?;
        let (home, login) = (user.home(), format!("{name}-login"));
        let given = format!("{home}/token");
        sh(world, "n1.alpha", &["install", "-d", "-o", id, "-g", id, "-m", "755", &home])?;
        sh(world, "n1.alpha", &["install", "-o", id, "-g", id, "-m", "600", &token, &given])?;
        let up = ["up", "--submit", "slurm", "--token", &given, "--via", VIA, "--name", &login];
        user.good("n1.alpha", &[&[ISTHMUS][..], &up].concat())?;
        Ok(user)
    }

    fn home(&self) -> String {
        format!("{SHARED}/{}", self.name)
    }

    /// The name of the login node in the grid, by which the user runs.
    fn login(&self) -> String {
        format!("{}-login.alpha", self.name)
    }

    /// The name of the pilot's node in the grid.
    fn node(&self) -> String {
        format!("n2-{}-p1.alpha", self.name)
    }

    /// The words of a command that the user gives in `/`, as others can't enter the test's directory.
    fn words(&self, words: &[&str]) -> Vec<String> {
        let (account, id) = self.account;
        let (home, user) = (format!("HOME={}", self.home()), format!("USER={account}"));
        let become_them = ["setpriv", "--reuid", id, "--regid", id, "--clear-groups"];
        let environment = ["env", "--chdir=/", "--unset=XDG_STATE_HOME", &home, &user];
        let all = [&become_them[..], &environment, words].concat();
        all.into_iter().map(ToOwned::to_owned).collect()
    }

    fn sh(&self, machine: &str, words: &[&str]) -> Result<Output> {
        let all = self.words(words);
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        self.world.sh(machine, SOON, &all)
    }

    /// Runs a command that must succeed.
    fn good(&self, machine: &str, words: &[&str]) -> Result<Output> {
        let output = self.sh(machine, words)?;
        ensure!(output.status == 0, "{}: {}: {}", self.name, words.join(" "), output.whole());
        Ok(output)
    }

    /// A run whose output a test reads meanwhile.
    fn run(&self, words: &[&str]) -> Result<Printing> {
        let all = self.words(&[&[ISTHMUS, "run"][..], words].concat());
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        Printing::start(self.world, "n1.alpha", AT_MOST, &all)
    }

    /// Starts a run on a node that the scheduler gives, which lasts, and waits until it runs there.
    fn lasting(&self) -> Result<Printing> {
        let end = format!("{}/end", self.home());
        let options = ["--pilots", "alpha=1", "--time", "10m", "--each", "--"];
        let run = self.run(&[&options[..], &["sh", "-c", LASTS, &end]].concat())?;
        let (node, (_, id)) = (self.node(), self.account);
        run.prints(&format!("{node}: on {node} as {id}\n"))?;
        Ok(run)
    }

    /// The path of the secret of the user's pilot.
    fn secret(&self) -> Result<String> {
        let (account, _) = self.account;
        let words = ["squeue", "--noheader", "--user", account, "--states=RUNNING", "--format=%N %j"];
        let listed = sh(self.world, "n1.alpha", &words)?.stdout;
        let name = listed.trim().strip_prefix("n2 ").with_context(|| format!("{account} has {listed:?}"))?;
        Ok(format!("{}/.local/state/isthmus/n1/pilots/slurm/{name}.secret", self.home()))
    }
}

impl Drop for User<'_> {
    fn drop(&mut self) {
        if let Err(error) = self.good("n1.alpha", &[ISTHMUS, "down"]) {
            eprintln!("the agent of {} isn't stopped: {error:#}", self.name);
        }
    }
}

/// Gives the machines of alpha a directory that all of them and all users see, and all users access to
/// Slurm.
fn prepare(world: &World) -> Result<()> {
    let shared = world.directory.path().join("users").display().to_string();
    let (files, ring) = (files().display().to_string(), Mpi::OpenMpi.program("ring"));
    // Nothing below the repository need be open to other users.
    let make = format!(
        "set -e; umask 022; mkdir -p {shared}/bin; cp {files}/isthmus {files}/libisthmus_*.so {ring} {shared}/bin; \
         chmod -R a+rX {shared}"
    );
    sh(world, "n1.alpha", &["sh", "-c", &make])?;
    let enter = format!(
        "set -e; umask 022; mkdir {SHARED}; mount --bind {shared} {SHARED}; cd /run/isthmus-machine; \
         chmod a+x . slurm slurm/spool; chmod a+r slurm/slurm.conf"
    );
    for machine in ["n1.alpha", "n2.alpha", "n3.alpha"] {
        sh(world, machine, &["sh", "-c", &enter])?;
    }
    Ok(())
}

/// Checks that a user gets nothing of another one's pilot on the same node.
fn gets_nothing(user: &User<'_>, other: &User<'_>) -> Result<()> {
    let secret = other.secret()?;
    ensure!(other.good("n2.alpha", &["cat", &secret])?.stdout.contains(TOKEN), "{secret} has no token");
    let read = user.sh("n2.alpha", &["cat", &secret])?;
    ensure!(read.status != 0 && read.stderr.contains("Permission denied"), "{}", read.whole());

    let socket = format!("{}/.isthmus/n2-pilot1/agent.sock", other.home());
    other.good("n2.alpha", &["test", "-S", &socket])?;
    let asked = user.sh("n2.alpha", &[ISTHMUS, "run", "--socket", &socket, "--", "true"])?;
    ensure!(asked.status == 125 && asked.stderr.contains("Permission denied"), "{}", asked.whole());

    // A home may be open to all.
    let open = format!(
        "find {} \\( -type f -o -type s \\) \\( -readable -o -writable \\) 2>/dev/null; true",
        other.home()
    );
    for machine in ["n1.alpha", "n2.alpha"] {
        let found = user.good(machine, &["sh", "-c", &open])?.stdout;
        ensure!(found.is_empty(), "{} may open on {machine}:\n{found}", user.name);
    }
    // Processes end meanwhile, so that the command may fail.
    let processes = user.sh("n2.alpha", &["sh", "-c", PROCESSES])?.stdout;
    ensure!(processes.contains("isthmus") && !processes.contains(TOKEN), "{processes}");

    let named = user.sh("n1.alpha", &[ISTHMUS, "run", "--nodes", &other.node(), "--", "true"])?;
    let reason = format!("its agent works for {:?}", other.name);
    ensure!(named.status == 125 && named.stderr.contains(&reason), "{reason}: {}", named.whole());
    Ok(())
}

/// Checks that a user's only job has the user's own nodes.
fn has_own_nodes(user: &User<'_>) -> Result<()> {
    let mut jobs = Value::Null;
    World::eventually("one job is listed", SOON, || {
        let listed = user.good("n1.alpha", &[ISTHMUS, "jobs", "--json"])?.stdout;
        jobs = serde_json::from_str::<Value>(&listed)?["jobs"].clone();
        Ok(jobs.as_array().is_some_and(|jobs| jobs.len() == 1))
    })?;
    ensure!(jobs[0]["nodes"] == json!([user.login(), user.node()]), "{}: {jobs:#}", user.name);
    Ok(())
}

/// Runs an MPI job of two ranks of each user on their one node, at the same time.
fn rings(users: &[User<'_>]) -> Result<()> {
    let ring = format!("{SHARED}/bin/ring");
    let start = |user: &User<'_>| {
        let launched = ["--", "mpirun.openmpi", "-n", "2", &ring, "1024", "2000"];
        user.run(&[&["--nodes", &user.node()][..], &launched].concat())
    };
    for run in users.iter().map(start).collect::<Result<Vec<_>>>()? {
        let (status, text) = run.ended()?;
        ensure!(status == 0 && text.contains(" No Errors"), "status {status}\n{text}");
    }
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn pilots_of_two_users_on_one_node_do_not_meet() -> Result<()> {
    // No other test gets a lab whose Slurm is open to other users.
    let world = World::up("two-slurms")?;
    prepare(&world)?;
    let users = [User::start(&world, "ada", ("daemon", "1"))?, User::start(&world, "berta", ("bin", "2"))?];
    let [ada, berta] = &users;
    let drained = OutOfService::set(&world, "alpha", "n3", "drain")?;
    let runs = [ada.lasting()?, berta.lasting()?];
    for (user, other) in [(ada, berta), (berta, ada)] {
        gets_nothing(user, other)?;
        has_own_nodes(user)?;
    }
    rings(&users)?;
    for user in &users {
        std::fs::write(world.directory.path().join("users").join(user.name).join("end"), "")?;
    }
    for (run, other) in runs.into_iter().zip([berta, ada]) {
        let (status, text) = run.ended()?;
        ensure!(status == 0 && !text.contains(&other.node()), "status {status}\n{text}");
    }
    clusters::nothing_left(promised(GONE), || logins::left(&world, &["ada", "berta"]))?;
    drained.back()
}
