//! Descriptors of the shim's own that the program may close at any time.

use crate::sys::{self, Fd, Identity, OwnedFd, Result};

/// A descriptor of the shim that outlives a call of the program. The
/// program may close whatever number it likes (`close_range`), so it is looked
/// at before it is used or closed.
#[derive(Debug)]
pub(crate) struct Kept {
    pub(crate) fd: Option<OwnedFd>,
    pub(crate) identity: Identity,
}

impl Kept {
    /// Keeps a descriptor.
    ///
    /// # Errors
    /// If the descriptor isn't open.
    pub(crate) fn new(fd: OwnedFd) -> Result<Self> {
        match sys::identity(fd.raw()) {
            Ok(identity) => Ok(Self { fd: Some(fd), identity }),
            Err(errno) => {
                // The number isn't open. By now another thread may have got it.
                std::mem::forget(fd);
                Err(errno)
            }
        }
    }

    /// Whether the number still stands for the same file, which the program may have closed.
    pub(crate) fn intact(&self) -> bool {
        sys::identity(self.raw()) == Ok(self.identity)
    }

    pub(crate) fn raw(&self) -> Fd {
        self.fd.as_ref().map_or(-1, OwnedFd::raw)
    }

    pub(crate) fn inode(&self) -> u64 {
        self.identity.inode
    }

    /// Moves the file to a number out of the program's way, and returns it.
    pub(crate) fn raised(mut self) -> Self {
        self.fd = self.fd.take().map(OwnedFd::raised);
        self
    }

    /// Moves the file to another number, beyond the program's limit if no other is free.
    pub(crate) fn relocate(&mut self) {
        if let Ok(copy) = OwnedFd::copy_of(self.raw()) {
            self.fd = Some(copy);
        }
    }

    /// Moves the file from a number below `first` to one that isn't. Returns whether it has.
    pub(crate) fn move_beyond(&mut self, first: Fd) -> bool {
        if self.raw() >= first || !self.intact() {
            return false;
        }
        let moved = sys::fcntl(self.raw(), libc::F_DUPFD_CLOEXEC, i64::from(first));
        moved.map(|new| self.fd = Some(OwnedFd::from_raw(new))).is_ok()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if !self.intact() {
            std::mem::forget(self.fd.take());
        }
    }
}
