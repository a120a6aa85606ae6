//! Non-blocking connects: the program's own socket connects to the agent's black hole, and stands in
//! for the connection until the helper exchanges it.

use isthmus_wire::address::BLACK_HOLE;
use isthmus_wire::shim::Request;

use crate::agent::Exchange;
use crate::helper;
use crate::job::Job;
use crate::patience;
use crate::pending::{Ask, Pending, elsewhere, with};
use crate::sockaddr::{Family, Inet, Storage};
use crate::sys::{self, Errno, Fd, Result};

pub(crate) enum Start {
    Ask(Request),
    /// The request for this connect has been sent already.
    Asked(Exchange),
}

/// Result of connecting the placeholder.
pub(crate) enum Started {
    /// The connect is under way. The program's call reports `EINPROGRESS`.
    Pending,
    /// The kernel answered the program's call by itself. The socket is or was connected, is
    /// connecting, or has an error to report.
    Kernel(Errno),
    /// There is no placeholder: the call must block until the connection is made.
    Refused,
}

/// Connects the program's own socket to the black hole and lists it as pending.
///
/// # Errors
/// If there is no agent; the socket is as it was.
pub(crate) fn start(job: &Job, fd: Fd, inet: Inet, source_port: u16, start: Start) -> Result<Started> {
    if elsewhere() {
        return Ok(Started::Refused);
    }
    let cookie = sys::cookie(fd);
    let black_hole = black_hole(job, inet.family);
    let patience = patience::of(job, fd);
    // The agent tells why it gives up. The kernel must not be first.
    let syn_counts = (patience == patience::longest(job))
        .then(|| {
            let raised = patience::syn_count(patience);
            let before = sys::get_int(fd, libc::IPPROTO_TCP, libc::TCP_SYNCNT).ok()?;
            sys::set_int(fd, libc::IPPROTO_TCP, libc::TCP_SYNCNT, raised).ok().map(|_| [raised, before])
        })
        .flatten();
    // The kernel would put off the SYN until the first write.
    let _ = sys::set_int(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN_CONNECT, 0);
    with(|list| {
        list.find(fd)?;
        if matches!(start, Start::Ask(_)) && list.is_awaited(fd) {
            return Ok(Started::Kernel(Errno(libc::EALREADY)));
        }
        match sys::connect_at_once(fd, &black_hole) {
            Err(Errno(libc::EINPROGRESS | libc::EINTR)) => {}
            Err(
                errno @ Errno(
                    libc::EALREADY
                    | libc::EISCONN
                    | libc::ECONNREFUSED
                    | libc::ECONNABORTED
                    | libc::ETIMEDOUT,
                ),
            ) => return Ok(Started::Kernel(errno)),
            Ok(_) | Err(_) => return Ok(Started::Refused),
        }
        if sys::tcp_state(fd) != Ok(sys::SYN_SENT) || helper::ensure(list).is_err() {
            dissolve(fd);
            return Ok(Started::Refused);
        }
        let ask = match start {
            Start::Asked(exchange) => Ask::Sent(exchange.without_waiting().raised()),
            Start::Ask(request) if !list.has_room() => Ask::Later(request),
            Start::Ask(request) => match Exchange::begin_without_waiting(job, &request) {
                Ok(exchange) => Ask::Sent(exchange.raised()),
                Err(Errno(libc::EAGAIN)) => Ask::Later(request),
                Err(errno) => {
                    dissolve(fd);
                    return Err(errno);
                }
            },
        };
        let pending = Pending {
            number: fd,
            cookie,
            given_up: false,
            family: inet.family,
            source_port,
            ask,
            deadline: sys::now() + patience,
            syn_counts,
            child_channels: Vec::new(),
            fork_channel: None,
        };
        list.add(pending).inspect_err(|_| dissolve(fd))?;
        list.wake();
        Ok(Started::Pending)
    })
}

/// The agent's black hole as a socket of this family reaches it.
pub(crate) fn black_hole(job: &Job, family: Family) -> Storage {
    Inet { family, ip: BLACK_HOLE, port: job.black_hole_port }.encode()
}

/// Undoes the connect of a socket that is in SYN_SENT.
fn dissolve(fd: Fd) {
    let _ = sys::connect(fd, &Storage::unspecified());
    // Leaving SYN_SENT counts as a reset connection.
    let _ = sys::get_int(fd, libc::SOL_SOCKET, libc::SO_ERROR);
}
