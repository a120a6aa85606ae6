//! Tables of what Slurm 22.05.8 wrote, and what that means.

use std::num::NonZeroU32;
use std::time::{Duration, SystemTime};

use proptest::prelude::*;

use super::arguments;
use super::parse::{self, Phase, Trouble};
use crate::pilot::Request;
use crate::state::End;

fn at(text: &str) -> Option<SystemTime> {
    Some(humantime::parse_rfc3339_weak(text).unwrap())
}

#[test]
fn a_job_without_a_limit_has_no_end() {
    let jobs = parse::queue("6|RUNNING|2026-11-29T04:38:44|NONE|n2|p6|None\n").unwrap();
    assert_eq!((jobs[0].phase.clone(), jobs[0].end), (Phase::Running, None));
}

#[test]
fn squeue_lists_jobs_in_every_state() {
    let out = "\
3|PENDING|N/A|N/A||p3|Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority partitions
4|PENDING|2026-11-28T20:58:21|2026-11-28T20:59:21||p4|Priority
1|RUNNING|2026-11-28T20:56:11|2026-11-28T20:57:11|n[1-2]|p1|None
2|COMPLETING|2026-11-28T20:56:17|2026-11-28T20:57:17|n2|p2|None
7|CANCELLED|2026-11-28T20:56:13|2026-11-28T20:56:13||p7|Priority
5|FAILED|2026-11-28T20:56:20|2026-11-28T20:56:20|n1|p5|NonZeroExitCode
8|CONFIGURING|2026-11-28T20:56:20|2026-11-28T20:57:20|n1|p8|None
9|EXPEDITING|N/A|N/A||p9|None
";
    let jobs = parse::queue(out).unwrap();
    let phases: Vec<_> = jobs.iter().map(|job| job.phase.clone()).collect();
    let failed = Phase::Ended(End::Failed { status: 0, signal: 0 });
    let cancelled = Phase::Ended(End::Cancelled { by: None });
    assert_eq!(
        phases,
        [
            Phase::Pending,
            Phase::Pending,
            Phase::Running,
            Phase::Ending,
            cancelled,
            failed,
            Phase::Pending,
            Phase::Other
        ]
    );
    assert!(jobs[0].reason.starts_with("Nodes required for job are DOWN, DRAINED or"));
    assert_eq!((jobs[0].start, jobs[1].start), (None, at("2026-11-28T20:58:21")));
    assert_eq!((jobs[2].nodes.join(" "), jobs[2].end), ("n1 n2".to_owned(), at("2026-11-28T20:57:11")));
    assert_eq!((jobs[2].reason.as_str(), jobs[2].name.as_str(), jobs[2].id.as_str()), ("", "p1", "1"));
    assert_eq!(parse::queue("").unwrap(), []);
    for line in ["1|RUNNING", "1|RUNNING|soon|N/A||p|None", "1|RUNNING|N/A|N/A|n[|p|None", "CLUSTER: alpha"] {
        assert!(parse::queue(line).is_err(), "{line}");
    }
}

#[test]
fn scontrol_says_how_a_job_ended() {
    // A job's own texts come after what is read of it.
    let out = "JobId=5 JobName=p5 UserId=root(0) GroupId=root(0) MCS_label=N/A Priority=4294901755 Nice=0 Account=(null) \
QOS=(null) JobState=FAILED Reason=NonZeroExitCode Dependency=(null) Requeue=1 Restarts=0 BatchFlag=1 Reboot=0 ExitCode=3:0 \
RunTime=00:00:00 TimeLimit=00:01:00 NodeList=n1 BatchHost=n1 Command=(null) WorkDir=/home/ada/x JobState=COMPLETED ExitCode=0:0";
    let job = parse::described(out).unwrap();
    assert_eq!((job.id.as_str(), job.name.as_str()), ("5", "p5"));
    assert_eq!(job.phase, Phase::Ended(End::Failed { status: 3, signal: 0 }));
    let ended = |state: &str, exit: &str| {
        parse::described(&format!("JobId=5 JobName=p5 JobState={state} ExitCode={exit}")).map(|job| job.phase)
    };
    for (state, exit, want) in [
        ("COMPLETED", "0:0", End::Completed),
        ("FAILED", "0:9", End::Failed { status: 0, signal: 9 }),
        ("TIMEOUT", "0:15", End::TimeLimit),
        ("NODE_FAIL", "1:0", End::NodeFailure),
        ("BOOT_FAIL", "0:0", End::NodeFailure),
        ("PREEMPTED", "0:15", End::Preempted),
        ("OUT_OF_MEMORY", "0:125", End::OutOfMemory),
        ("DEADLINE", "0:0", End::Other { said: "its deadline was reached".to_owned() }),
    ] {
        assert_eq!(ended(state, exit), Ok(Phase::Ended(want)), "{state}");
    }
    assert!(
        ended("FAILED", "3").is_err() && ended("FAILED", "300:0").is_err() && parse::described("").is_err()
    );
}

