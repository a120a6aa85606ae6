use isthmus_e2e::Mpi;

use super::*;

const PROMISES: Promises = Promises {
    resumes: Duration::from_secs(3),
    ends: Duration::from_secs(10),
    hangs: Duration::from_secs(90),
};
const RIGHT: &str = "visit: 4 ranks\n No Errors\n";

fn spec(outlive: u64) -> Spec {
    let nodes = vec!["n1.alpha", "n1.beta", "n2.beta", "n1.gamma"];
    Spec { mpi: Mpi::OpenMpi, nodes, ranks: 4, outlive: Duration::from_secs(outlive) }
}

/// A job that began at 100 s, made progress at these times, and was asked to end at 200 s unless it
/// had ended.
fn long(outlive: u64, progress: &[f64], end: Option<(f64, i32)>, printed: &str) -> Seen {
    let (progress, printed) = (progress.to_vec(), printed.to_owned());
    let asked = end.is_none_or(|(at, _)| at > 200.0).then_some(200.0);
    Seen { spec: spec(outlive), began: 100.0, end, asked, printed, progress }
}

fn grid(what: What, began: f64, ended: f64) -> Happened {
    Happened { hit: Hit::Grid(what), began, ended }
}

fn process(process: Process, signal: &'static str, at: f64) -> Happened {
    Happened { hit: Hit::Process(process, signal), began: at, ended: at }
}

fn agent(node: &'static str, began: f64, ended: f64) -> Happened {
    grid(What::Killed(vec![(node, "agent")]), began, ended)
}

/// Checks that `want` is part of the only thing that is wrong. If it is empty, nothing must be
/// wrong.
fn expect(wrong: &[String], want: &str, about: &dyn std::fmt::Debug) {
    match want {
        "" => assert!(wrong.is_empty(), "{about:?}: {wrong:?}"),
        want => assert!(wrong.len() == 1 && wrong[0].contains(want), "{about:?}: {wrong:?}, not {want:?}"),
    }
}

#[test]
fn a_job_that_must_live_goes_on_and_ends_in_order() {
    let end = Some((201.0, 0));
    let cut = |began, ended| grid(What::Cut("beta"), began, ended);
    for (seen, hits, want) in [
        (long(900, &[101.0, 112.5], end, RIGHT), vec![cut(105.0, 110.0)], ""),
        (long(900, &[101.0, 113.5], end, RIGHT), vec![cut(105.0, 110.0)], "it went on 3.5 s after"),
        (long(900, &[101.0], end, RIGHT), vec![cut(105.0, 110.0)], "it went on inf s after"),
        // A NAT is missed by silence alone.
        (long(900, &[101.0, 127.0], end, RIGHT), vec![grid(What::Forgets("beta"), 110.0, 110.0)], ""),
        (
            long(900, &[101.0, 129.0], end, RIGHT),
            vec![grid(What::Forgets("beta"), 110.0, 110.0)],
            "it went on 19.0 s after",
        ),
        // While one site is cut off, the end of the other cut tells nothing. After both cuts, the
        // job must go on.
        (
            long(900, &[101.0, 122.0], end, RIGHT),
            vec![cut(105.0, 110.0), grid(What::Cut("gamma"), 108.0, 120.0)],
            "",
        ),
        (
            long(900, &[101.0, 112.0, 124.0], end, RIGHT),
            vec![cut(105.0, 110.0), grid(What::Cut("gamma"), 108.0, 120.0)],
            "it went on 4.0 s after",
        ),
        // Each of two that have nothing to do with each other.
        (
            long(900, &[101.0, 115.0, 131.0], end, RIGHT),
            vec![cut(105.0, 110.0), cut(125.0, 130.0)],
            "it went on 5.0 s after",
        ),
        (long(900, &[111.0], Some((201.0, 1)), RIGHT), vec![cut(105.0, 110.0)], "did with status 1"),
        (long(900, &[111.0], end, "nothing"), vec![cut(105.0, 110.0)], "did with status 0"),
        (long(900, &[111.0], Some((150.0, 1)), ""), vec![cut(105.0, 110.0)], "nothing that ends a job"),
        (long(900, &[111.0], None, ""), vec![cut(105.0, 110.0)], "it hangs"),
        // An agent that has no part in it.
        (long(900, &[101.0, 111.0], end, RIGHT), vec![agent("n2.alpha", 105.0, 106.0)], ""),
    ] {
        expect(&of_long(&seen, &hits, PROMISES), want, &(&seen, &hits));
    }
}

