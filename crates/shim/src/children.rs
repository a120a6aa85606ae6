//! How ranks end. Only the process that started a rank learns its status: a daemon of the
//! launcher, or the launcher itself. Its agent is told of the ranks that end badly, and not
//! by this process's own signals, so that the user reads which rank it was, and how.
//!
//! The hooks may run in a signal's handler: they take no lock and no memory but the
//! stack's, and keep `errno`.

use std::ffi::{CStr, c_char, c_int};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, Ordering};

use isthmus_wire::launchers::{DAEMONS, starts_ranks};
use isthmus_wire::shim::Request;

use crate::agent::{self, Exchange};
use crate::job::{Job, job};
use crate::sys;

/// Most processes that are remembered which this one has signalled and not collected yet.
const SIGNALLED_MAX: usize = 1024;
/// Signals by which launchers end ranks.
const ENDING: [c_int; 6] =
    [libc::SIGHUP, libc::SIGINT, libc::SIGQUIT, libc::SIGABRT, libc::SIGKILL, libc::SIGTERM];
/// Flags of a process that ends, or that writes its core before it ends (`PF_EXITING`,
/// `PF_DUMPCORE` of linux/sched.h).
const ENDS: u64 = 0x4 | 0x200;
/// The environment variables that give a rank its number, in the order in which they count.
const RANKS: [&str; 3] = ["OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"];

static SIGNALLED: [AtomicI32; SIGNALLED_MAX] = [const { AtomicI32::new(0) }; SIGNALLED_MAX];
/// Whether any process may have been signalled: more were than have room, or all at once.
static ALL: AtomicBool = AtomicBool::new(false);

/// The rank's number that an environment variable gives, and the variable's place in [`RANKS`], of
/// which the lowest counts.
pub(crate) fn rank(variable: &[u8]) -> Option<(usize, u32)> {
    RANKS.iter().enumerate().find_map(|(order, name)| {
        let value = variable.strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some((order, std::str::from_utf8(value).ok()?.parse().ok()?))
    })
}

/// The place in [`DAEMONS`] of a launcher's daemon with this name.
pub(crate) fn daemon(name: &[u8]) -> Option<u32> {
    let place = DAEMONS.iter().position(|daemon| daemon.as_bytes() == name)?;
    u32::try_from(place).ok()
}

/// Tells the agent that this process, which starts ranks, is about to become a rank, or a daemon
/// that starts ranks. From now on it may end at any time, even before the library is loaded again.
pub(crate) fn introduce(job: &Job, becomes: &Request) {
    let errno = sys::errno();
    let _ = agent::tell(job, becomes);
    sys::set_errno(errno);
}

/// Whether this process starts ranks.
pub(crate) fn starts() -> bool {
    static STARTS: AtomicU8 = AtomicU8::new(0);
    unsafe extern "C" {
        static program_invocation_short_name: *const c_char;
    }
    match STARTS.load(Ordering::Relaxed) {
        0 => {
            // SAFETY: the C library's own string, set before any library is loaded.
            let name = unsafe { CStr::from_ptr(program_invocation_short_name) };
            let starts = name.to_str().is_ok_and(starts_ranks) && job().is_some();
            STARTS.store(1 + u8::from(starts), Ordering::Relaxed);
            starts
        }
        known => known == 2,
    }
}

/// Notes that this process is about to signal another one, or a group by the id of its leader.
pub(crate) fn signals(pid: c_int, signal: c_int) {
    // A process that has left its job may have forbidden itself to look at others.
    if !ENDING.contains(&signal) || job().is_none() {
        return;
    }
    let errno = sys::errno();
    match pid {
        0 | -1 => ALL.store(true, Ordering::Relaxed),
        // One that ends already doesn't end by this signal: a launcher may see a rank's
        // connection close before it has ended.
        pid if ends(pid.saturating_abs()) => {}
        pid => note(pid.saturating_abs()),
    }
    sys::set_errno(errno);
}

/// Tells the agent that this process has collected a child, with this wait status.
pub(crate) fn ended(pid: c_int, status: c_int) {
    let is_over = libc::WIFSIGNALED(status) || libc::WIFEXITED(status);
    if !is_over {
        return;
    }
    let was_signalled = forget(pid);
    let (Some(job), Ok(pid)) = (job(), u32::try_from(pid)) else { return };
    let errno = sys::errno();
    if was_signalled || status == 0 {
        drop(Exchange::begin_without_waiting(job, &Request::Collected { pid }));
    } else {
        // Waited for: the agent knows before the launcher acts on it.
        let _ = agent::tell(job, &Request::Ended { pid, status });
    }
    sys::set_errno(errno);
}