#[test]
fn sacct_says_who_cancelled_a_job() {
    let out = "1|COMPLETED|0:0|p1\n2|CANCELLED by 1000|0:0|p2\n3|RUNNING|0:0|a|b\n4|CANCELLED|0:0|p4\n5|FAILED|0:9|p5\n";
    let accounts = parse::accounts(out).unwrap();
    let by = |user: Option<&str>| Phase::Ended(End::Cancelled { by: user.map(str::to_owned) });
    let phases: Vec<_> = accounts.iter().map(|account| account.phase.clone()).collect();
    assert_eq!(
        phases,
        [
            Phase::Ended(End::Completed),
            by(Some("1000")),
            Phase::Running,
            by(None),
            Phase::Ended(End::Failed { status: 0, signal: 9 }),
        ]
    );
    assert_eq!(accounts[2].name, "a|b");
    assert!(parse::accounts("1|COMPLETED\n").is_err());
}

#[test]
fn sbatch_gives_a_number() {
    for (out, want) in [
        ("14\n", Some("14")),
        ("14;alpha\n", Some("14")),
        ("sbatch of this site: charged to a1\n\n 15 \n\n", Some("15")),
        ("", None),
        ("Submitted batch job 14\n", None),
        ("123456789012345678901", None),
    ] {
        assert_eq!(parse::job_id(out).ok().as_deref(), want, "{out}");
    }
}

#[test]
fn sbatch_estimates_a_start() {
    let said = "sbatch: Job 7 to start at 2026-11-28T20:58:12 using 2 processors on nodes n[1-2] in partition main\n";
    assert_eq!(parse::estimate(said), at("2026-11-28T20:58:12"));
    for said in [
        "allocation failure: Requested node configuration is not available\n",
        "allocation failure: Invalid feature specification\n",
        "sbatch: Job 7 to start at Unknown using",
        "Job 7 to start at ",
        "",
    ] {
        assert_eq!(parse::estimate(said), None, "{said}");
    }
}

#[test]
fn failures_are_told_apart() {
    for (said, want) in [
        (
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)\n",
            Trouble::Unreachable,
        ),
        (
            "scancel: error: Kill job error on job id 1: Unable to contact slurm controller (connect failure)",
            Trouble::Unreachable,
        ),
        (
            "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
            Trouble::Unreachable,
        ),
        ("sinfo: error: Unable to establish control machine address", Trouble::Unreachable),
        ("slurm_load_jobs error: Invalid job id specified\n", Trouble::UnknownJob),
        ("scancel: error: Kill job error on job id 99: Invalid job id specified", Trouble::UnknownJob),
        ("Slurm accounting storage is disabled\n", Trouble::NoAccounts),
        ("sbatch: error: Batch job submission failed: Requested reservation is invalid", Trouble::Other),
        ("", Trouble::Other),
    ] {
        assert_eq!(parse::trouble(said), want, "{said}");
    }
}

