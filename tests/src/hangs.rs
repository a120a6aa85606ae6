//! Open MPI 5's prterun now and then doesn't notice that its job has ended, with
//! and without isthmus (docs/mpi.md). Tests run such a job again. How often, is
//! counted over all tests: more than a few are no longer the launcher's.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};

use crate::{Output, pool};

/// Runs that may be repeated among all tests. Over ssh 4 of 180 hung, and all
/// tests together make about 60 such runs.
const BUDGET: usize = 5;

static REPEATED: AtomicUsize = AtomicUsize::new(0);

/// Counts a run that hung at its end.
///
/// # Errors
/// If there have been too many.
pub(crate) fn repeated(hung: &Output) -> Result<()> {
    let count = REPEATED.fetch_add(1, Ordering::Relaxed) + 1;
    ensure!(count <= BUDGET, "{count} runs of prterun hung at their end\n{}", hung.whole());
    Ok(())
}

/// Has the end of the tests take down their labs and print the count.
pub(crate) fn print_at_exit() {
    static ONCE: Once = Once::new();
    // SAFETY: the function is one that may be called when a process exits.
    ONCE.call_once(|| unsafe {
        libc::atexit(at_exit);
    });
}

extern "C" fn at_exit() {
    pool::clear();
    let count = REPEATED.load(Ordering::Relaxed);
    eprintln!("runs of Open MPI 5 repeated because prterun hung at its end: {count} of at most {BUDGET}");
}
