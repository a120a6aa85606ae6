//! Prints how long matching takes on grids of 1,000 sites with 100,000 nodes, for 20 groups, each as
//! a line of JSON: `cargo run --release -p isthmus-matching --example scale [SECONDS [SEED [JOB]]]`.
//! SECONDS is how long it may take for each job, 5 if not given, as in `isthmus run`. Without JOB it is
//! all of them. Processor time is what counts on a busy machine.
#![allow(clippy::disallowed_methods, reason = "it measures time and reads its arguments")]
#![allow(clippy::expect_used, reason = "nobody else uses it")]

mod grids;

use std::time::{Duration, Instant};

use fastrand::Rng;
use isthmus_matching::{Refusal, place};
use nix::time::{ClockId, clock_gettime};

fn processor() -> Duration {
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).expect("a process has this clock").into()
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let limit = arguments.next().map_or(5.0, |text| text.parse().expect("seconds"));
    let seed = arguments.next().map_or(0, |text| text.parse().expect("a seed"));
    let wanted = arguments.next();
    for (name, job) in grids::KINDS {
        if wanted.as_ref().is_some_and(|wanted| wanted != name) {
            continue;
        }
        let mut random = Rng::with_seed(seed);
        let offer = grids::offer(&mut random);
        let profile = job(&mut random);
        let (used, begun) = (processor(), Instant::now());
        let outcome = place(&profile, &offer, Duration::from_secs_f64(limit));
        let (used, took) = (processor() - used, begun.elapsed());
        let words = match outcome {
            Ok(placement) => {
                let best = if placement.best { "best" } else { "not known to be best" };
                format!("{best}: {:?}", placement.score)
            }
            Err(Refusal::Impossible(why)) => {
                let smallest = if why.smallest { "smallest" } else { "minimal" };
                format!("impossible: {smallest} set of {}", why.conflicts.len())
            }
            Err(other) => other.to_string(),
        };
        let (used, took) = (used.as_secs_f64(), took.as_secs_f64());
        println!(
            "{{\"job\": {name:?}, \"seed\": {seed}, \"processor_seconds\": {used:.3}, \"seconds\": {took:.3}, \
             \"outcome\": {words:?}}}"
        );
    }
}
