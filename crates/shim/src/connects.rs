//! The cookies of the job's connects over loopback, which all its processes on this node share.

use std::ffi::CStr;
use std::sync::atomic::{AtomicU64, Ordering};

use isthmus_wire::settings::CONNECTS;

use crate::sys;

/// Cookies of the job's latest connects over loopback on this node. The place of a cookie is the
/// cookie modulo the number of places. All processes of the job share them.
#[derive(Clone, Copy)]
pub(crate) struct Connects(&'static [AtomicU64]);

impl Connects {
    /// Maps the file; `None` if it isn't there or too short.
    pub(crate) fn open(path: &CStr) -> Option<Self> {
        let pages = sys::map_shared(path, CONNECTS * size_of::<u64>()).ok()?;
        // SAFETY: page-aligned, of this length, mapped until the process ends; all bits
        // are valid, and other processes change them by atomic stores alone.
        Some(Self(unsafe { std::slice::from_raw_parts(pages.cast::<AtomicU64>(), CONNECTS) }))
    }

    fn place(self, cookie: u64) -> Option<&'static AtomicU64> {
        self.0.get(usize::try_from(cookie % CONNECTS as u64).ok()?)
    }

    /// Puts a cookie in its place.
    pub(crate) fn note(self, cookie: u64) {
        if let Some(place) = self.place(cookie) {
            place.store(cookie, Ordering::Relaxed);
        }
    }

    /// Whether this cookie is there.
    pub(crate) fn contains(self, cookie: u64) -> bool {
        cookie != 0 && self.place(cookie).is_some_and(|place| place.load(Ordering::Relaxed) == cookie)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies_of_connects_are_kept_until_another_takes_the_place() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let path = std::ffi::CString::new(file.path().to_str().unwrap()).unwrap();
        assert!(Connects::open(&path).is_none(), "too short");
        file.as_file().set_len((CONNECTS * 8) as u64).unwrap();
        let [ours, theirs] = [(); 2].map(|()| Connects::open(&path).unwrap());
        assert!(!ours.contains(0));
        ours.note(5);
        assert!(theirs.contains(5));
        let later = 5 + CONNECTS as u64;
        assert!(!theirs.contains(later));
        theirs.note(later);
        assert!(ours.contains(later) && !ours.contains(5));
    }
}
