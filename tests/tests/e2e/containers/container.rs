//! Containers of an ordinary user's on the machines of a lab, and their agents.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Mpi, Output, Printing, World, files, root, target};

use crate::clusters::sh;
use crate::pilots::logins::{BROKER, isthmus_on};

/// Deadlines that guard against hanging only.
const SOON: Duration = Duration::from_secs(120);
const LONG: Duration = Duration::from_secs(400);
const AT_MOST: Duration = Duration::from_secs(1200);

/// What containers see of the directory that [`up`] makes.
const ISTHMUS: &str = "/run/files/isthmus";
/// A volume of each machine's containers.
const STATE: &str = "/run/state";
pub(crate) const TOKEN: &str = "/run/state/token";
/// The address of each container whose network slirp4netns makes.
pub(crate) const SLIRP: &str = "10.0.2.100";

/// The beginning of a command of the user daemon's, who may do nothing special.
const AS_USER: [&str; 11] = [
    "setpriv",
    "--reuid=1",
    "--regid=1",
    "--clear-groups",
    "--",
    "env",
    "--chdir=/",
    "--ignore-environment",
    "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
    "HOME=/run/ada",
    "XDG_RUNTIME_DIR=/run/ada/run",
];
/// What [`World::command`] sets, which doesn't get into containers.
const OF_MPI: [&str; 6] = [
    "env",
    "OMPI_ALLOW_RUN_AS_ROOT=1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
    "OMPI_MCA_mpi_yield_when_idle=1",
    "OMPI_MCA_rmaps_base_oversubscribe=1",
    "OMPI_MCA_hwloc_base_binding_policy=none",
];
/// Machines of a lab have no systemd.
const PODMAN: [&str; 2] = ["podman", "--cgroup-manager=cgroupfs"];
/// What a cluster for many users may leave a pod: no capability, no file system to write to but these.
pub(crate) const RESTRICTED: [&str; 9] = [
    "--cap-drop=all",
    "--security-opt=no-new-privileges",
    "--read-only",
    "--tmpfs",
    "/run:mode=0755",
    "--tmpfs",
    "/var/lib/isthmus:mode=0700",
    "--uts=container:pod",
    "--network=container:pod",
];

/// A grid, with the directory that all containers see.
pub(crate) fn up() -> Result<World> {
    let world = World::up("containers")?;
    let shared = shared(&world);
    let (files, ring) = (files().display().to_string(), Mpi::OpenMpi.program("ring"));
    let (programs, torch) = (root().join("tests/programs"), root().join("examples/torch/train.py"));
    let (programs, torch) = (programs.display(), torch.display());
    // Nothing below the repository need be open to other users.
    let make = format!(
        "set -e; umask 022; mkdir -p {shared}/ray; cp {files}/isthmus {files}/libisthmus_*.so {ring} {torch} \
         {programs}/cluster.py {programs}/ray_cluster.py {programs}/ray_workers.py \
         {programs}/container_network.sh {shared}; chmod -R a+rX {shared}"
    );
    sh(&world, "hub", &["sh", "-c", &make])?;
    Ok(world)
}

fn shared(world: &World) -> String {
    world.directory.path().join("files").display().to_string()
}

/// Prepares a machine for containers whose image belongs to this user, and leaves a token for a node of its
/// site there, made with these further options.
pub(crate) fn prepare(world: &World, machine: &str, owner: &str, options: &[&str]) -> Result<()> {
    let script = root().join("tests/programs/container_machine.sh").display().to_string();
    let ray = target().join("ray");
    let ray = if ray.is_dir() { ray.display().to_string() } else { String::new() };
    sh(world, machine, &["sh", &script, &shared(world), owner, &ray])?;
    let (_, site) = machine.split_once('.').context("no site")?;
    let token = world.directory.path().join(format!("{machine}.token")).display().to_string();
    let invite = ["grid", "invite", "--state", BROKER, "--site", site, "--owner", "ada", "--nodes", "1"];
    isthmus_on(world, "hub", &[&invite[..], &["--out", &token], options].concat())?;
    sh(world, machine, &["install", "-o", "1", "-g", "1", "-m", "600", &token, "/run/ada/state/token"])?;
    Ok(())
}

/// A container, in which commands run.
pub(crate) struct Container<'a> {
    pub(crate) world: &'a World,
    pub(crate) machine: &'static str,
    /// Its name in the grid, once it is a node.
    pub(crate) node: String,
    /// The words by which a command of the user's on the machine gets into it.
    enter: Vec<String>,
    /// Its network, if Podman doesn't make it. It ends with this value.
    pub(crate) network: Option<Printing>,
}

impl<'a> Container<'a> {
    /// Starts a container of Podman's, with these options. The machine is prepared.
    pub(crate) fn start(
        world: &'a World,
        machine: &'static str,
        name: &str,
        options: &[&str],
    ) -> Result<Self> {
        let (_, site) = machine.split_once('.').context("no site")?;
        let run = ["run", "--detach", "--name", name, "--cgroups=disabled", "--volume=/usr:/usr:ro"];
        let volumes = ["--volume=/run/files:/run/files:ro", "--volume=/run/ada/state:/run/state"];
        let image = ["--rootfs", "/run/image", "sleep", "infinity"];
        let words = [&AS_USER[..], &PODMAN, &run, &volumes, options, &image].concat();
        sh(world, machine, &words)?;
        let enter = [&PODMAN[..], &["exec", name]].concat();
        let enter = enter.into_iter().map(str::to_owned).collect();
        Ok(Self { world, machine, node: format!("{name}.{site}"), enter, network: None })
    }

