//! Programs that accept a knock and never fetch the connection behind it: by io_uring, by
//! system calls of their own, or because they have lost their agent. The kernel tells the
//! agent who has a knock's other end. The user reads the program's name, and the agent
//! carries the connection on the knock.

use std::net::SocketAddrV4;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use isthmus_net::sock_diag;
use isthmus_wire::proto::Hindrance as Kind;
use procfs::process::{FDTarget, ProcState, Process, all_processes};
use tracing::info;

use super::watched::{Found, INTERVAL};
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::starting::preloadable::Hindrance;
use crate::starting::programs::Uncarried;

/// Most knocks that are looked at in a row, so that other tasks get their turn.
const AT_ONCE: usize = 256;

/// Looks for programs that take knocks past their shims, until the job ends.
pub(crate) async fn follow(node: Arc<Node>, job: Arc<Job>) {
    let mut interval = tokio::time::interval(INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = job.ended.cancelled() => return,
        }
        let now = Instant::now();
        for (from, watched) in job.sockets.knocks.to_look_at(now, AT_ONCE) {
            let Some((found, inode)) = find(from, watched.to) else { continue };
            let holder = match found {
                Found::Accepted if !watched.is_past => {
                    let found = tokio::task::spawn_blocking(move || holder(inode.into()));
                    found.await.ok().flatten()
                }
                _ => None,
            };
            // A stopped process fetches the connection once it goes on.
            let found = if holder.as_ref().is_some_and(is_stopped) { Found::Queued } else { found };
            // The process has said so itself if the agent carries its listener's connections.
            if job.sockets.knocks.found(from, found, now)
                && !job.sockets.keeps(watched.to.port())
                && let Some(holder) = holder
            {
                report(&node, &job, &holder, Kind::PastLibc);
            }
        }
    }
}

/// Where a knock is, with the inode of its accepted socket or 0; `None` if the kernel doesn't tell.
fn find(from: SocketAddrV4, to: SocketAddrV4) -> Option<(Found, u32)> {
    match sock_diag::inode(to.into(), from.into()) {
        Ok(0) => Some((Found::Queued, 0)),
        Ok(inode) => Some((Found::Accepted, inode)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some((Found::Nowhere, 0)),
        Err(_) => None,
    }
}

/// Tells the user why the process with this id isn't carried.
pub(crate) fn report_process(node: &Node, job: &Job, pid: u32, kind: Kind) {
    if let Ok(process) = Process::new(pid.cast_signed()) {
        report(node, job, &process, kind);
    }
}

/// Tells the user why this process isn't carried.
fn report(node: &Node, job: &Job, process: &Process, kind: Kind) {
    let program = process.stat().map(|stat| stat.comm).unwrap_or_default();
    // The path can't be read of a process that has given up its user for another one.
    let file = process.exe().unwrap_or_else(|_| PathBuf::from(&program));
    info!(job = %job.id, program, pid = process.pid, ?kind, "not carried");
    let hindrance = Hindrance { kind, detail: String::new() };
    job.news.uncarried(node.uncarried(Uncarried { program, file, hindrance }));
}

/// A process that has the socket of this inode.
fn holder(inode: u64) -> Option<Process> {
    all_processes().ok()?.flatten().find(|process| {
        let mut open = process.fd().into_iter().flatten().flatten();
        open.any(|open| matches!(open.target, FDTarget::Socket(has) if has == inode))
    })
}

fn is_stopped(process: &Process) -> bool {
    let state = process.stat().and_then(|stat| stat.state());
    matches!(state, Ok(ProcState::Stopped | ProcState::Tracing))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd as _;

    #[test]
    fn who_has_a_socket_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let address = |address: std::io::Result<std::net::SocketAddr>| match address.unwrap() {
            std::net::SocketAddr::V4(address) => address,
            other => panic!("{other}"),
        };
        let (from, to) = (address(stream.local_addr()), address(stream.peer_addr()));
        assert_eq!(find(from, to), Some((Found::Queued, 0)));
        let (accepted, _) = listener.accept().unwrap();
        let Some((Found::Accepted, inode)) = find(from, to) else { panic!("not accepted") };
        let holder = holder(inode.into()).unwrap();
        assert_eq!(holder.pid, i32::try_from(std::process::id()).unwrap());
        assert!(!is_stopped(&holder));
        assert!(accepted.as_raw_fd() > 0);
        assert_eq!(find(SocketAddrV4::new(*from.ip(), from.port() ^ 1), to), Some((Found::Nowhere, 0)));
    }
}
