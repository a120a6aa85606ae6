//! Messages: datagrams, sockets in messages, and what netlink tells. Calls that move the data of
//! connections are handed on.

use std::ffi::{c_int, c_uint, c_void};

use libc::{mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t};

use crate::datagrams::{self, Destination};
use crate::numbers::State;
use crate::{gate, netlink, next, numbers};

/// Messages that sendmmsg(2) takes at once (`UIO_MAXIOV`).
const MOST_MESSAGES: c_uint = 1024;

hooks! {
    /// sendto(2): datagrams to other nodes.
    fn sendto(
        fd: c_int, bytes: *const c_void, len: size_t, flags: c_int, address: *const sockaddr, room: socklen_t
    ) -> ssize_t {
        match datagrams::destination(fd, address.cast(), room, flags) {
            Destination::Itself => {
                let sent = next::sendto(fd, bytes, len, flags, address, room);
                if datagrams::again(sent, fd, address.cast(), room) {
                    return next::sendto(fd, bytes, len, flags, address, room);
                }
                sent
            }
            Destination::Twin(twin) => next::sendto(fd, bytes, len, flags, twin.as_ptr(), twin.len()),
            Destination::Refused => -1,
        }
    }

    /// sendmsg(2): datagrams to other nodes, and sockets in messages.
    fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
        gate::sends(message);
        match datagrams::destination_of(fd, message, flags) {
            Destination::Itself => {
                let sent = next::sendmsg(fd, message, flags);
                if datagrams::again_of(sent, fd, message) {
                    return next::sendmsg(fd, message, flags);
                }
                sent
            }
            Destination::Twin(twin) => {
                let mut copy = message.read_unaligned();
                (copy.msg_name, copy.msg_namelen) = (twin.as_ptr().cast_mut().cast(), twin.len());
                next::sendmsg(fd, &raw const copy, flags)
            }
            Destination::Refused => -1,
        }
    }

    /// sendmmsg(2): datagrams to other nodes, by the first one's destination.
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let count_sent = if messages.is_null() { 0 } else { count.min(MOST_MESSAGES) };
        for index in 0..count_sent as usize {
            gate::sends(messages.add(index).cast_const().cast());
        }
        let first = if count == 0 { std::ptr::null() } else { messages.cast_const().cast::<msghdr>() };
        match datagrams::destination_of(fd, first, flags) {
            Destination::Itself | Destination::Twin(_) => {
                let sent = next::sendmmsg(fd, messages, count, flags);
                if datagrams::again_of(sent as ssize_t, fd, first) {
                    return next::sendmmsg(fd, messages, count, flags);
                }
                sent
            }
            Destination::Refused => -1,
        }
    }

    /// recv(2): interfaces and routes.
    fn recv(fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int) -> ssize_t {
        if numbers::state(fd) != State::Netlink {
            return next::recv(fd, buffer, len, flags);
        }
        netlink::receive(buffer.cast(), len, flags, || next::recv(fd, buffer, len, flags))
    }

    /// recv(2) of programs built with `_FORTIFY_SOURCE`.
    fn __recv_chk(fd: c_int, buffer: *mut c_void, len: size_t, room: size_t, flags: c_int) -> ssize_t {
        if numbers::state(fd) != State::Netlink {
            return next::__recv_chk(fd, buffer, len, room, flags);
        }
        netlink::receive(buffer.cast(), len, flags, || next::__recv_chk(fd, buffer, len, room, flags))
    }

    /// recvfrom(2): the same.
    fn recvfrom(
        fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, room: *mut socklen_t
    ) -> ssize_t {
        if numbers::state(fd) != State::Netlink {
            return next::recvfrom(fd, buffer, len, flags, address, room);
        }
        netlink::receive(buffer.cast(), len, flags, || next::recvfrom(fd, buffer, len, flags, address, room))
    }

    /// recvfrom(2) of programs built with `_FORTIFY_SOURCE`.
    fn __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, len: size_t, whole: size_t, flags: c_int, address: *mut sockaddr,
        room: *mut socklen_t
    ) -> ssize_t {
        if numbers::state(fd) != State::Netlink {
            return next::__recvfrom_chk(fd, buffer, len, whole, flags, address, room);
        }
        netlink::receive(buffer.cast(), len, flags, || {
            next::__recvfrom_chk(fd, buffer, len, whole, flags, address, room)
        })
    }

    /// recvmsg(2): the same.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        if numbers::state(fd) != State::Netlink {
            return next::recvmsg(fd, message, flags);
        }
        netlink::receive_message(message, flags, || next::recvmsg(fd, message, flags))
    }
}
