//! Links between a job's processes that bypass the agents: connections that no agent
//! handed over, RDMA devices, memory shared with another node. The agent looks for
//! them from time to time; the head decides whether two nodes share one.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use isthmus_wire::VirtualAddress;
use isthmus_wire::proto::{self, Hindrance, job_news};
use procfs::net::{TcpNetEntry, TcpState};
use procfs::process::{FDTarget, MMPermissions, MMapPath};

use super::preloaded::{processes_of, ticks_since_boot};
use crate::accepting::past;
use crate::jobs::job::Job;
use crate::jobs::node::Node;

/// Time without a new connection before a look: a look would delay a job that is connecting its
/// ranks. Also the first pause between two looks; the pause doubles each time.
const CALM: Duration = Duration::from_secs(5);
/// Longest time between two looks.
const INTERVAL_MAX: Duration = Duration::from_secs(60);
/// Most links of one kind that are kept: one suffices for a warning.
const ENTRIES_MAX: usize = 256;
/// How the paths of RDMA devices begin that are opened for data.
const RDMA: &str = "/dev/infiniband/uverbs";
/// How the paths of mappings begin that share no memory with other nodes.
const NOT_MEMORY: &[&str] = &["/dev/zero", "/dev/infiniband", "anon_inode:", "socket:"];

/// The links that were seen at this node, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Seen {
    connections: BTreeSet<(String, String, String)>,
    devices: BTreeSet<(String, String)>,
    memory: BTreeSet<(String, String, String)>,
}

/// Looks until the job ends, and reports new links to the head.
pub(crate) async fn follow(node: Arc<Node>, job: Arc<Job>) {
    let began = ticks_since_boot();
    let mut pause = Duration::ZERO;
    let mut sent = Seen::default();
    loop {
        let calm = async {
            tokio::time::sleep(pause).await;
            let _ = tokio::time::timeout(INTERVAL_MAX, job.account.calm(CALM)).await;
        };
        tokio::select! {
            () = calm => {}
            () = job.ended.cancelled() => return,
        }
        let (looking, mut seen) = (job.clone(), sent.clone());
        // Hundreds of small reads, which would delay other tasks.
        let look = tokio::task::spawn_blocking(move || {
            let strays = look(&looking, began, &mut seen);
            (seen, strays)
        });
        let Ok((seen, strays)) = look.await else { return };
        for pid in strays {
            past::report_process(&node, &job, pid, Hindrance::PastLibc);
        }
        if seen != sent {
            job.news.send(job_news::Kind::Links(seen.message(node.name().to_string())));
            sent = seen;
        }
        pause = (pause * 2).clamp(CALM, INTERVAL_MAX);
    }
}

impl Seen {
    fn message(&self, node: String) -> proto::Links {
        let connection = |(local, remote, process): &(String, String, String)| proto::Connection {
            local: local.clone(),
            remote: remote.clone(),
            process: process.clone(),
        };
        let device = |(path, process): &(String, String)| proto::DeviceUse {
            path: path.clone(),
            process: process.clone(),
        };
        let memory = |(key, path, process): &(String, String, String)| proto::SharedMemory {
            key: key.clone(),
            path: path.clone(),
            process: process.clone(),
        };
        proto::Links {
            node,
            connections: self.connections.iter().map(connection).collect(),
            devices: self.devices.iter().map(device).collect(),
            memory: self.memory.iter().map(memory).collect(),
        }
    }
}

/// Adds the links that are seen now. Returns the processes that connect past the preloaded library:
/// it lets no connect go to a virtual address.
fn look(job: &Job, began: u64, seen: &mut Seen) -> BTreeSet<u32> {
    let mut strays = BTreeSet::new();
    let processes = processes_of(job.directory.path(), began);
    if processes.is_empty() {
        return strays;
    }
    let (connections, connects) = (connections(), connects());
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    for process in &processes {
        // Nothing can be read of a process that has just ended.
        let name = process.stat().map(|stat| stat.comm).unwrap_or_default();
        let name = format!("{name} ({})", process.pid);
        for target in process.fd().into_iter().flatten().flatten().map(|open| open.target) {
            match target {
                FDTarget::Socket(inode) => {
                    if connects.contains(&inode) {
                        strays.extend(u32::try_from(process.pid));
                    }
                    if let Some((local, remote)) = connections.get(&inode)
                        && !job.sockets.was_handed_over(inode)
                        && seen.connections.len() < ENTRIES_MAX
                    {
                        seen.connections.insert((local.to_string(), remote.to_string(), name.clone()));
                    }
                }
                FDTarget::Path(path)
                    if path.to_string_lossy().starts_with(RDMA) && seen.devices.len() < ENTRIES_MAX =>
                {
                    seen.devices.insert((path.to_string_lossy().into_owned(), name.clone()));
                }
                _ => {}
            }
        }
        for map in process.maps().into_iter().flatten() {
            let MMapPath::Path(path) = &map.pathname else { continue };
            let path = path.to_string_lossy();
            if map.perms.contains(MMPermissions::SHARED | MMPermissions::WRITE)
                && map.inode != 0
                && !NOT_MEMORY.iter().any(|prefix| path.starts_with(prefix))
                && seen.memory.len() < ENTRIES_MAX
            {
                let key = format!("{}:{}:{}:{}", boot.trim(), map.dev.0, map.dev.1, map.inode);
                seen.memory.insert((key, path.into_owned(), name.clone()));
            }
        }
    }
    strays
}

/// The node's TCP sockets.
fn sockets() -> impl Iterator<Item = TcpNetEntry> {
    let tables = [procfs::net::tcp(), procfs::net::tcp6()];
    tables.into_iter().flatten().flatten()
}

/// The inodes of this node's TCP sockets that are connecting to a virtual address.
fn connects() -> HashSet<u64> {
    sockets().filter(|entry| is_stray(&entry.state, entry.remote_address)).map(|entry| entry.inode).collect()
}

fn is_stray(state: &TcpState, remote: SocketAddr) -> bool {
    let is_virtual = |ip: IpAddr| matches!(ip, IpAddr::V4(ip) if VirtualAddress::new(ip).is_some());
    *state == TcpState::SynSent && is_virtual(plain(remote).ip())
}

/// The node's TCP connections to other nodes, by inode: local and remote address.
fn connections() -> HashMap<u64, (SocketAddr, SocketAddr)> {
    sockets()
        .filter(|entry| entry.state == TcpState::Established)
        .map(|entry| (entry.inode, (plain(entry.local_address), plain(entry.remote_address))))
        .filter(|(_, (_, remote))| !remote.ip().is_loopback())
        .collect()
}

/// Turns an IPv4-mapped IPv6 address into an IPv4 address.
fn plain(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V6(ip) => SocketAddr::new(ip.to_canonical(), address.port()),
        IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connects_to_virtual_addresses_have_passed_the_library() {
        for (state, remote, want) in [
            (TcpState::SynSent, "240.64.2.1:80", true),
            (TcpState::SynSent, "[::ffff:240.64.2.1]:80", true),
            (TcpState::SynSent, "127.128.0.2:80", false),
            (TcpState::SynSent, "192.0.2.1:80", false),
            (TcpState::SynSent, "[2001:db8::1]:80", false),
            (TcpState::Established, "240.64.2.1:80", false),
        ] {
            assert_eq!(is_stray(&state, remote.parse().unwrap()), want, "{state:?} {remote}");
        }
    }
}