#[test]
fn a_job_that_must_end_does_so_in_time_by_its_name() {
    let ended = |outlive, at, status, cause: &str| {
        long(outlive, &[101.0], Some((at, status)), &format!("  cause: {cause}\n"))
    };
    let beta = "lost node n1.beta: its agent has ended";
    let silent = "lost nodes n1.beta, n2.beta of site beta: no sign of life for 8 s";
    let cut = || grid(What::Cut("beta"), 110.0, 130.0);
    let told = || process(Process::Run, "TERM", 110.0);
    for (seen, hits, want) in [
        (ended(900, 115.0, 125, beta), vec![agent("n1.beta", 110.0, 111.0)], ""),
        (ended(900, 121.0, 125, beta), vec![agent("n1.beta", 110.0, 111.0)], "1.0 s too late"),
        (ended(900, 109.0, 125, beta), vec![agent("n1.beta", 110.0, 111.0)], "before"),
        (ended(900, 115.0, 0, beta), vec![agent("n1.beta", 110.0, 111.0)], "with status 0"),
        (ended(900, 115.0, 124, beta), vec![agent("n1.beta", 110.0, 111.0)], "with status 124"),
        (ended(900, 115.0, 125, "lost node n2.beta: gone"), vec![agent("n1.beta", 110.0, 111.0)], "it names"),
        (long(900, &[101.0], Some((115.0, 1)), ""), vec![agent("n1.beta", 110.0, 111.0)], "no cause"),
        (long(900, &[101.0], None, ""), vec![agent("n1.beta", 110.0, 111.0)], "it hangs"),
        (long(900, &[101.0], Some((201.0, 0)), RIGHT), vec![told()], "too late"),
        (ended(900, 111.0, 143, "SIGTERM to `isthmus run`"), vec![told()], ""),
        (ended(900, 111.0, 1, "SIGTERM to `isthmus run`"), vec![told()], "with status 1"),
        (ended(8, 120.0, 125, silent), vec![cut()], ""),
        (ended(8, 117.0, 125, silent), vec![cut()], "before"),
        (ended(8, 129.0, 125, silent), vec![cut()], "too late"),
        (ended(8, 120.0, 125, "site alpha is cut off from n1.beta"), vec![cut()], "it names"),
        // Until what else is broken is mended, an end may not be known everywhere.
        (
            ended(900, 139.0, 125, beta),
            vec![agent("n1.beta", 110.0, 111.0), grid(What::Cut("gamma"), 109.0, 130.0)],
            "",
        ),
    ] {
        let wrong = of_long(&seen, &hits, PROMISES);
        // A job that goes on is wrong in more than one way.
        match want {
            "too late" if seen.asked.is_some() => assert!(wrong.len() > 1, "{wrong:?}"),
            want => expect(&wrong, want, &(&seen, &hits)),
        }
    }
}

#[test]
fn a_job_that_begins_in_a_fault_starts_or_names_it() {
    let short = |end, printed: &str| Seen { asked: None, ..long(900, &[], end, printed) };
    let away = |began, ended| grid(What::Cut("beta"), began, ended);
    let not_started = "isthmus: not started: n1.beta cannot take part";
    for (seen, hits, want) in [
        (short(Some((130.0, 0)), RIGHT), vec![away(99.0, 109.0)], ""),
        (short(Some((130.0, 125)), not_started), vec![away(99.0, 109.0)], "met nothing"),
        (short(Some((130.0, 125)), not_started), vec![away(99.0, 125.0)], ""),
        (short(Some((130.0, 125)), "isthmus: no room"), vec![away(99.0, 125.0)], "names none of"),
        (short(Some((130.0, 124)), not_started), vec![away(99.0, 125.0)], "with status 124"),
        (short(Some((130.0, 0)), "4 ranks"), vec![away(99.0, 109.0)], "met nothing"),
        // An agent that was killed before is back; one that is killed now ends it.
        (short(Some((130.0, 125)), not_started), vec![agent("n1.beta", 99.0, 101.0)], "met nothing"),
        (short(Some((130.0, 125)), not_started), vec![agent("n1.beta", 101.0, 102.0)], ""),
        (short(Some((130.0, 125)), not_started), vec![agent("n2.alpha", 101.0, 102.0)], "met nothing"),
        // What is done to another job's processes is no excuse.
        (short(Some((130.0, 1)), ""), vec![process(Process::Launcher, "KILL", 105.0)], "met nothing"),
        (short(Some((199.0, 0)), RIGHT), vec![away(99.0, 109.0)], ""),
        (short(Some((200.0, 0)), RIGHT), vec![away(99.0, 109.0)], "too long to its end"),
        (short(None, ""), vec![away(99.0, 109.0)], "it hangs"),
    ] {
        expect(&of_short(&seen, &hits, PROMISES), want, &(&seen, &hits));
    }
}
