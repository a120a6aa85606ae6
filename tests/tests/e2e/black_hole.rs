//! A way that swallows large packets and tells nobody, a PMTU black hole: `isthmus doctor`
//! names it in 10 s, with the remedies. Jobs use shorter packets. Where these vanish as well,
//! their users are told.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use isthmus_e2e::{Lasting, Mpi, Output, World, isthmus, promised};

use crate::life::NODES;

/// Time within which a black hole must be named.
const NAMED: Duration = Duration::from_secs(10);
/// Deadline that guards against hanging only. What was broken must be connected again by then.
const SOON: Duration = Duration::from_secs(150);

/// Pause before each call of the doctor. A call may order two measurements, and a user has 60 a
/// minute. So with this pause the calls keep to what a user has, however late they are.
const PAUSE: Duration = Duration::from_secs(2);

fn doctor(world: &World, words: &[&str]) -> Result<Output> {
    std::thread::sleep(PAUSE);
    let binary = isthmus().display().to_string();
    world.sh("n1.alpha", SOON, &[&[binary.as_str(), "doctor"], words].concat())
}

/// Waits until the doctor finds no black hole: the sites are up, and the last measurement is a new
/// one.
fn healthy(world: &World) -> Result<()> {
    for words in [&["pair", "alpha", "beta"][..], &["site", "alpha"]] {
        World::eventually("the doctor finds nothing", SOON, || {
            let output = doctor(world, words)?;
            Ok(output.status == 0 && !output.whole().contains("black hole"))
        })?;
    }
    Ok(())
}

/// Checks that the doctor names the black hole in time, with its size and the remedies. Each text
/// of `place` is a part of its place.
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

/// A job that begins over a black hole works, and so does a job that meets one on the way.
#[test]
#[ignore = "test-all"]
fn jobs_pass_one_in_each_direction() -> Result<()> {
    for direction in ["up", "down"] {
        let world = World::up("black-hole")?;
        healthy(&world)?;
        world.lab().set_link("beta", &[&format!("{direction}.black-hole=1300")])?;
        world.all_to_all(&NODES)?;
        world.lab().set_link("beta", &["black-hole=none"])?;
        healthy(&world)?;
        let job = Lasting::start(&world, Mpi::Mpich, &NODES, &[])?;
        world.lab().set_link("beta", &[&format!("{direction}.black-hole=1300")])?;
        job.goes_on()?;
        let (status, printed) = job.end()?;
        ensure!(status == 0, "{direction}: status {status}\n{printed}");
        world.lab().set_link("beta", &["black-hole=none"])?;
        world.expect_clean()?;
    }
    Ok(())
}

/// Connections between the agents open and bring some bytes, but nothing after them, however short
/// the packets are.
#[test]
#[ignore = "test-all"]
fn a_job_ends_with_the_reason_where_nothing_helps() -> Result<()> {
    /// Time within which the user is told.
    const TOLD: Duration = Duration::from_secs(5);
    /// How long the job waits. It ends within `ENDS` after that: bytes may pass for some seconds
    /// first, and the far node is waited for for 3 s at most.
    const OUTLIVE: Duration = Duration::from_secs(20);
    const ENDS: Duration = Duration::from_secs(12);
    let world = World::up_alone("black-hole")?;
    let nft = |rules: &str| {
        let done = world.sh("n1.beta", SOON, &["sh", "-c", rules])?;
        ensure!(done.status == 0, "{}", done.whole());
        Ok(())
    };
    // Bytes are counted of connections that begin from now on.
    nft("set -e; nft add table inet few; \
         nft add chain inet few in '{ type filter hook input priority 0; }'; \
         nft add chain inet few out '{ type filter hook output priority 0; }'; \
         nft add rule inet few in iif lo accept; nft add rule inet few out oif lo accept; \
         nft add rule inet few in ct state established counter; \
         sysctl -qw net.netfilter.nf_conntrack_acct=1")?;
    let job = Lasting::start(&world, Mpi::OpenMpi, &NODES, &["--outlive", "20s"])?;
    let begun = Instant::now();
    nft("set -e; for port in sport dport; do for way in in out; do \
         nft add rule inet few $way tcp $port 7730 ct bytes '>' 6000 drop; done; done")?;
    let texts = ["n1.beta doesn't arrive: connections open", "nothing is heard of n1.beta"];
    World::eventually("the user is told", SOON, || {
        Ok(texts.iter().any(|text| job.printed().contains(text)))
    })?;
    let told = begun.elapsed();
    let (status, printed) = job.ended()?;
    let ended = begun.elapsed();
    ensure!(told < promised(TOLD), "told after {told:?}\n{printed}");
    ensure!(status != 0 && ended > OUTLIVE - TOLD, "status {status} after {ended:?}\n{printed}");
    ensure!(ended < OUTLIVE + promised(ENDS), "ended after {ended:?}\n{printed}");
    // Heartbeats vanish in time as well.
    let reasons =
        ["nothing that was sent has arrived for 20 s: connections open", "nothing is heard of n1.beta"];
    ensure!(reasons.iter().any(|reason| printed.contains(reason)), "{printed}");
    nft("nft delete table inet few")?;
    world.expect_clean()
}
