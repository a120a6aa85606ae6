//! Limits of this process. An agent holds two descriptors for each encrypted
//! connection of its node; by default a process may have 1,024.

use std::io;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// The soft and the hard limit of descriptors before they were raised.
static ORIGINAL: OnceLock<(u64, u64)> = OnceLock::new();

/// Raises the number of descriptors to the hard limit.
///
/// # Errors
/// As setrlimit(2).
pub(crate) fn raise_descriptors() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let _ = ORIGINAL.set((soft, hard));
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

/// Gives a new process the original limit: programs that use select(2) fail with more
/// than 1,024 descriptors. To be called before exec.
///
/// # Errors
/// As setrlimit(2).
pub(crate) fn restore_descriptors() -> io::Result<()> {
    match ORIGINAL.get() {
        Some((soft, hard)) => Ok(setrlimit(Resource::RLIMIT_NOFILE, *soft, *hard)?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A module of its own: its tests change the limits of the whole process.
    mod alone {
        use super::*;

        #[test]
        fn the_agents_limit_is_raised_and_its_childrens_restored() {
            let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
            let soft = hard.min(1000);
            setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
            raise_descriptors().unwrap();
            assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (hard, hard));
            restore_descriptors().unwrap();
            assert_eq!(getrlimit(Resource::RLIMIT_NOFILE).unwrap(), (soft, hard));
            raise_descriptors().unwrap();
        }
    }
}
