//! Prints how long matching takes on grids of 1,000 sites with 100,000 nodes, for 20 groups:
//! `cargo run --release -p isthmus-matching --example scale [SECONDS [SEEDS]]`. SECONDS is how long
//! it may take for each job, 2 if not given. Processor time is what counts on a busy machine.
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
    let limit = arguments.next().map_or(2.0, |text| text.parse().expect("seconds"));
    let seeds = arguments.next().map_or(1, |text| text.parse().expect("a number of seeds"));
    println!("{:<28} seed  processor s    wall s  outcome", "job");
    for seed in 0..seeds {
        for (name, job) in grids::KINDS {
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
            println!("{name:<28} {seed:>4} {used:>12.3} {took:>9.3}  {words}");
        }
    }
}
