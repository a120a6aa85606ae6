//! Open MPI 5's prterun now and then fails at the end of a job, with and without
//! isthmus (docs/mpi.md). Tests repeat such a run. The repeats of all tests are
//! counted, and more than a few fail the test.

use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Result, ensure};

use crate::{Output, pool};

/// Most runs that are repeated in all tests together, which make about 60.
const BUDGET: usize = 5;

static REPEATED: AtomicUsize = AtomicUsize::new(0);

/// Whether prterun itself hung after the program's output, or crashed. If a signal ended a rank,
/// prterun reports that, and has the rank's status.
pub(crate) fn failed(output: &Output) -> bool {
    const CRASHED: [i32; 2] = [128 + libc::SIGABRT, 128 + libc::SIGSEGV];
    let hung = output.status == 124 && !output.stdout.is_empty();
    hung || CRASHED.contains(&output.status) && !output.stderr.contains("noticed that process rank")
}

/// Counts a run that will be repeated.
///
/// # Errors
/// Too many runs have been repeated.
pub(crate) fn repeated(failed: &Output) -> Result<()> {
    let count = REPEATED.fetch_add(1, Ordering::Relaxed) + 1;
    ensure!(count <= BUDGET, "prterun failed in {count} runs\n{}", failed.whole());
    Ok(())
}

/// Has the process, at its end, take down the labs and print the number of repeated runs.
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
    eprintln!("runs repeated because Open MPI 5's prterun failed: {count} of at most {BUDGET}");
}
