//! Breaking things in a running grid.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};

use crate::World;

/// Deadline of commands that only look at something. It guards against hanging only.
const SOON: Duration = Duration::from_secs(60);

/// A shell script that cuts the node off which runs it.
fn cut_script() -> String {
    let rules = "add table inet cut\n\
                 add chain inet cut in { type filter hook input priority 0; policy drop; }\n\
                 add chain inet cut out { type filter hook output priority 0; policy drop; }\n\
                 add rule inet cut in iif lo accept\n\
                 add rule inet cut out oif lo accept\n";
    format!("printf '{}' | nft -f -", rules.replace('\n', "\\n"))
}

impl World {
    /// Ids, as the node sees them, of processes that run a program. The end of the program's path
    /// is enough.
    ///
    /// # Errors
    /// The processes can't be listed.
    pub fn processes(&self, node: &str, program: &str) -> Result<Vec<String>> {
        let listing = self.sh(node, SOON, &["ps", "-eo", "pid=,args="])?;
        ensure!(listing.status == 0, "{}", listing.whole());
        let found = listing.stdout.lines().filter_map(|line| {
            let mut words = line.split_whitespace();
            let pid = words.next()?;
            words.next()?.ends_with(program).then(|| pid.to_owned())
        });
        Ok(found.collect())
    }

    /// Id of a node's process that serves as `role`, or of its `isthmus run`.
    ///
    /// # Errors
    /// The node has no such process.
    pub fn service(&self, node: &str, role: &str) -> Result<String> {
        let listing = self.sh(node, SOON, &["ps", "-eo", "pid=,args="])?;
        let found = listing.stdout.lines().find_map(|line| {
            let mut words = line.split_whitespace();
            let pid = words.next()?;
            (words.next()?.ends_with("/isthmus") && words.next()? == role).then(|| pid.to_owned())
        });
        found.with_context(|| listing.whole())
    }

    /// Sends a signal to a process of a node.
    ///
    /// # Errors
    /// The node has no such process.
    pub fn kill(&self, node: &str, signal: &str, pid: &str) -> Result<()> {
        let killed = self.sh(node, SOON, &["kill", signal, pid])?;
        ensure!(killed.status == 0, "{}", killed.whole());
        Ok(())
    }

    /// Sends a signal to all processes of a node but its first, which belongs to the lab. The
    /// signal comes from outside, as SIGSTOP would stop a sender in the node, too.
    ///
    /// # Errors
    /// The processes can't be found.
    pub fn signal_all(&self, node: &str, signal: &str) -> Result<()> {
        let space = self.sh(node, SOON, &["readlink", "/proc/self/ns/pid"])?.stdout;
        for entry in std::fs::read_dir("/proc")? {
            let path = entry?.path();
            let first = || {
                let status = std::fs::read_to_string(path.join("status")).unwrap_or_default();
                let ids = status.lines().find(|line| line.starts_with("NSpid:")).unwrap_or_default();
                ids.split_whitespace().last() == Some("1")
            };
            if !in_space(&path, space.trim()) || first() {
                continue;
            }
            let pid = path.file_name().unwrap_or_default();
            // A process that has just ended is no fault.
            let _ = std::process::Command::new("kill").arg(signal).arg(pid).status();
        }
        Ok(())
    }

    /// Has the kernels of these nodes, and so their agents, send a SYN again so often.
    ///
    /// # Errors
    /// The setting can't be changed.
    pub fn set_syn_retries(&self, nodes: &[&str], retries: u32) -> Result<()> {
        let script = format!("echo {retries} > /proc/sys/net/ipv4/tcp_syn_retries");
        for node in nodes {
            let set = self.sh(node, SOON, &["sh", "-c", &script])?;
            ensure!(set.status == 0, "{}", set.whole());
        }
        Ok(())
    }

    /// Cuts a node off: packets come in and go out over loopback only.
    ///
    /// # Errors
    /// The node's filter can't be set.
    pub fn cut(&self, node: &str) -> Result<()> {
        let done = self.sh(node, SOON, &["sh", "-c", &cut_script()])?;
        ensure!(done.status == 0, "{}", done.whole());
        Ok(())
    }

    /// Cuts a node off for so long, and returns when it is healed. The node heals itself: a command
    /// that this process starts late would make the cut longer. Returns the longest time that the
    /// cut may have taken, as the node has measured it.
    ///
    /// # Errors
    /// The node's filter can't be set.
    pub fn cut_for(&self, node: &str, length: Duration) -> Result<Duration> {
        let script = format!(
            "set -e; read began rest </proc/uptime; {}; sleep {}; nft delete table inet cut; \
             read ended rest </proc/uptime; echo $began $ended",
            cut_script(),
            length.as_secs_f64()
        );
        let done = self.sh(node, length + SOON, &["sh", "-c", &script])?;
        ensure!(done.status == 0, "{}", done.whole());
        let times: Vec<f64> = done.stdout.split_whitespace().map(str::parse).collect::<Result<_, _>>()?;
        let [began, ended] = times[..] else { bail!("no two times: {}", done.whole()) };
        Ok(Duration::try_from_secs_f64(ended - began)?)
    }

    /// Takes [`cut`](Self::cut) of a node back.
    ///
    /// # Errors
    /// The node wasn't cut off.
    pub fn heal(&self, node: &str) -> Result<()> {
        let done = self.sh(node, SOON, &["nft", "delete", "table", "inet", "cut"])?;
        ensure!(done.status == 0, "{}", done.whole());
        Ok(())
    }

    /// Cuts a site off: its router passes nothing on.
    ///
    /// # Errors
    /// The router's filter can't be set.
    pub fn cut_site(&self, site: &str) -> Result<()> {
        let rules = "add table inet cut; \
                     add chain inet cut pass { type filter hook forward priority -300; policy drop; }";
        let done = self.sh(&format!("router.{site}"), SOON, &["nft", rules])?;
        ensure!(done.status == 0, "{}", done.whole());
        Ok(())
    }

    /// Takes [`cut_site`](Self::cut_site) of a site back.
    ///
    /// # Errors
    /// The site wasn't cut off.
    pub fn heal_site(&self, site: &str) -> Result<()> {
        self.heal(&format!("router.{site}"))
    }

    /// Waits until none of the nodes has a process of a job left. Returns the time since `since`.
    ///
    /// # Errors
    /// A process is left at the deadline. The error names it and its node.
    pub fn gone(&self, nodes: &[&str], since: Instant, deadline: Duration) -> Result<Duration> {
        loop {
            let mut left = Vec::new();
            for node in nodes {
                let lines = self.leftovers(node)?;
                left.extend(lines.into_iter().map(|line| format!("{node}: {line}")));
            }
            let took = since.elapsed();
            if left.is_empty() {
                return Ok(took);
            }
            ensure!(took < deadline, "left behind after {took:?}:\n{}", left.join("\n"));
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn in_space(process: &Path, space: &str) -> bool {
    std::fs::read_link(process.join("ns/pid")).is_ok_and(|found| found.as_os_str() == space)
}
