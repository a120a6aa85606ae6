//! A way that swallows large packets and tells nobody, a PMTU black hole: `isthmus doctor`
//! names it in 10 s, with the remedies.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Output, World, isthmus, promised};

/// Within which it is named.
const NAMED: Duration = Duration::from_secs(10);
/// Guards against hanging only: what was broken must be connected again.
const SOON: Duration = Duration::from_secs(150);

/// Between two calls of the doctor: each may order two measurements, and a user has 60 a minute.
/// So pauses of this length keep to what a user has, however late they are.
const PAUSE: Duration = Duration::from_secs(2);

fn doctor(world: &World, words: &[&str]) -> Result<Output> {
    std::thread::sleep(PAUSE);
    let binary = isthmus().display().to_string();
    world.sh("n1.alpha", SOON, &[&[binary.as_str(), "doctor"], words].concat())
}

/// Nothing is said of packets, once the sites are up and the last measurement is a new one.
fn healthy(world: &World) -> Result<()> {
    for words in [&["pair", "alpha", "beta"][..], &["site", "alpha"]] {
        World::eventually("the doctor finds nothing", SOON, || {
            let output = doctor(world, words)?;
            Ok(output.status == 0 && !output.whole().contains("black hole"))
        })?;
    }
    Ok(())
}

/// It is named in time, with the size and the remedies; a part of its place is `place`.
fn named(world: &World, words: &[&str], place: &[&str]) -> Result<()> {
    let mut output = doctor(world, words)?;
    // For some seconds the broker answers with the last measurement.
    World::eventually("the measurement is a new one", SOON, || {
        if output.status == 0 {
            output = doctor(world, words)?;
        }
        Ok(output.status != 0)
    })?;
    ensure!(output.status == 1, "{words:?}: {}", output.whole());
    ensure!(output.took < promised(NAMED), "{words:?}: {:?}", output.took);
    let whole = output.whole();
    for part in
        ["packets above about 1280 bytes vanish", "PMTU black hole", "fragmentation needed", "mtu 1280"]
    {
        ensure!(whole.contains(part), "{words:?}: {part:?} in\n{whole}");
    }
    ensure!(place.iter().all(|name| whole.contains(name)), "{words:?}: {place:?} in\n{whole}");
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn one_before_the_own_gateway_is_named() -> Result<()> {
    let world = World::up_alone("black-hole")?;
    healthy(&world)?;
    world.lab().set_link("alpha", &["black-hole=1300"])?;
    // While what was connected before still works, and after it has broken.
    named(&world, &["pair", "alpha", "beta"], &["gateway.alpha", "broker"])?;
    named(&world, &["site", "alpha"], &["gateway.alpha", "broker"])?;
    world.lab().set_link("alpha", &["black-hole=none"])?;
    healthy(&world)
}

#[test]
#[ignore = "test-all"]
fn one_before_the_other_site_is_named_in_each_direction() -> Result<()> {
    let world = World::up_alone("black-hole")?;
    healthy(&world)?;
    for direction in ["up", "down"] {
        world.lab().set_link("beta", &[&format!("{direction}.black-hole=1300")])?;
        named(&world, &["pair", "alpha", "beta"], &["between n1.alpha and n1.beta"])?;
        world.lab().set_link("beta", &["black-hole=none"])?;
        healthy(&world)?;
    }
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn a_gateway_that_cannot_attach_for_it_says_so_in_its_log() -> Result<()> {
    let world = World::up("black-hole")?;
    healthy(&world)?;
    // What was connected before breaks, and can't be connected again.
    world.cut_site("alpha")?;
    let in_logs = |text: &str| Ok(world.logs()?.contains(text));
    World::eventually("the gateway notices", SOON, || in_logs("not attached to the broker"))?;
    world.lab().set_link("alpha", &["black-hole=600"])?;
    world.heal_site("alpha")?;
    World::eventually("the gateway says why", SOON, || in_logs("packets above about 540 bytes vanish"))?;
    world.lab().set_link("alpha", &["black-hole=none"])?;
    healthy(&world)
}
