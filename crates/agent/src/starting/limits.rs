//! Limits of this process: an agent holds two descriptors for each encrypted
//! connection of its node, and systems start processes with 1,024 of them.

use std::io;
use std::sync::OnceLock;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// As it was before it was raised.
static ORIGINAL: OnceLock<(u64, u64)> = OnceLock::new();

/// Raises the number of descriptors to what the system allows.
///
/// # Errors
/// As setrlimit(2).
pub fn raise_descriptors() -> io::Result<()> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    let _ = ORIGINAL.set((soft, hard));
    Ok(setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?)
}

/// Gives a new process the number that this one was started with: programs that
/// use select(2) fail with more than 1,024. To be called before exec.
///
/// # Errors
/// As setrlimit(2).
pub fn restore_descriptors() -> io::Result<()> {
    match ORIGINAL.get() {
        Some((soft, hard)) => Ok(setrlimit(Resource::RLIMIT_NOFILE, *soft, *hard)?),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_raised_for_the_agent_is_restored_for_its_children() {
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
