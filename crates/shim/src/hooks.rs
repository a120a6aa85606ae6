//! The functions that a program calls instead of the C library's: nothing but
//! the way into the other modules.
//!
//! `extern "C-unwind"`, because the C library ends a cancelled thread by
//! unwinding its stack, out of `accept` for example.
//!
//! `fcntl`, `ioctl`, `open`, `prctl` and `syscall` are variadic in C. On the 64-bit Linux ABIs a variadic
//! call passes its first words where a plain call does, so they are defined
//! with the arguments that they may have.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};

use libc::{
    FILE, addrinfo, epoll_event, hostent, ifaddrs, mmsghdr, msghdr, pid_t, size_t, sockaddr, socklen_t,
    ssize_t, uid_t, utsname,
};

use crate::datagrams::{self, Destination};
use crate::ends::Side;
use crate::exec::{self, List, Named};
use crate::job::job;
use crate::numbers::State;
use crate::resolve::Room;
use crate::sandbox::Sandboxed;
use crate::sockaddr::Storage;
use crate::{
    children, connect, dual, failed, gate, interfaces, keepalive, listen, multicast, netlink, next, nodelay,
    numbers, own_calls, proc_net, resolve, signalled, standing, sys, ucx, unfinished, uring,
};

macro_rules! hooks {
    ($($(#[$doc:meta])* fn $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? $body:block)*) => {
        $(
            $(#[$doc])*
            /// # Safety
            /// As the C library's function of this name demands.
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub(crate) unsafe extern "C-unwind" fn $name($($arg: $type),*) $(-> $result)? {
                // SAFETY: every promise that the callees demand is the one
                // that the caller of this C function gives.
                unsafe { $body }
            }
        )*
    };
}

/// Messages that sendmmsg(2) takes at once (`UIO_MAXIOV`).
const MOST_MESSAGES: c_uint = 1024;

/// Whether a name can be written where a program wants it.
///
/// # Safety
/// `len` is null or valid.
unsafe fn has_room(address: *const sockaddr, len: *const socklen_t) -> bool {
    // SAFETY: not null, so valid by the caller's promise.
    !address.is_null() && !len.is_null() && unsafe { len.read_unaligned() }.cast_signed() >= 0
}

hooks! {
    /// connect(2).
    fn connect(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        match job() {
            Some(job) => connect::hook(job, fd, address, len),
            None => next::connect(fd, address, len),
        }
    }

    /// bind(2).
    fn bind(fd: c_int, address: *const sockaddr, len: socklen_t) -> c_int {
        match job() {
            Some(job) => listen::bind(job, fd, address, len),
            None => next::bind(fd, address, len),
        }
    }

    /// listen(2).
    fn listen(fd: c_int, backlog: c_int) -> c_int {
        if job().is_some() {
            listen::confine(fd);
        }
        let result = next::listen(fd, backlog);
        if result == 0 {
            gate::settled(fd);
        }
        result
    }

    /// accept(2).
    fn accept(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        match job() {
            Some(job) if address.is_null() || has_room(address, len) => {
                listen::accept(job, fd, address, len, 0)
            }
            // The kernel says what is wrong with the pointers.
            Some(_) | None => next::accept(fd, address, len),
        }
    }

    /// accept4(2).
    fn accept4(fd: c_int, address: *mut sockaddr, len: *mut socklen_t, flags: c_int) -> c_int {
        match job() {
            Some(job) if address.is_null() || has_room(address, len) => {
                listen::accept(job, fd, address, len, flags)
            }
            Some(_) | None => next::accept4(fd, address, len, flags),
        }
    }

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

    /// open(2): files that tell the node's addresses.
    fn open(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        proc_net::open(path, flags).unwrap_or_else(|| next::open(path, flags, mode))
    }

    /// open(2) of programs built for large files.
    fn open64(path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        proc_net::open(path, flags).unwrap_or_else(|| next::open64(path, flags, mode))
    }

    /// openat(2): the same, by their paths.
    fn openat(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        proc_net::open(path, flags).unwrap_or_else(|| next::openat(directory, path, flags, mode))
    }

    /// openat(2) of programs built for large files.
    fn openat64(directory: c_int, path: *const c_char, flags: c_int, mode: c_uint) -> c_int {
        proc_net::open(path, flags).unwrap_or_else(|| next::openat64(directory, path, flags, mode))
    }

    /// open(2) of programs built with `_FORTIFY_SOURCE`.
    fn __open_2(path: *const c_char, flags: c_int) -> c_int {
        proc_net::open(path, flags).unwrap_or_else(|| next::__open_2(path, flags))
    }

    /// The same, built for large files.
    fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
        proc_net::open(path, flags).unwrap_or_else(|| next::__open64_2(path, flags))
    }

    /// openat(2) of programs built with `_FORTIFY_SOURCE`.
    fn __openat_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        proc_net::open(path, flags).unwrap_or_else(|| next::__openat_2(directory, path, flags))
    }

    /// The same, built for large files.
    fn __openat64_2(directory: c_int, path: *const c_char, flags: c_int) -> c_int {
        proc_net::open(path, flags).unwrap_or_else(|| next::__openat64_2(directory, path, flags))
    }

    /// fopen(3): files that tell the node's addresses.
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
        proc_net::stream(path, mode).unwrap_or_else(|| next::fopen(path, mode))
    }

    /// fopen(3) of programs built for large files.
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
        proc_net::stream(path, mode).unwrap_or_else(|| next::fopen64(path, mode))
    }

    /// getsockname(2).
    fn getsockname(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        let Some(job) = job().filter(|_| has_room(address, len)) else {
            return next::getsockname(fd, address, len);
        };
        let mut name = Storage::new();
        let result = next::getsockname(fd, name.as_mut_ptr(), name.len_mut());
        if result == 0 {
            listen::report_name(job, fd, Side::Local, &name, address, len);
        }
        result
    }

    /// getpeername(2).
    fn getpeername(fd: c_int, address: *mut sockaddr, len: *mut socklen_t) -> c_int {
        let Some(job) = job().filter(|_| has_room(address, len)) else {
            return next::getpeername(fd, address, len);
        };
        let mut name = Storage::new();
        let result = next::getpeername(fd, name.as_mut_ptr(), name.len_mut());
        if result == 0 {
            listen::report_name(job, fd, Side::Peer, &name, address, len);
        }
        result
    }

    /// getsockopt(2): the errors of failed connects, and keepalives as the program set them.
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, len: *mut socklen_t) -> c_int {
        let result = next::getsockopt(fd, level, name, value, len);
        if level == libc::SOL_SOCKET && name == libc::SO_ERROR && result == 0 && failed::any() {
            failed::report(fd, value.cast(), len);
        }
        if result == 0 && keepalive::shows(level, name) && job().is_some() {
            keepalive::report(fd, name, value.cast(), len);
        }
        if result == 0 && nodelay::is(level, name) && job().is_some() {
            nodelay::report(fd, value.cast(), len);
        }
        match job() {
            Some(job) => dual::read(job, fd, (level, name), value, len, result),
            None => result,
        }
    }

    /// setsockopt(2): what it says of keepalives is merged with what isthmus has set.
    fn setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, len: socklen_t) -> c_int {
        if level == libc::IPPROTO_IP
            && let Some(value) = job().and_then(|job| multicast::named(job, (level, name), value, len))
        {
            return next::setsockopt(fd, level, name, value.as_ptr(), value.len());
        }
        if keepalive::depends_on(level, name) && job().is_some() {
            let set = || keepalive::set(fd, (level, name), value, len);
            return if gate::is_busy(fd) { gate::plainly(set) } else { sys::plain(set()) };
        }
        let result = if gate::is_busy(fd) {
            gate::plainly(|| sys::set_option_raw(fd, level, name, value, len))
        } else {
            next::setsockopt(fd, level, name, value, len)
        };
        if result == 0 && nodelay::is(level, name) && job().is_some() {
            nodelay::settle(fd, value.cast());
        }
        match job() {
            Some(job) => dual::set(job, fd, (level, name), value, len, result),
            None => result,
        }
    }

    /// socket(2).
    fn socket(domain: c_int, kind: c_int, protocol: c_int) -> c_int {
        let fd = gate::with_room(|| next::socket(domain, kind, protocol));
        if job().is_some() {
            gate::made(fd, domain, kind, protocol);
        }
        fd
    }

    /// close(2).
    fn close(fd: c_int) -> c_int {
        if numbers::is_known(fd) { gate::close(fd) } else { next::close(fd) }
    }

    /// close_range(2).
    fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
        match job() {
            Some(_) => gate::close_range(first, last, flags),
            None => next::close_range(first, last, flags),
        }
    }

    /// closefrom(3).
    fn closefrom(first: c_int) {
        match job() {
            Some(_) => {
                gate::close_range(c_uint::try_from(first).unwrap_or(0), c_uint::MAX, 0);
            }
            None => next::closefrom(first),
        }
    }

    /// epoll_create(2).
    fn epoll_create(size: c_int) -> c_int {
        numbers::note_epoll();
        gate::with_room(|| next::epoll_create(size))
    }

    /// epoll_create1(2).
    fn epoll_create1(flags: c_int) -> c_int {
        numbers::note_epoll();
        gate::with_room(|| next::epoll_create1(flags))
    }

    /// dup(2).
    fn dup(fd: c_int) -> c_int {
        if numbers::is_known(fd) {
            return gate::with_room(|| gate::duplicate(fd, || sys::dup(fd)));
        }
        let new = gate::with_room(|| next::dup(fd));
        gate::renewed(new);
        new
    }

    /// dup2(2).
    fn dup2(from: c_int, to: c_int) -> c_int {
        if numbers::is_known(from) || numbers::is_known(to) {
            return gate::duplicate_to(from, to, || sys::dup2(from, to));
        }
        next::dup2(from, to)
    }

    /// dup3(2).
    fn dup3(from: c_int, to: c_int, flags: c_int) -> c_int {
        if numbers::is_known(from) || numbers::is_known(to) {
            return gate::duplicate_to(from, to, || sys::dup3(from, to, flags));
        }
        next::dup3(from, to, flags)
    }

    /// fcntl(2).
    fn fcntl(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        gate::fcntl(fd, command, argument as c_long, || next::fcntl(fd, command, argument))
    }

    /// fcntl(2) of programs built for large files.
    fn fcntl64(fd: c_int, command: c_int, argument: c_ulong) -> c_int {
        gate::fcntl(fd, command, argument as c_long, || next::fcntl64(fd, command, argument))
    }

    /// epoll_ctl(2).
    fn epoll_ctl(epoll: c_int, operation: c_int, fd: c_int, event: *mut epoll_event) -> c_int {
        if numbers::is_known(fd) {
            return gate::epoll_ctl(epoll, operation, fd, event);
        }
        next::epoll_ctl(epoll, operation, fd, event)
    }

    /// ioctl(2): addresses of interfaces.
    fn ioctl(fd: c_int, request: c_ulong, argument: *mut c_void) -> c_int {
        match job() {
            Some(_) if matches!(request, libc::FIONBIO | libc::FIOASYNC) && gate::is_busy(fd) => {
                gate::plainly(|| sys::ioctl_raw(fd, request, argument))
            }
            Some(job) => interfaces::ioctl(job, fd, request, argument),
            None => next::ioctl(fd, request, argument),
        }
    }

    /// chroot(2): the way to the agent's socket is lost.
    fn chroot(path: *const c_char) -> c_int {
        job().into_iter().for_each(standing::open);
        next::chroot(path)
    }

    /// setuid(2): the agent's socket is for its own user.
    fn setuid(user: uid_t) -> c_int {
        job().into_iter().for_each(standing::open);
        next::setuid(user)
    }

    /// seteuid(3): the same.
    fn seteuid(user: uid_t) -> c_int {
        job().into_iter().for_each(standing::open);
        next::seteuid(user)
    }

    /// setreuid(2): the same.
    fn setreuid(real: uid_t, effective: uid_t) -> c_int {
        job().into_iter().for_each(standing::open);
        next::setreuid(real, effective)
    }

    /// setresuid(2): the same.
    fn setresuid(real: uid_t, effective: uid_t, saved: uid_t) -> c_int {
        job().into_iter().for_each(standing::open);
        next::setresuid(real, effective, saved)
    }

    /// syscall(2): the hooks by number.
    fn syscall(
        number: c_long, a: c_long, b: c_long, c: c_long, d: c_long, e: c_long, f: c_long
    ) -> c_long {
        own_calls::call(number, [a, b, c, d, e, f])
    }

    /// liburing's: its accept and connect pass the C library.
    fn io_uring_queue_init(entries: c_uint, ring: *mut c_void, flags: c_uint) -> c_int {
        if uring::is_allowed() { next::io_uring_queue_init(entries, ring, flags) } else { uring::NONE }
    }

    /// liburing's.
    fn io_uring_queue_init_params(entries: c_uint, ring: *mut c_void, parameters: *mut c_void) -> c_int {
        if uring::is_allowed() {
            next::io_uring_queue_init_params(entries, ring, parameters)
        } else {
            uring::NONE
        }
    }

    /// liburing's.
    fn io_uring_queue_init_mem(
        entries: c_uint, ring: *mut c_void, parameters: *mut c_void, buffer: *mut c_void, size: size_t
    ) -> c_int {
        if uring::is_allowed() {
            next::io_uring_queue_init_mem(entries, ring, parameters, buffer, size)
        } else {
            uring::NONE
        }
    }

    /// liburing's.
    fn io_uring_setup(entries: c_uint, parameters: *mut c_void) -> c_int {
        if uring::is_allowed() { next::io_uring_setup(entries, parameters) } else { uring::NONE }
    }

    /// prctl(2): filters of system calls.
    fn prctl(option: c_int, a: c_ulong, b: c_ulong, c: c_ulong, d: c_ulong) -> c_int {
        let sandboxed = if option == libc::PR_SET_SECCOMP { Sandboxed::enter(a, b) } else { None };
        let result = next::prctl(option, a, b, c, d);
        if let Some(sandboxed) = sandboxed.filter(|_| result != 0) {
            sandboxed.come_back();
        }
        result
    }

    /// execve(2).
    fn execve(path: *const c_char, arguments: List, environment: List) -> c_int {
        exec::in_place(Named::path(path), environment, |environment| {
            exec::execve::call(path, arguments, environment)
        })
    }

    /// execv(3).
    fn execv(path: *const c_char, arguments: List) -> c_int {
        exec::in_place(Named::path(path), exec::own_environment(), |environment| {
            exec::execve::call(path, arguments, environment)
        })
    }

    /// execvp(3).
    fn execvp(name: *const c_char, arguments: List) -> c_int {
        exec::in_place(Named::name(name), exec::own_environment(), |environment| {
            exec::execvpe::call(name, arguments, environment)
        })
    }

    /// execvpe(3).
    fn execvpe(name: *const c_char, arguments: List, environment: List) -> c_int {
        exec::in_place(Named::name(name), environment, |environment| {
            exec::execvpe::call(name, arguments, environment)
        })
    }

    /// fexecve(3).
    fn fexecve(fd: c_int, arguments: List, environment: List) -> c_int {
        exec::in_place(Named::File(fd), environment, |environment| {
            exec::fexecve::call(fd, arguments, environment)
        })
    }

    /// posix_spawn(3).
    fn posix_spawn(
        pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: List, environment: List
    ) -> c_int {
        exec::with_environment(Named::path(path), environment, |environment| {
            exec::posix_spawn::call(pid, path, actions, attributes, arguments, environment)
        })
    }

    /// posix_spawnp(3).
    fn posix_spawnp(
        pid: *mut pid_t, name: *const c_char, actions: *const c_void, attributes: *const c_void,
        arguments: List, environment: List
    ) -> c_int {
        exec::with_environment(Named::name(name), environment, |environment| {
            exec::posix_spawnp::call(pid, name, actions, attributes, arguments, environment)
        })
    }

    /// getifaddrs(3).
    fn getifaddrs(list: *mut *mut ifaddrs) -> c_int {
        match job() {
            Some(job) => interfaces::list(job, list),
            None => next::getifaddrs(list),
        }
    }

    /// freeifaddrs(3).
    fn freeifaddrs(list: *mut ifaddrs) {
        match job() {
            Some(_) => interfaces::free(list),
            None => next::freeifaddrs(list),
        }
    }

    /// gethostname(2).
    fn gethostname(name: *mut c_char, len: size_t) -> c_int {
        match job() {
            Some(job) => resolve::host_name(job, name, len),
            None => next::gethostname(name, len),
        }
    }

    /// gethostname(2) of programs built with `_FORTIFY_SOURCE`.
    fn __gethostname_chk(name: *mut c_char, len: size_t, room: size_t) -> c_int {
        match job() {
            Some(job) if len <= room => resolve::host_name(job, name, len),
            // Ends the program, which is about to overrun its buffer.
            Some(_) | None => next::__gethostname_chk(name, len, room),
        }
    }

    /// uname(2).
    fn uname(name: *mut utsname) -> c_int {
        let result = next::uname(name);
        if let Some(job) = job()
            && result == 0
        {
            resolve::node_name(job, name);
        }
        result
    }

    /// getaddrinfo(3).
    fn getaddrinfo(
        node: *const c_char, service: *const c_char, hints: *const addrinfo, result: *mut *mut addrinfo
    ) -> c_int {
        match job() {
            Some(job) => resolve::addresses(job, node, service, hints, result),
            None => next::getaddrinfo(node, service, hints, result),
        }
    }

    /// getnameinfo(3).
    fn getnameinfo(
        address: *const sockaddr, len: socklen_t, host: *mut c_char, host_len: socklen_t,
        service: *mut c_char, service_len: socklen_t, flags: c_int
    ) -> c_int {
        match job() {
            Some(job) => resolve::names(job, address, len, host, host_len, service, service_len, flags),
            None => next::getnameinfo(address, len, host, host_len, service, service_len, flags),
        }
    }

    /// gethostbyname(3).
    fn gethostbyname(name: *const c_char) -> *mut hostent {
        match job() {
            Some(job) => resolve::by_name(job, name),
            None => next::gethostbyname(name),
        }
    }

    /// gethostbyname2(3).
    fn gethostbyname2(name: *const c_char, family: c_int) -> *mut hostent {
        match job() {
            Some(job) => resolve::by_name2(job, name, family),
            None => next::gethostbyname2(name, family),
        }
    }

    /// gethostbyaddr(3).
    fn gethostbyaddr(address: *const c_void, len: socklen_t, family: c_int) -> *mut hostent {
        match job() {
            Some(job) => resolve::by_address(job, address, len, family),
            None => next::gethostbyaddr(address, len, family),
        }
    }

    /// gethostbyname_r(3).
    fn gethostbyname_r(
        name: *const c_char, entry: *mut hostent, buffer: *mut c_char, len: size_t,
        result: *mut *mut hostent, error: *mut c_int
    ) -> c_int {
        match job() {
            Some(job) => resolve::by_name_r(job, name, Room { entry, buffer, len, result, error }),
            None => next::gethostbyname_r(name, entry, buffer, len, result, error),
        }
    }

    /// gethostbyname2_r(3).
    fn gethostbyname2_r(
        name: *const c_char, family: c_int, entry: *mut hostent, buffer: *mut c_char, len: size_t,
        result: *mut *mut hostent, error: *mut c_int
    ) -> c_int {
        match job() {
            Some(job) => resolve::by_name2_r(job, name, family, Room { entry, buffer, len, result, error }),
            None => next::gethostbyname2_r(name, family, entry, buffer, len, result, error),
        }
    }

    /// gethostbyaddr_r(3).
    fn gethostbyaddr_r(
        address: *const c_void, address_len: socklen_t, family: c_int, entry: *mut hostent,
        buffer: *mut c_char, len: size_t, result: *mut *mut hostent, error: *mut c_int
    ) -> c_int {
        match job() {
            Some(job) => {
                let room = Room { entry, buffer, len, result, error };
                resolve::by_address_r(job, address, address_len, family, room)
            }
            None => next::gethostbyaddr_r(address, address_len, family, entry, buffer, len, result, error),
        }
    }

    /// waitpid(2), in a process that starts ranks.
    fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t {
        if !children::starts() {
            return next::waitpid(pid, status, options);
        }
        let mut own = 0;
        let status = if status.is_null() { &raw mut own } else { status };
        let ended = next::waitpid(pid, status, options);
        if ended > 0 {
            children::ended(ended, status.read_unaligned());
        }
        ended
    }

    /// kill(2).
    fn kill(pid: pid_t, signal: c_int) -> c_int {
        if children::starts() {
            children::signals(pid, signal);
        }
        next::kill(pid, signal)
    }

    /// killpg(3).
    fn killpg(group: pid_t, signal: c_int) -> c_int {
        // A negative one is none, which MPICH's proxy gives for ranks that it has collected.
        if group >= 0 && children::starts() {
            children::signals(-group, signal);
        }
        next::killpg(group, signal)
    }

    /// sigaction(2), in a process that starts ranks.
    fn sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int {
        signalled::set(signal, new, old)
    }

    /// signal(2), in a process that starts ranks.
    fn signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
        signalled::set_simply(signal, handler)
    }

    /// _exit(2), in a rank.
    fn _exit(status: c_int) {
        unfinished::ends(status);
        next::_exit(status);
    }

    /// UCX's; see [`ucx`].
    fn ucp_worker_progress(worker: *mut c_void) -> c_uint {
        ucx::progress(worker)
    }

    /// UCX's.
    fn ucp_disconnect_nb(endpoint: *mut c_void) -> *mut c_void {
        ucx::disconnect(endpoint)
    }

    /// UCX's.
    fn ucp_request_release(request: *mut c_void) {
        ucx::release(request);
    }

    /// UCX's.
    fn ucp_worker_destroy(worker: *mut c_void) {
        ucx::destroy(worker);
    }
}
