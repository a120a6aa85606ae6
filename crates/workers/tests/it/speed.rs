//! Workers don't wait, and few messages cross.

use std::time::Duration;

use bytes::Bytes;

use crate::losses::settings;
use crate::world::World;

/// Runs tasks of 1 ms by 40 workers at another site, 10 ms away. Returns the time by the least possible, and
/// messages between sites for each task.
fn far(flat_below: usize) -> (f64, f64) {
    let mut world = World::new(11, settings(flat_below, 2));
    world.task_time = |_| Duration::from_millis(1);
    for node in ["n1", "n2", "n3", "n4"] {
        for _ in 0..10 {
            world.start("beta", node, 1);
        }
    }
    let tasks = 80_000;
    for _ in 0..tasks {
        world.submit(Bytes::from_static(b"x"));
    }
    world.finish(tasks);
    let least = tasks as f64 / 40.0 * 1e-3;
    (world.now.as_secs_f64() / least, world.crossings as f64 / tasks as f64)
}

#[test]
fn workers_far_away_are_busy() {
    let (with_bosses, crossings) = far(0);
    assert!(with_bosses < 1.15, "{with_bosses}");
    assert!(crossings < 0.1, "{crossings}");
    let (flat, of_flat) = far(100);
    assert!(flat < 1.15, "{flat}");
    assert!(of_flat > crossings, "{of_flat} {crossings}");
}

#[test]
fn long_tasks_do_not_wait_at_a_worker() {
    let mut world = World::new(11, settings(0, 2));
    world.task_time = |_| Duration::from_secs(10);
    for _ in 0..8 {
        world.start("beta", "n1", 1);
    }
    for _ in 0..16 {
        world.submit(Bytes::new());
    }
    world.finish(16);
    assert!(world.now < Duration::from_millis(20_500), "{:?}", world.now);
}
