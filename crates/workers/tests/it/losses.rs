//! Each task has one result, whoever is lost meanwhile.

use bytes::Bytes;
use isthmus_workers::message::TaskId;
use isthmus_workers::{Finished, Settings};
use proptest::prelude::*;

use crate::world::{World, answer};

pub(crate) fn settings(flat_below: usize, attempts: u32) -> Settings {
    let places = vec!["alpha".to_owned(), "n1".to_owned()];
    Settings { places, attempts, flat_below, setup: Bytes::new(), slots: 0 }
}

/// Arguments of a task, some of which are large.
fn arguments(number: u64, large: bool) -> Bytes {
    let length =
        if large && number.is_multiple_of(7) { 70_000 + number as usize } else { (number % 50) as usize };
    (0..length).map(|at| (at as u64 * 31 + number) as u8).collect::<Vec<_>>().into()
}

/// All tasks have their result, each once.
fn check(world: &World, tasks: u64, large: bool) {
    let mut seen = vec![false; tasks as usize];
    for (TaskId(id), found) in &world.results {
        assert!(!std::mem::replace(&mut seen[*id as usize], true), "two results of task {id}");
        assert_eq!(*found, Finished::Done(answer(&arguments(*id, large))), "task {id}");
    }
    assert_eq!(seen.iter().filter(|seen| !**seen).count(), 0);
}

/// Three sites with two nodes each.
fn anywhere(world: &mut World) -> (String, String) {
    let site = ["alpha", "beta", "gamma"][world.random.usize(..3)];
    (site.to_owned(), format!("n{}", world.random.usize(1..3)))
}

/// Runs tasks while members are killed, cut off and started. With large arguments, links end late. Returns the world at the end, and how many
/// tasks there were: `tasks` or more, until all have been killed that are to be.
fn storm(seed: u64, flat_below: usize, kills: u32, tasks: u64, large: bool) -> (World, u64) {
    let mut world = World::new(seed, settings(flat_below, u32::MAX));
    world.unreachable = if seed.is_multiple_of(2) { 0.1 } else { 0.0 };
    for _ in 0..24 {
        let (site, node) = anywhere(&mut world);
        let slots = world.random.u32(1..3);
        world.start(&site, &node, slots);
    }
    let (mut left, mut submitted, mut idle) = (kills, 0, 0);
    while left > 0 || world.results.len() < submitted as usize || submitted < tasks {
        if submitted < tasks || (left > 0 && world.results.len() + 50 > submitted as usize) {
            for id in submitted..submitted + 100 {
                world.submit(arguments(id, large));
            }
            submitted += 100;
        }
        let before = world.results.len();
        for _ in 0..world.random.usize(1..400) {
            world.step();
        }
        idle = if world.results.len() > before { 0 } else { idle + 1 };
        assert!(idle < 2000, "nothing happens any more: {:?}", world.master().counts());
        let members = world.members();
        match world.random.u8(..4) {
            0 if left > 0 && !members.is_empty() => {
                left -= 1;
                let unlucky = members[world.random.usize(..members.len())];
                let seconds = if large { 1.0 } else { 0.0 };
                world.vanish(unlucky, seconds);
            }
            1 if left > 0 => world.cut(),
            _ if members.len() < 24 => {
                let (site, node) = anywhere(&mut world);
                world.start(&site, &node, 1);
            }
            _ => {}
        }
    }
    (world, submitted)
}

#[test]
fn a_thousand_kills() {
    let (mut world, tasks) = storm(1, 0, 1000, 30_000, false);
    check(&world, tasks, false);
    let counts = world.master().counts();
    assert!(counts.lost >= 1000 && counts.again > 100, "{counts:?}");
    // Each loss costs what ran there, and little else.
    let again = world.runs - tasks;
    assert!(again < 4 * counts.lost, "{again} runs more than tasks, {counts:?}");
}

/// A member that lives goes on with what it has. Rarely its former parent tells of the loss later than it
/// comes back, and a task is run twice.
#[test]
fn cuts_between_members_cost_little() {
    let mut world = World::new(9, settings(0, 1));
    for node in ["n1", "n2", "n3"] {
        for _ in 0..6 {
            world.start("beta", node, 1);
        }
    }
    for id in 0..3000 {
        world.submit(arguments(id, false));
    }
    while world.results.len() < 3000 {
        for _ in 0..150 {
            world.step();
        }
        world.cut();
    }
    check(&world, 3000, false);
    let counts = world.master().counts();
    assert!(counts.lost == 0 && counts.dropped < 30, "{counts:?}");
}

#[test]
fn a_whole_site_goes() {
    let mut world = World::new(5, settings(0, 2));
    for site in ["beta", "gamma"] {
        for node in ["n1", "n2", "n3"] {
            for _ in 0..4 {
                world.start(site, node, 1);
            }
        }
    }
    for id in 0..2000 {
        world.submit(arguments(id, false));
    }
    while world.results.len() < 500 {
        world.step();
    }
    world.members().into_iter().take(12).for_each(|process| world.kill(process));
    world.finish(2000);
    check(&world, 2000, false);
}

#[test]
fn a_task_that_ends_its_process_is_given_up() {
    for (flat_below, members) in [(100, 6), (0, 12)] {
        let mut world = World::new(7, settings(flat_below, 2));
        for at in 0..members {
            world.start("beta", ["n1", "n2"][at % 2], 1);
        }
        world.deadly = Some(TaskId(40));
        for id in 0..200 {
            world.submit(arguments(id, false));
        }
        world.finish(200);
        let lost: Vec<_> =
            world.results.iter().filter(|(_, found)| !matches!(found, Finished::Done(_))).collect();
        let [(TaskId(40), Finished::Lost { times: 2, place })] = lost[..] else { panic!("{lost:?}") };
        assert!(place.starts_with('n'), "{place}");
        assert!(world.members().len() >= members - 3, "few processes end by it");
    }
}

#[test]
fn workers_that_come_later_take_part() {
    let mut world = World::new(3, settings(0, 2));
    for id in 0..100 {
        world.submit(arguments(id, true));
    }
    assert!(!world.step(), "nobody is there");
    for _ in 0..10 {
        world.start("beta", "n1", 1);
    }
    world.finish(100);
    check(&world, 100, true);
}

#[test]
fn the_master_alone() {
    let mut world = World::new(3, Settings { slots: 1, ..settings(30, 2) });
    for id in 0..20 {
        world.submit(arguments(id, true));
    }
    world.finish(20);
    check(&world, 20, true);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_losses(seed in any::<u64>(), flat_below in prop::sample::select(vec![0, 12, 100]), kills in 0u32..60) {
        let (world, tasks) = storm(seed, flat_below, kills, 2000, seed.is_multiple_of(3));
        check(&world, tasks, seed.is_multiple_of(3));
    }
}
