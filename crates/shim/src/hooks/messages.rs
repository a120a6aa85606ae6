//! Messages: datagrams, sockets in messages, and what netlink tells. Calls that move the data of
//! connections are handed on.

use std::ffi::{c_int, c_uint, c_void};

use libc::{iovec, mmsghdr, msghdr, size_t, sockaddr, socklen_t, ssize_t, timespec};

use crate::datagrams::{self, Destination};
use crate::numbers::State;
use crate::{gate, netlink, next, numbers};

/// Most messages that sendmmsg(2) takes at once (`UIO_MAXIOV`).
const MOST_MESSAGES: c_uint = 1024;

/// How many bytes a name may have; 0 if none is wanted.
///
/// # Safety
/// Each pointer is null or valid.
unsafe fn room_at(address: *const sockaddr, room: *const socklen_t) -> socklen_t {
    // SAFETY: the caller's promise.
    if address.is_null() || room.is_null() { 0 } else { unsafe { room.read_unaligned() } }
}

/// How many bytes a message's name may have; 0 if none is wanted.
///
/// # Safety
/// `message` is null or valid.
unsafe fn room_for_name(message: *const msghdr) -> socklen_t {
    if message.is_null() {
        return 0;
    }
    // SAFETY: the caller's promise.
    let msghdr { msg_name, msg_namelen, .. } = unsafe { message.read_unaligned() };
    if msg_name.is_null() { 0 } else { msg_namelen }
}

hooks! {
    /// sendto(2): refuses datagrams to other nodes, and sends the node's own to its twin.
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
            Destination::Twin(twin) => {
                let mut part = iovec { iov_base: bytes.cast_mut(), iov_len: len };
                let mut message: msghdr = std::mem::zeroed();
                (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
                datagrams::send_to_twin(fd, message, &twin, flags)
            }
            Destination::Refused => -1,
        }
    }

    /// sendmsg(2): refuses datagrams to other nodes, sends the node's own to its twin, and notes
    /// sockets in messages.
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
            Destination::Twin(twin) => datagrams::send_to_twin(fd, message.read_unaligned(), &twin, flags),
            Destination::Refused => -1,
        }
    }

    /// sendmmsg(2): treats each message as [`sendmsg`] does. A message that can't be sent as it is
    /// goes alone. A program that has sent fewer messages than it wanted goes on with the rest.
    fn sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int {
        let all = if messages.is_null() { 0 } else { count.min(MOST_MESSAGES) as usize };
        for index in 0..all {
            gate::sends(messages.add(index).cast_const().cast());
        }
        let plain = datagrams::plain(fd, messages.cast_const(), all, flags);
        let first = messages.cast::<msghdr>().cast_const();
        if plain == 0 && all > 0 {
            let sent = sendmsg(fd, first, flags);
            if sent >= 0 {
                (*messages).msg_len = sent as c_uint;
            }
            return if sent >= 0 { 1 } else { -1 };
        }
        let count = if plain < all { plain as c_uint } else { count };
        let sent = next::sendmmsg(fd, messages, count, flags);
        if all > 0 && datagrams::again_of(sent as ssize_t, fd, first) {
            return next::sendmmsg(fd, messages, count, flags);
        }
        sent
    }

    /// recv(2): edits what the kernel tells of interfaces and routes.
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

    /// recvfrom(2): edits what the kernel tells of interfaces and routes, and the senders of
    /// datagrams.
    fn recvfrom(
        fd: c_int, buffer: *mut c_void, len: size_t, flags: c_int, address: *mut sockaddr, room: *mut socklen_t
    ) -> ssize_t {
        if numbers::state(fd) != State::Netlink {
            let place = room_at(address, room);
            let received = next::recvfrom(fd, buffer, len, flags, address, room);
            if received >= 0 && place > 0 {
                datagrams::show_sender(address.cast(), place);
            }
            return received;
        }
        netlink::receive(buffer.cast(), len, flags, || next::recvfrom(fd, buffer, len, flags, address, room))
    }

    /// recvfrom(2) of programs built with `_FORTIFY_SOURCE`.
    fn __recvfrom_chk(
        fd: c_int, buffer: *mut c_void, len: size_t, whole: size_t, flags: c_int, address: *mut sockaddr,
        room: *mut socklen_t
    ) -> ssize_t {
        if numbers::state(fd) != State::Netlink {
            let place = room_at(address, room);
            let received = next::__recvfrom_chk(fd, buffer, len, whole, flags, address, room);
            if received >= 0 && place > 0 {
                datagrams::show_sender(address.cast(), place);
            }
            return received;
        }
        netlink::receive(buffer.cast(), len, flags, || {
            next::__recvfrom_chk(fd, buffer, len, whole, flags, address, room)
        })
    }

    /// recvmsg(2): edits what the kernel tells of interfaces and routes, and the senders of
    /// datagrams.
    fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
        if numbers::state(fd) == State::Netlink {
            return netlink::receive_message(message, flags, || next::recvmsg(fd, message, flags));
        }
        let place = room_for_name(message);
        let received = next::recvmsg(fd, message, flags);
        if received >= 0 && place > 0 {
            datagrams::show_sender((*message).msg_name, place);
        }
        received
    }

    /// recvmmsg(2): edits the senders of datagrams.
    fn recvmmsg(
        fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec
    ) -> c_int {
        let all = if messages.is_null() { 0 } else { count.min(MOST_MESSAGES) as usize };
        // What the kernel then says of a name's length may be more than there is room for.
        let rooms = (0..all).map(|index| room_for_name(messages.add(index).cast()));
        let least = rooms.filter(|room| *room > 0).min().unwrap_or(0);
        let received = next::recvmmsg(fd, messages, count, flags, timeout);
        let shown = if least > 0 { usize::try_from(received).unwrap_or(0).min(all) } else { 0 };
        for index in 0..shown {
            datagrams::show_sender((*messages.add(index)).msg_hdr.msg_name, least);
        }
        received
    }
}
