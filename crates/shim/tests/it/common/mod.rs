//! What the tests of the built library share: probes compiled from C, and
//! network namespaces of their own to run them in.

use std::ffi::OsStr;
use std::fs::{self, DirBuilder, File};
use std::io::{BufRead as _, BufReader};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

/// The library as users get it. A library that cargo builds along with the tests isn't that: it
/// would have other crates' features of shared dependencies in it.
pub(crate) fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let library = test.ancestors().nth(3).unwrap().join("release/libisthmus_shim.so");
    assert!(library.exists(), "{} is not built: run `make release` first", library.display());
    library
}

/// Compiles a probe into a directory.
pub(crate) fn probe(directory: &Path, name: &str) -> PathBuf {
    probe_with(directory, name, &[])
}

/// Compiles a probe into a directory with further options for the compiler.
pub(crate) fn probe_with(directory: &Path, name: &str, options: &[&str]) -> PathBuf {
    let out = directory.join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c").join(name).with_extension("c");
    let status = Command::new("cc")
        .args(["-O1", "-D_FORTIFY_SOURCE=2", "-Wall", "-Wextra", "-Werror", "-pthread"])
        .args(options)
        .arg("-o")
        .args([out.as_os_str(), source.as_os_str()])
        .status()
        .expect("a C compiler runs as cc");
    assert!(status.success(), "{} does not compile", source.display());
    out
}

/// Makes a job's directory: the library, and settings unless `settings` is `None`.
pub(crate) fn job_directory(directory: &Path, settings: Option<&str>) -> PathBuf {
    let job = directory.join("job");
    DirBuilder::new().mode(0o700).create(&job).unwrap();
    fs::copy(library(), job.join("libisthmus_shim.so")).unwrap();
    if let Some(settings) = settings {
        fs::write(job.join("shim.conf"), settings).unwrap();
        fs::set_permissions(job.join("shim.conf"), fs::Permissions::from_mode(0o600)).unwrap();
    }
    job
}

/// A program that runs in a network namespace of its own, with nothing but loopback. It ends when
/// its standard input does, and so with the test, however the test ends.
pub(crate) struct Server {
    child: Child,
    /// The first line that the server printed, which is its port.
    pub port: String,
}

impl Server {
    /// Starts a server in a new namespace.
    pub(crate) fn start(mut command: Command) -> Self {
        // SAFETY: only makes system calls.
        unsafe { command.pre_exec(enter_new_namespace) };
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut port = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut port).unwrap();
        let port = port.trim().to_owned();
        assert!(!port.is_empty(), "the server says its port");
        Self { child, port }
    }

    /// Runs another program to its end beside the server.
    pub(crate) fn beside(&self, mut command: Command) -> Output {
        let open = |kind: &str| File::open(format!("/proc/{}/ns/{kind}", self.child.id())).unwrap();
        let (user, net) = (open("user"), open("net"));
        let join = move || {
            for (file, kind) in [(&user, libc::CLONE_NEWUSER), (&net, libc::CLONE_NEWNET)] {
                // SAFETY: takes no pointer.
                if unsafe { libc::setns(file.as_raw_fd(), kind) } != 0 {
                    return Err(std::io::Error::last_os_error());
                }
            }
            Ok(())
        };
        // SAFETY: only makes system calls.
        unsafe { command.pre_exec(join) };
        command.output().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A command with the library of a job preloaded.
pub(crate) fn preloaded(program: impl AsRef<OsStr>, job: Option<&Path>) -> Command {
    let mut command = Command::new(program);
    if let Some(job) = job {
        command.env("LD_PRELOAD", job.join("libisthmus_shim.so"));
    }
    command
}

/// Panics with a probe's own report unless the probe went well.
pub(crate) fn assert_passed(what: &str, output: &Output) {
    let report = String::from_utf8_lossy(&output.stdout);
    let complete = report.lines().last().is_some_and(|line| line.starts_with("1.."));
    assert!(
        output.status.success() && complete,
        "{what}: {}\n{report}\n{}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
}

fn enter_new_namespace() -> std::io::Result<()> {
    let check = |result: i32| if result < 0 { Err(std::io::Error::last_os_error()) } else { Ok(result) };
    // SAFETY: takes no pointer.
    check(unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNET) })?;
    // SAFETY: takes no pointer.
    let socket = check(unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) })?;
    // SAFETY: all-zero is a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = *from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: `request` is a valid `ifreq`.
    check(unsafe { libc::ioctl(socket, libc::SIOCSIFFLAGS, &raw const request) })?;
    // SAFETY: the descriptor is this function's own.
    check(unsafe { libc::close(socket) })?;
    Ok(())
}