#[test]
fn sinfo_gives_classes_of_nodes() {
    let out = "\
main*|up|2:00:00|idle|1|1|4|4|2000|0/4/0/4|ib,avx2
main*|up|2:00:00|mixed|1|1|4|4|2000|1/3/0/4|ib,avx2
main*|up|2:00:00|down|1|1|4|4|2000|0/0/4/4|ib,avx2
main*|up|2:00:00|idle*|1|1|4|4|2000|0/4/0/4|ib,avx2
long|up|infinite|idle~|2K|2|32|128|257000+|0/256K/0/256K|(null)
old|down|1-00:30:00|idle|1|1|4|4|2000|0/4/0/4|(null)
";
    let classes = parse::capacity(out).unwrap();
    assert_eq!(classes.len(), 2);
    let main = &classes[0];
    assert_eq!(
        (main.queue.as_deref(), main.default, main.nodes, main.nodes_free),
        (Some("main"), true, 2, 1)
    );
    assert_eq!((main.cores, main.cores_free, main.memory_bytes), (4, 7, 2000 << 20));
    assert_eq!((main.time, main.features.join(" ")), (Some(Duration::from_secs(7200)), "avx2 ib".to_owned()));
    let long = &classes[1];
    assert_eq!((long.default, long.nodes, long.nodes_free, long.time), (false, 2048, 2048, None));
    // Two hardware threads a core.
    assert_eq!((long.cores, long.cores_free, long.features.len()), (64, 128 << 10, 0));
    for line in
        ["main|up", "main|up|x|idle|1|1|4|4|2000|0/4/0/4|a", "main|up|1:0:0|idle|-1|1|4|4|2000|0/4/0/4|a"]
    {
        assert!(parse::capacity(line).is_err(), "{line}");
    }
}

#[test]
fn nodes_out_of_service_are_named() {
    for (out, want) in [
        ("", ""),
        ("sinfo: no such thing\n", ""),
        ("n3|drained|test\n", "n3 (drained: test)"),
        (
            "n[1-2]|down*|Not responding\nn3|draining|a|b\n",
            "n[1-2] (down*: Not responding), n3 (draining: a|b)",
        ),
        ("a|down|x\nb|down|y\nc|down|z\nd|down|w\n", "a (down: x), b (down: y), c (down: z), d (down: w)"),
        (
            "a|down|x\nb|down|y\nc|down|z\nd|down|w\ne|down|v\n",
            "a (down: x), b (down: y), c (down: z), d (down: w), and others",
        ),
    ] {
        assert_eq!(parse::out_of_service(out), want, "{out}");
    }
}

#[test]
fn a_request_becomes_options() {
    let mut request = Request::of(NonZeroU32::new(2).unwrap());
    assert_eq!(arguments::requested(&request).join(" "), "--nodes=2 --ntasks-per-node=1");
    request.cores = NonZeroU32::new(4);
    request.memory_bytes = Some((100 << 20) + 1);
    request.time = Some(Duration::from_secs(61));
    request.tags = vec!["gpu".parse().unwrap(), "ib".parse().unwrap()];
    request.queue = Some("long".parse().unwrap());
    request.reservation = Some("demo".parse().unwrap());
    request.account = Some("a1".parse().unwrap());
    assert_eq!(
        arguments::requested(&request).join(" "),
        "--nodes=2 --ntasks-per-node=1 --cpus-per-task=4 --hint=nomultithread --mem=101M --time=2 --constraint=gpu&ib \
         --partition=long --reservation=demo --account=a1"
    );
    (request.time, request.memory_bytes) = (Some(Duration::ZERO), Some(0));
    let options = arguments::requested(&request).join(" ");
    assert!(options.contains("--time=1 ") && options.contains("--mem=1M "), "{options}");
}

proptest! {
    #[test]
    fn no_output_makes_the_parsers_panic(text in "\\PC*|[-0-9A-Z|:,/\\[\\]KM+*~ \n=]*") {
        let _ = (parse::queue(&text), parse::described(&text), parse::accounts(&text), parse::capacity(&text));
        let _ = (parse::job_id(&text), parse::estimate(&text), parse::trouble(&text));
        let _ = parse::out_of_service(&text);
    }

    /// Fields of the right number get further.
    #[test]
    fn no_field_makes_the_parsers_panic(fields in prop::collection::vec("[-0-9TKMA:,/\\[\\]+*~ ]{0,24}", 11)) {
        let _ = parse::capacity(&fields.join("|"));
        let _ = parse::queue(&fields[..7].join("|"));
        let _ = parse::accounts(&fields[..4].join("|"));
        let _ = parse::estimate(&format!("Job 1 to start at {}", fields[0]));
    }
}