fn note(pid: c_int) {
    let holds = |slot: &AtomicI32| slot.load(Ordering::Relaxed) == pid;
    let takes =
        |slot: &AtomicI32| slot.compare_exchange(0, pid, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if !SIGNALLED.iter().any(holds) && !SIGNALLED.iter().any(takes) {
        ALL.store(true, Ordering::Relaxed);
    }
}

/// Forgets a process that has ended. Returns whether it was signalled.
fn forget(pid: c_int) -> bool {
    let gives =
        |slot: &AtomicI32| slot.compare_exchange(pid, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
    SIGNALLED.iter().any(gives) || ALL.load(Ordering::Relaxed)
}

/// Whether a process is ending, or has ended.
fn ends(pid: c_int) -> bool {
    let mut buffer = [0; 512];
    read(pid, b"stat", &mut buffer).and_then(flags).is_some_and(|flags| flags & ENDS != 0)
}

/// The flags of a process: the ninth field of `/proc/PID/stat`. The second field may hold anything
/// (proc(5)).
fn flags(stat: &[u8]) -> Option<u64> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let field =
        stat.get(name_end + 1..)?.split(|byte| *byte == b' ').filter(|field| !field.is_empty()).nth(6)?;
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// The beginning of a file of `/proc/PID`, as much as fits.
fn read<'a>(pid: c_int, name: &[u8], buffer: &'a mut [u8]) -> Option<&'a [u8]> {
    let mut path = [0; 32];
    let mut rest = path.as_mut_slice();
    // Formatting of an integer takes no memory.
    std::io::Write::write_fmt(&mut rest, format_args!("/proc/{pid}/")).ok()?;
    std::io::Write::write_all(&mut rest, name).ok()?;
    std::io::Write::write_all(&mut rest, b"\0").ok()?;
    let file = sys::open(CStr::from_bytes_until_nul(&path).ok()?).ok()?;
    let count = sys::read(file.raw(), buffer).ok()?;
    buffer.get(..count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rank_is_read_from_a_launcher_s_variables() {
        let named = |variables: &[&str]| variables.iter().filter_map(|text| rank(text.as_bytes())).min();
        for (variables, want) in [
            (&["PMI_RANK=3", "HOME=/root"][..], Some(3)),
            (&["PMIX_RANK=7", "OMPI_COMM_WORLD_RANK=2", "PMI_RANK=9"], Some(2)),
            (&["PMI_RANKS=3", "PMI_RANK=", "PMI_RANK=-1", "PMI_RANK"], None),
        ] {
            assert_eq!(named(variables).map(|(_, rank)| rank), want, "{variables:?}");
        }
    }

    #[test]
    fn flags_are_the_ninth_field() {
        for (stat, want) in [
            (&b"42 (die) S 1 42 42 0 -1 4194560 9 0"[..], Some(4_194_560)),
            (b"42 (a) b) Z 1 42 42 0 -1 4227084 9", Some(4_227_084)),
            (b"42 (die) S 1", None),
            (b"", None),
        ] {
            assert_eq!(flags(stat), want, "{}", String::from_utf8_lossy(stat));
        }
    }

    #[test]
    fn a_process_that_has_ended_ends_by_no_later_signal() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert!(!ends(pid));
        child.kill().unwrap();
        // SAFETY: only asks for a child of this process, and leaves it uncollected.
        let waited = unsafe {
            libc::waitid(
                libc::P_PID,
                child.id(),
                std::mem::MaybeUninit::zeroed().as_mut_ptr(),
                libc::WEXITED | libc::WNOWAIT,
            )
        };
        assert_eq!((waited, ends(pid)), (0, true));
        child.wait().unwrap();
        assert!(!ends(pid));
    }

    #[test]
    fn each_signalled_process_is_remembered_until_it_is_collected() {
        note(7001);
        note(7001);
        note(7002);
        assert_eq!([7001, 7001, 7002, 7003].map(forget), [true, false, true, false]);
    }
}
