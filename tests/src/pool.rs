//! Which labs are up. Tests that want the same grid use the same lab, one after
//! another; a few tests run side by side, each in a lab of its own.
//!
//! The tests are threads of one process (libtest), because processes could not
//! share labs.

use std::io::Write as _;
use std::ops::Deref;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use anyhow::Result;

use crate::{Mpi, World};

/// Most labs that tests use at the same moment. Ranks poll, so more of them would slow each other
/// down on two cores.
const SIDE_BY_SIDE: usize = 2;
/// Most labs that stay up while no test uses them. Their services take little, but not nothing.
const IDLE: usize = 3;

static POOL: Mutex<Pool> = Mutex::new(Pool { used: 0, idle: Vec::new() });
static FREED: Condvar = Condvar::new();
/// Held by the test that waits for places. Other tests queue behind it, so that a test that wants
/// all places gets them.
static TURN: Mutex<()> = Mutex::new(());

struct Pool {
    used: usize,
    /// The labs that no test uses, the least recently used lab first.
    idle: Vec<(&'static str, World)>,
}

/// Locks a mutex, also after a failed test, which leaves the pool as it was.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Places among [`SIDE_BY_SIDE`], which are free again when this value is dropped. How long they
/// were held is printed then, if `ISTHMUS_TIMES` is set.
pub struct Places {
    count: usize,
    since: Instant,
}

impl Places {
    /// Waits for a single place.
    pub fn one() -> Self {
        Self::take(1)
    }

    /// Waits for all places, so that no other test uses a lab.
    pub fn all() -> Self {
        Self::take(SIDE_BY_SIDE)
    }

    fn take(count: usize) -> Self {
        let _turn = lock(&TURN);
        let pool = lock(&POOL);
        let free = |pool: &mut Pool| pool.used + count > SIDE_BY_SIDE;
        let mut pool = FREED.wait_while(pool, free).unwrap_or_else(PoisonError::into_inner);
        pool.used += count;
        Self { count, since: Instant::now() }
    }
}

impl Drop for Places {
    fn drop(&mut self) {
        lock(&POOL).used -= self.count;
        FREED.notify_all();
        if std::env::var_os("ISTHMUS_TIMES").is_some() {
            let (thread, seconds) = (std::thread::current(), self.since.elapsed().as_secs_f64());
            // Not by a macro, whose output of a passed test is not shown.
            let _ = writeln!(std::io::stderr(), "{seconds:6.1} s  {}", thread.name().unwrap_or_default());
        }
    }
}

/// A grid that tests share.
pub struct Shared(&'static str);

impl Shared {
    /// The grid of this name in tests/grids, to be shared by tests.
    pub const fn new(grid: &'static str) -> Self {
        Self(grid)
    }

    /// Takes a lab of the grid, for this test alone until the value is dropped.
    ///
    /// # Errors
    /// The lab doesn't come up.
    pub fn take(&self) -> Result<SharedWorld> {
        self.world(Places::one())
    }

    /// Takes a lab of the grid, with no other test beside this one. It is for tests that measure
    /// time.
    ///
    /// # Errors
    /// The lab doesn't come up.
    pub fn take_alone(&self) -> Result<SharedWorld> {
        self.world(Places::all())
    }

    /// Takes a lab for jobs of this MPI. Jobs of Open MPI 5 have the machine alone: beside others
    /// its launcher often hangs or crashes at its end.
    ///
    /// # Errors
    /// The lab doesn't come up.
    pub fn take_for(&self, mpi: Mpi) -> Result<SharedWorld> {
        if mpi == Mpi::OpenMpi5 { self.take_alone() } else { self.take() }
    }

    fn world(&self, places: Places) -> Result<SharedWorld> {
        let kept = {
            let mut pool = lock(&POOL);
            let found = pool.idle.iter().rposition(|(grid, _)| *grid == self.0);
            found.map(|index| pool.idle.remove(index).1)
        };
        let world = kept.map_or_else(|| World::start(self.0), Ok)?;
        Ok(SharedWorld { grid: self.0, world: Some(world), _places: places })
    }
}

/// A lab that a test has taken. The next test gets it as this test leaves it.
pub struct SharedWorld {
    grid: &'static str,
    world: Option<World>,
    _places: Places,
}

impl Deref for SharedWorld {
    type Target = World;

    #[allow(clippy::expect_used, reason = "only drop takes it away")]
    fn deref(&self) -> &World {
        self.world.as_ref().expect("there is one until the value is dropped")
    }
}

impl Drop for SharedWorld {
    fn drop(&mut self) {
        let Some(world) = self.world.take() else { return };
        let mut pool = lock(&POOL);
        pool.idle.push((self.grid, world));
        let surplus = (pool.idle.len() > IDLE).then(|| pool.idle.remove(0));
        // Taking a lab down takes a moment.
        drop(pool);
        drop(surplus);
    }
}

/// Takes down all labs that no test uses, at the end of the tests.
pub(crate) fn clear() {
    let idle = std::mem::take(&mut lock(&POOL).idle);
    drop(idle);
}
