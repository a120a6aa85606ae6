//! No waiting for acknowledgements on the way to the agent.
//!
//! A connection that the agent carries goes over loopback up to the agent. Packets are large there,
//! so that what programs write counts as small. The kernel holds it back until the agent's kernel
//! has acknowledged what came before (Nagle's algorithm, RFC 9293, section 3.7.4). The agent's
//! kernel delays that acknowledgement by 40 ms. The agent itself puts together what it sends. So
//! such a socket has `TCP_NODELAY`, and the program sees the option as it has set it.
//!
//! A process that gets such a socket from another process sees the option set.

use std::ffi::c_int;

use isthmus_wire::address::is_agents;
use libc::{IPPROTO_TCP, TCP_NODELAY, socklen_t};

use crate::ends;
use crate::sockaddr::Inet;
use crate::sys::{self, Fd};

/// Whether an option is `TCP_NODELAY`.
pub(crate) fn is(level: c_int, name: c_int) -> bool {
    (level, name) == (IPPROTO_TCP, TCP_NODELAY)
}

/// Whether the agent is at the other end of a socket.
fn leads_to_agent(fd: Fd) -> bool {
    let name = sys::peer_name(fd).ok().and_then(|name| Inet::parse(name.bytes()));
    name.is_some_and(|name| is_agents(name.ip))
}

/// Gives the socket `to` what the program has set of `TCP_NODELAY` on `from`. `to` must have been
/// noted in [`ends`]. `from` and `to` may be the same.
pub(crate) fn carry(from: Fd, to: Fd) {
    if leads_to_agent(to) {
        let delays = sys::get_int(from, IPPROTO_TCP, TCP_NODELAY) == Ok(0);
        if sys::set_int(to, IPPROTO_TCP, TCP_NODELAY, 1).is_ok() {
            ends::see_delays(sys::cookie(to), delays);
        }
    }
}

/// Notes what a setsockopt(2) of `TCP_NODELAY` has set, and keeps the option set towards the agent.
///
/// # Safety
/// `value` is as it was passed to a setsockopt that succeeded.
pub(crate) unsafe fn settle(fd: Fd, value: *const c_int) {
    let before = sys::errno();
    if leads_to_agent(fd) {
        // SAFETY: the kernel has read an int there: it takes nothing shorter.
        let delays = unsafe { value.read_unaligned() } == 0;
        if ends::see_delays(sys::cookie(fd), delays) && delays {
            let _ = sys::set_int(fd, IPPROTO_TCP, TCP_NODELAY, 1);
        }
    }
    sys::set_errno(before);
}

/// Replaces what getsockopt(2) has just written by what the program is to see.
///
/// # Safety
/// `value` and `len` are as they were passed to a getsockopt that succeeded.
pub(crate) unsafe fn report(fd: Fd, value: *mut c_int, len: *mut socklen_t) {
    let before = sys::errno();
    // SAFETY: the caller's promise.
    let is_whole = unsafe { len.read_unaligned() } as usize >= size_of::<c_int>();
    if is_whole && ends::sees_delays(sys::cookie(fd)) {
        // SAFETY: the call wrote an int there.
        unsafe { value.write_unaligned(0) };
    }
    sys::set_errno(before);
}