    /// Starts a container of Podman's that is a node. `published` says whether the other nodes of its site
    /// can reach it.
    pub(crate) fn podman(
        world: &'a World,
        machine: &'static str,
        name: &'static str,
        published: bool,
    ) -> Result<Self> {
        prepare(world, machine, "1:1", &[])?;
        // Ray wants more than the usual 64 MB.
        let mut options = vec!["--hostname", name, "--network=slirp4netns", "--shm-size=128m"];
        if published {
            options.push("--publish=7730:7730");
        }
        let container = Self::start(world, machine, name, &options)?;
        container.join(published)?;
        Ok(container)
    }

    /// Starts a container of bubblewrap's that is a node. Its user has the id that it has outside, and root
    /// of its image is nobody.
    pub(crate) fn bubblewrap(world: &'a World, machine: &'static str, name: &str) -> Result<Self> {
        let (_, site) = machine.split_once('.').context("no site")?;
        prepare(world, machine, "0:0", &[])?;
        let script = ["sh", "/run/files/container_network.sh", "/run/ada"];
        let network = Printing::start(world, machine, AT_MOST, &[&AS_USER[..], &script].concat())?;
        let mut inside = String::new();
        let made = World::eventually("the network is made", SOON, || {
            let read = world.sh(machine, SOON, &["cat", "/run/ada/inside"])?;
            inside = read.stdout.trim().to_owned();
            Ok(read.status == 0)
        });
        made.with_context(|| network.printed())?;
        let enter = format!(
            "nsenter --user --net --preserve-credentials --target {inside} \
             bwrap --unshare-user --unshare-uts --hostname {name} --ro-bind /run/image / --ro-bind /usr /usr \
             --ro-bind /sys /sys --ro-bind /run/files /run/files --bind /run/ada /run/ada \
             --bind /run/ada/state /run/state --bind /tmp /tmp --dev /dev --proc /proc"
        );
        let enter = enter.split_whitespace().map(str::to_owned).collect();
        let node = format!("{name}.{site}");
        let container = Self { world, machine, node, enter, network: Some(network) };
        container.join(true)?;
        Ok(container)
    }

    /// Starts an agent in the container. If its port is `published`, it says that it is at the machine's
    /// address.
    fn join(&self, published: bool) -> Result<()> {
        let (_, site) = self.machine.split_once('.').context("no site")?;
        let address = |machine: &str| -> Result<String> {
            Ok(self.world.lab().machine(machine)?.address().to_string())
        };
        if published {
            let config = format!("[agent]\naddress = \"{}:7730\"\n", address(self.machine)?);
            let write = ["sh", "-c", "printf %s \"$0\" >/run/ada/state/isthmus.toml", &config];
            sh(self.world, self.machine, &write)?;
        }
        let via = address(&format!("fe.{site}"))?;
        let output = self.isthmus(&["up", "--state", STATE, "--token", TOKEN, "--via", &via])?;
        ensure!(output.stdout.contains(&format!("agent {} runs;", self.node)), "{}", output.whole());
        Ok(())
    }

    /// Runs an isthmus command in the container.
    pub(crate) fn try_isthmus(&self, words: &[&str]) -> Result<Output> {
        let enter: Vec<&str> = self.enter.iter().map(String::as_str).collect();
        let all = [&AS_USER[..], &enter[..], &OF_MPI, &[ISTHMUS], words].concat();
        self.world.sh(self.machine, LONG, &all)
    }

    /// Runs an isthmus command in the container. It must succeed.
    pub(crate) fn isthmus(&self, words: &[&str]) -> Result<Output> {
        let output = self.try_isthmus(words)?;
        ensure!(output.status == 0, "{}: {}: {}", self.node, words.join(" "), output.whole());
        Ok(output)
    }

    /// Runs a job over these nodes, of which this one is the first.
    pub(crate) fn run(&self, nodes: &[&Self], words: &[&str]) -> Result<Output> {
        let names: Vec<&str> = nodes.iter().map(|node| node.node.as_str()).collect();
        self.isthmus(&[&["run", "--nodes", &names.join(",")][..], words].concat())
    }

    /// Runs an MPI job over these nodes, of which this one is the first.
    pub(crate) fn ring(&self, nodes: &[&Self]) -> Result<()> {
        let count = nodes.len().to_string();
        let words = ["--", "mpirun.openmpi", "-n", &count, "--map-by", "node", "/run/files/ring"];
        let output = self.run(nodes, &words)?;
        ensure!(output.stdout.contains(" No Errors"), "{}", output.whole());
        // For slirp4netns each connection is a new one, so no hole can be punched.
        for said in [&*format!("{count} nodes at 2 sites"), "relay hub, end-to-end, encrypted"] {
            ensure!(output.stderr.contains(said), "{said}: {}", output.whole());
        }
        Ok(())
    }
}
