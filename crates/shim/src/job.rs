//! What this process knows of its job, from the settings file beside the shim.

use std::ffi::{CStr, CString, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};

use isthmus_wire::VirtualAddress;
use isthmus_wire::settings::{CONNECTS_NAME, ConnectLimits, FILE_NAME, SOCKET_NAME, Settings};
use isthmus_wire::topology;

use crate::connects::Connects;
use crate::hosts::{Hosts, host_name};
use crate::sockaddr::Storage;
use crate::sys;

/// Most bytes of a settings file; 100,000 nodes fit.
const TEXT_MAX: usize = 16 << 20;

/// What this process knows of its job and its node.
pub(crate) struct Job {
    /// The virtual address of the node.
    pub(crate) virtual_address: VirtualAddress,
    /// The node's grid name as a host name, cut to what Linux allows.
    pub(crate) name: CString,
    /// The interface that appears to hold the virtual address.
    pub(crate) interface: CString,
    /// Port of the agent's black-hole listener.
    pub(crate) black_hole_port: u16,
    /// How long connects to other nodes may take.
    pub(crate) connect_limits: ConnectLimits,
    /// The agent's Unix socket.
    pub(crate) agent: Storage,
    /// What the job preloads, as in `LD_PRELOAD`: this library, and the library for MPI if the job
    /// has it.
    pub(crate) preload: CString,
    /// The table of connects of the job's processes over loopback; `None` if it can't be opened.
    pub(crate) connects: Option<Connects>,
    text: String,
    hosts: AtomicPtr<Hosts>,
}

static JOB: AtomicPtr<Job> = AtomicPtr::new(std::ptr::null_mut());

/// The pointer that stands for "there is no job".
fn none() -> *mut Job {
    static NONE: u8 = 0;
    (&raw const NONE).cast_mut().cast()
}

/// The process's job. `None` if the process has none; then the shim hands every call on.
pub(crate) fn job() -> Option<&'static Job> {
    let none = none();
    let mut current = JOB.load(Ordering::Acquire);
    if current.is_null() {
        // Two threads may come here at once; the second one's work is dropped.
        // Waiting would not do: a fork may have taken the first one away.
        let loaded = load().map_or(none, |job| Box::into_raw(Box::new(job)));
        current =
            match JOB.compare_exchange(std::ptr::null_mut(), loaded, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => loaded,
                Err(earlier) => {
                    if loaded != none {
                        // SAFETY: made above and published nowhere.
                        drop(unsafe { Box::from_raw(loaded) });
                    }
                    earlier
                }
            };
    }
    if current == none {
        return None;
    }
    // SAFETY: published once, never freed, only shared.
    Some(unsafe { &*current })
}

/// Has the process be without a job from now on.
pub(crate) fn leave() {
    JOB.store(none(), Ordering::Release);
}

/// Gives the process back the job that it had left.
pub(crate) fn come_back(job: &'static Job) {
    JOB.store(std::ptr::from_ref(job).cast_mut(), Ordering::Release);
}

impl Job {
    /// The job's nodes by name and address, read at their first use.
    pub(crate) fn hosts(&self) -> &Hosts {
        let mut current = self.hosts.load(Ordering::Acquire);
        if current.is_null() {
            let hosts = Settings::decode(&self.text).map(|settings| settings.hosts).unwrap_or_default();
            let made = Box::into_raw(Box::new(Hosts::new(hosts)));
            current = match self.hosts.compare_exchange(
                std::ptr::null_mut(),
                made,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => made,
                Err(earlier) => {
                    // SAFETY: made above and published nowhere.
                    drop(unsafe { Box::from_raw(made) });
                    earlier
                }
            };
        }
        // SAFETY: published once, never freed, only shared.
        unsafe { &*current }
    }
}

fn load() -> Option<Job> {
    let library = library()?;
    let directory = directory(library)?;
    if !is_private(directory) {
        return None;
    }
    let path = |name: &str| CString::new([directory, b"/", name.as_bytes()].concat()).ok();
    let text = read_text(&path(FILE_NAME)?)?;
    // The hosts of a large job take a while to read and most processes never
    // resolve a name.
    let head: String =
        text.lines().filter(|line| !line.starts_with("host ")).flat_map(|line| [line, "\n"]).collect();
    let settings = Settings::decode(&head).ok()?;
    Some(Job {
        virtual_address: settings.virtual_address,
        name: host_name(&settings.name),
        interface: CString::new(settings.interface).ok()?,
        black_hole_port: settings.black_hole_port,
        connect_limits: settings.connect_limits,
        agent: Storage::unix(path(SOCKET_NAME)?.as_bytes())?,
        preload: preload(library, &path(topology::LIBRARY)?)?,
        connects: path(CONNECTS_NAME).and_then(|path| Connects::open(&path)),
        text,
        hosts: AtomicPtr::new(std::ptr::null_mut()),
    })
}

/// The path of this library as the loader was told it. So a link in the path is not followed.
fn library() -> Option<&'static CStr> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    // SAFETY: the address is one of this library's own; `info` is writable.
    let found = unsafe { libc::dladdr(library as *const c_void, info.as_mut_ptr()) };
    // SAFETY: zeroed before, and all-zero is a valid `Dl_info`.
    let info = unsafe { info.assume_init() };
    if found == 0 || info.dli_fname.is_null() {
        return None;
    }
    // SAFETY: the loader's own string; the shim is never unloaded.
    Some(unsafe { CStr::from_ptr(info.dli_fname) })
}

/// What the job preloads: `library`, and `for_mpi` if that is there.
fn preload(library: &CStr, for_mpi: &CStr) -> Option<CString> {
    if sys::open_with(for_mpi, libc::O_PATH).is_err() {
        return Some(library.to_owned());
    }
    CString::new([library.to_bytes(), b":", for_mpi.to_bytes()].concat()).ok()
}

/// The job's directory, which holds the library.
fn directory(library: &'static CStr) -> Option<&'static [u8]> {
    let path = library.to_bytes();
    let slash = path.iter().rposition(|byte| *byte == b'/')?;
    path.get(..slash)
}

/// Whether a directory belongs to this process's user or to root, and no other user may write to
/// it. Any other directory could hold another user's settings.
fn is_private(directory: &[u8]) -> bool {
    // Not opened for reading: descriptors of path only need no right to read.
    let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_NOFOLLOW;
    let opened = CString::new(directory).ok().and_then(|path| sys::open_with(&path, flags).ok());
    opened.is_some_and(|directory| sys::is_private(directory.raw()))
}

fn read_text(path: &CStr) -> Option<String> {
    let file = sys::open_with(path, libc::O_RDONLY | libc::O_NOFOLLOW).ok()?;
    if !sys::is_private(file.raw()) {
        return None;
    }
    let mut text = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let read = sys::read(file.raw(), &mut buffer).ok()?;
        if read == 0 {
            return String::from_utf8(text).ok();
        }
        text.extend_from_slice(buffer.get(..read)?);
        if text.len() > TEXT_MAX {
            return None;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_without_settings_has_no_job() {
        assert!(job().is_none());
    }
}
