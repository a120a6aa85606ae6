//! Nodes that are containers of ordinary users, each with a network namespace of its own: Podman's
//! without root, and bubblewrap's in a network by slirp4netns, much as Apptainer makes containers.
//! docs/containers.md says how. All lies behind NATs that let nothing in.

mod container;

use anyhow::{Context as _, Result, ensure};

use crate::beyond_mpi::losses;
use crate::clusters::sh;
use container::{Container, RESTRICTED, SLIRP, TOKEN, prepare, up};

/// Prints what a process of a job may do on its node, and where it is.
const LOOK: &str = r"sed -n 's/^\(CapEff\|CapBnd\|NoNewPrivs\|Seccomp\):[[:space:]]*/\1 /p' /proc/self/status
    echo network $(readlink /proc/self/ns/net)
    if [ -e /dev/net/tun ]; then echo tun there; else echo tun absent; fi";
/// Capabilities that no container has, with their numbers (linux/capability.h).
const LACKING: [(&str, u32); 3] = [("CAP_NET_ADMIN", 12), ("CAP_SYS_PTRACE", 19), ("CAP_SYS_ADMIN", 21)];

/// Checks what the processes of a job may do on these nodes, of which `head` is the first. Returns what
/// they have printed.
fn confined(head: &Container<'_>, nodes: &[&Container<'_>]) -> Result<String> {
    let output = head.run(nodes, &["--each", "--quiet", "--", "sh", "-c", LOOK])?;
    for node in nodes {
        let found = |key: &str| {
            let beginning = format!("{}: {key} ", node.node);
            let mut lines = output.stdout.lines();
            lines.find_map(|line| line.strip_prefix(&beginning)).with_context(|| output.whole())
        };
        for set in ["CapEff", "CapBnd"] {
            let capabilities = u64::from_str_radix(found(set)?, 16)?;
            for (name, number) in LACKING {
                ensure!((capabilities >> number) & 1 == 0, "{} has {name}: {}", node.node, output.whole());
            }
        }
        ensure!(found("tun")? == "absent", "{}", output.whole());
        let outside = sh(node.world, node.machine, &["readlink", "/proc/self/ns/net"])?;
        let network = found("network")?;
        ensure!(network.starts_with("net:") && network != outside.stdout.trim(), "{}", output.whole());
        // Podman's default profile.
        ensure!(node.network.is_some() || found("Seccomp")? == "2", "{}", output.whole());
    }
    Ok(output.stdout)
}

#[test]
#[ignore = "test-all"]
fn an_mpi_job_runs_over_containers_of_ordinary_users_at_two_closed_sites() -> Result<()> {
    let world = up()?;
    let a1 = Container::podman(&world, "n1.alpha", "a1", true)?;
    let a2 = Container::bubblewrap(&world, "n2.alpha", "a2")?;
    let b1 = Container::podman(&world, "n1.beta", "b1", true)?;
    confined(&a1, &[&a1, &a2, &b1])?;
    a1.ring(&[&a1, &a2, &b1])?;
    a2.ring(&[&a2, &b1])
}

#[test]
#[ignore = "test-all"]
fn torchrun_trains_over_containers_at_two_closed_sites() -> Result<()> {
    let world = up()?;
    let a2 = Container::bubblewrap(&world, "n2.alpha", "a2")?;
    let b1 = Container::podman(&world, "n1.beta", "b1", true)?;
    // Like `torchrun`, as in beyond_mpi.rs.
    let torchrun = "/usr/bin/python3 -m torch.distributed.run -r 1 -t 1 --master_port 29500";
    let nodes = "--nnodes $ISTHMUS_NODES --node_rank $ISTHMUS_NODE_RANK --master_addr $ISTHMUS_HEAD";
    let script = format!("{torchrun} {nodes} /run/files/train.py");
    let output = a2.run(&[&a2, &b1], &["--each", "--", "sh", "-c", &script])?;
    let losses = losses(&output);
    ensure!(losses.len() == 20 && losses[19] < 0.8 * losses[0], "{}", output.whole());
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn ray_has_three_workers_in_containers_at_two_closed_sites() -> Result<()> {
    let world = up()?;
    let a1 = Container::podman(&world, "n1.alpha", "a1", true)?;
    let a2 = Container::bubblewrap(&world, "n2.alpha", "a2")?;
    let b1 = Container::podman(&world, "n1.beta", "b1", true)?;
    let b2 = Container::podman(&world, "n2.beta", "b2", true)?;
    let words = ["--each", "--", "/run/files/ray/bin/python", "/run/files/ray_workers.py"];
    let output = a1.run(&[&a1, &a2, &b1, &b2], &words)?;
    let said = "a1.alpha: 3 workers have exchanged 9 objects";
    ensure!(output.stdout.lines().any(|line| line == said), "{}", output.whole());
    Ok(())
}

/// Two containers share a network, as those of a pod do: a gateway, and an agent that no other node of its
/// site has to reach.
#[test]
#[ignore = "test-all"]
fn a_pod_without_any_capability_is_a_closed_site() -> Result<()> {
    let world = up()?;
    let b1 = Container::podman(&world, "n1.beta", "b1", true)?;
    prepare(&world, "n1.gamma", "1:1", &["--gateways", "1"])?;
    let options = ["--hostname=pod", "--network=slirp4netns"];
    let pod = Container::start(&world, "n1.gamma", "pod", &options)?;
    let gateway = Container::start(&world, "n1.gamma", "gateway", &RESTRICTED)?;
    gateway.isthmus(&["up", "--token", TOKEN])?;
    let mut node = Container::start(&world, "n1.gamma", "node", &RESTRICTED)?;
    node.node = pod.node;
    let output = node.isthmus(&["up", "--token", TOKEN, "--via", SLIRP])?;
    ensure!(output.stdout.contains("agent pod.gamma runs;"), "{}", output.whole());
    let found = confined(&node, &[&node, &b1])?;
    for line in ["pod.gamma: CapBnd 0000000000000000", "pod.gamma: NoNewPrivs 1"] {
        ensure!(found.lines().any(|found| found == line), "no {line:?} in\n{found}");
    }
    node.ring(&[&node, &b1])
}

#[test]
#[ignore = "test-all"]
fn containers_of_a_site_that_publish_no_port_are_named() -> Result<()> {
    let world = up()?;
    let b1 = Container::podman(&world, "n1.beta", "b1", false)?;
    let _b2 = Container::podman(&world, "n2.beta", "b2", false)?;
    let output = b1.try_isthmus(&["doctor", "site", "beta"])?;
    let said = format!("b1.beta, b2.beta say that they are at the same address, {SLIRP}:7730, as containers");
    ensure!(output.status == 1 && output.stdout.contains(&said), "{}", output.whole());
    Ok(())
}
