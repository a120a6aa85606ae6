//! What the library exports.
//!
//! A preloaded library changes every program that it is preloaded into by each symbol that it
//! defines. It must define the functions that it stands in front of, and nothing else.

use std::process::Command;

const HOOKED: [&str; 86] = [
    "_Exit",
    "__gethostname_chk",
    "__open64_2",
    "__open_2",
    "__openat64_2",
    "__openat_2",
    "__recv_chk",
    "__recvfrom_chk",
    "_exit",
    "accept",
    "accept4",
    "bind",
    "chroot",
    "close",
    "close_range",
    "closefrom",
    "connect",
    "dup",
    "dup2",
    "dup3",
    "epoll_create",
    "epoll_create1",
    "epoll_ctl",
    "execv",
    "execve",
    "execvp",
    "execvpe",
    "fcntl",
    "fcntl64",
    "fexecve",
    "fopen",
    "fopen64",
    "freeifaddrs",
    "getaddrinfo",
    "getaddrinfo_a",
    "gethostbyaddr",
    "gethostbyaddr_r",
    "gethostbyname",
    "gethostbyname2",
    "gethostbyname2_r",
    "gethostbyname_r",
    "gethostid",
    "gethostname",
    "getifaddrs",
    "getnameinfo",
    "getpeername",
    "getsockname",
    "getsockopt",
    "io_uring_queue_init",
    "io_uring_queue_init_mem",
    "io_uring_queue_init_params",
    "io_uring_setup",
    "ioctl",
    "kill",
    "killpg",
    "listen",
    "open",
    "open64",
    "openat",
    "openat64",
    "posix_spawn",
    "posix_spawnp",
    "prctl",
    "quick_exit",
    "recv",
    "recvfrom",
    "recvmmsg",
    "recvmsg",
    "sendmmsg",
    "sendmsg",
    "sendto",
    "seteuid",
    "setresuid",
    "setreuid",
    "setsockopt",
    "setuid",
    "sigaction",
    "signal",
    "socket",
    "syscall",
    "ucp_disconnect_nb",
    "ucp_request_release",
    "ucp_worker_destroy",
    "ucp_worker_progress",
    "uname",
    "waitpid",
];

#[test]
fn only_what_is_hooked_is_exported() {
    let output = Command::new("nm")
        .args(["--dynamic", "--defined-only", "--format=posix"])
        .arg(crate::common::library())
        .env("LC_ALL", "C")
        .output()
        .expect("nm, of binutils, runs");
    let text = String::from_utf8(output.stdout).unwrap();
    let exported: Vec<_> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(exported, HOOKED);
}
