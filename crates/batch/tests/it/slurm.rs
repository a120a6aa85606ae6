//! Slurm's own daemons: a controller and two nodes.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use isthmus_batch::{Batch, BatchError, End, Estimate, Request, Slurm, State};

use crate::cluster::{
    TOKEN, assert_unreachable, ends, inside, network, nobody_sees_the_token, pilot, reaches, request, runner,
    sh, state, unknown, until, word,
};

const PROGRAMS: &[&str] =
    &["unshare", "ip", "munged", "slurmctld", "slurmd", "sbatch", "srun", "scancel", "sacct"];

const CONFIGURATION: &str = "
ClusterName=alpha
SlurmctldHost=head(10.77.0.1)
SlurmUser=root
SlurmctldPort=17001
AuthType=auth/munge
AuthInfo=socket=$D/munge/s
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
StateSaveLocation=$D/state
SlurmdSpoolDir=$D/spool/%n
SlurmctldPidFile=$D/controller.pid
SlurmdPidFile=$D/%n.pid
SlurmctldLogFile=$D/controller.log
SlurmdLogFile=$D/%n.log
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=2
NodeName=n[1-2] NodeHostname=head NodeAddr=10.77.0.1 Port=[17101-17102] CPUs=4 Sockets=1 CoresPerSocket=4 \
ThreadsPerCore=1 RealMemory=2000 Feature=ib,avx2
PartitionName=main Nodes=n[1-2] Default=YES MaxTime=2:00:00 State=UP
";

/// What a cluster that keeps accounts has, too. Its controller forgets jobs at once.
const ACCOUNTS: &str = "
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=head
AccountingStoragePort=17010
AccountingStoragePass=$D/munge/s
MinJobAge=2
";

const DATABASE: &str = "
DbdHost=head
DbdPort=17010
AuthType=auth/munge
AuthInfo=socket=$D/munge/s
SlurmUser=root
StorageType=accounting_storage/mysql
StorageHost=10.77.0.1
StorageUser=root
StoragePass=none
LogFile=$D/database.log
PidFile=$D/database.pid
";

/// Starts munged, slurmctld and two slurmd, and beforehand what `more` starts.
fn start(directory: &Path, configuration: &str, more: &str) -> PathBuf {
    network(directory);
    let file = directory.join("slurm.conf");
    std::fs::write(&file, configuration.replace("$D", directory.to_str().unwrap())).unwrap();
    sh(
        directory,
        "chmod 755 $D
        mkdir -m 755 $D/munge $D/state $D/spool
        mkdir -m 700 $D/key
        (umask 077; head -c 128 /dev/urandom >$D/key/key)
        munged --force --key-file=$D/key/key --socket=$D/munge/s --pid-file=$D/munge/pid \
            --log-file=$D/munge/log --seed-file=$D/munge/seed",
    );
    sh(directory, more);
    sh(
        directory,
        "slurmctld -c -f $D/slurm.conf
        slurmd -N n1 -f $D/slurm.conf
        slurmd -N n2 -f $D/slurm.conf",
    );
    file
}

/// A script that writes what it was given, and waits for a file.
fn waiting(directory: &Path) -> String {
    let shown = directory.join("shown").display().to_string();
    let go = directory.join("go").display().to_string();
    format!(
        "cat \"$ISTHMUS_PILOT_SECRET\" >{shown}.$SLURMD_NODENAME.new
        stat -c ' %a' \"$ISTHMUS_PILOT_SECRET\" >>{shown}.$SLURMD_NODENAME.new
        mv {shown}.$SLURMD_NODENAME.new {shown}.$SLURMD_NODENAME
        until [ -e {go} ]; do sleep 0.2; done"
    )
}

#[test]
#[ignore = "test-all"]
fn pilots_on_slurm() {
    let Some(directory) = inside("slurm::pilots_on_slurm", PROGRAMS) else { return };
    let file = start(&directory, CONFIGURATION, "true");
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let slurm = Slurm::new(runner(&[("SLURM_CONF", &file)]), &directory.join("pilots")).unwrap();
    runtime.block_on(async {
        whole_cluster(&slurm).await;
        a_pilot(&slurm, &directory).await;
        ways_to_end(&slurm, &directory).await;
        controller_down(&slurm, &directory).await;
    });
}

async fn whole_cluster(slurm: &Slurm) {
    let free = async || {
        let classes = slurm.capacity().await.unwrap();
        (classes.first().map(|class| class.nodes_free) == Some(2)).then_some(classes)
    };
    let classes = until("both nodes are up", free).await;
    let [class] = &classes[..] else { panic!("{classes:?}") };
    assert_eq!((class.queue.as_deref(), class.default, class.nodes), (Some("main"), true, 2));
    assert_eq!((class.cores, class.cores_free, class.memory_bytes), (4, 8, 2000 << 20));
    assert_eq!((class.time, class.features.join(" ").as_str()), (Some(Duration::from_secs(7200)), "avx2 ib"));
    let Estimate::At(start) = slurm.estimate(&request(2, 4)).await.unwrap() else { panic!("it can start") };
    assert!(start < SystemTime::now() + Duration::from_secs(60), "{start:?}");
    for (impossible, why) in [
        (request(3, 1), "Requested node configuration is not available"),
        (Request { tags: vec![word("gpu")], ..request(1, 1) }, "Invalid feature specification"),
        (Request { queue: Some(word("nope")), ..request(1, 1) }, "invalid partition"),
    ] {
        let estimate = slurm.estimate(&impossible).await.unwrap();
        assert!(matches!(&estimate, Estimate::Never { reason } if reason.contains(why)), "{estimate:?}");
    }
}

/// One pilot on both nodes, and one that waits for it.
async fn a_pilot(slurm: &Slurm, directory: &Path) {
    let asked = Request { time: Some(Duration::from_secs(600)), tags: vec![word("ib")], ..request(2, 3) };
    let job = slurm.submit(&pilot("first", asked, &waiting(directory))).await.unwrap();
    let State::Running { nodes, end } =
        reaches(slurm, &job, |state| matches!(state, State::Running { .. })).await
    else {
        panic!("it runs")
    };
    assert_eq!(nodes, ["n1", "n2"]);
    let left = end.unwrap().duration_since(SystemTime::now()).unwrap();
    assert!((Duration::from_secs(400)..=Duration::from_secs(600)).contains(&left), "{left:?}");
    for node in nodes {
        let shown = directory.join(format!("shown.{node}"));
        let text = until("a node has run the script", async || std::fs::read_to_string(&shown).ok()).await;
        assert_eq!(text, format!("{TOKEN} 600\n"));
    }
    nobody_sees_the_token();
    let script = sh(directory, &format!("SLURM_CONF=$D/slurm.conf scontrol write batch_script {} -", job.id));
    assert!(script.contains("srun") && !script.contains(TOKEN), "{script}");

    // Its time is the scheduler's shortest: a minute.
    let short = Request { time: Some(Duration::from_secs(1)), ..request(1, 1) };
    let late = slurm.submit(&pilot("late", short, "sleep 1000")).await.unwrap();

    let next = slurm.submit(&pilot("next", request(2, 2), "true")).await.unwrap();
    let reason = |state: &State| matches!(state, State::Pending { reason, .. } if reason == "Resources");
    reaches(slurm, &next, reason).await;
    let Estimate::At(start) = slurm.estimate(&request(2, 2)).await.unwrap() else {
        panic!("it can start some day")
    };
    assert!(start > SystemTime::now() + Duration::from_secs(300), "{start:?}");
    assert_eq!(slurm.find(&word("next")).await.unwrap().as_ref(), Some(&next));
    assert_eq!(slurm.find(&word("other")).await.unwrap(), None);
    slurm.cancel(&next).await.unwrap();
    assert!(matches!(ends(slurm, &next).await, End::Cancelled { .. }));
    slurm.cancel(&next).await.unwrap();
    slurm.cancel(&unknown()).await.unwrap();
    assert_eq!(state(slurm, &unknown()).await, State::Unknown);
    // The number alone is no job.
    let renamed = isthmus_batch::Job { name: word("renamed"), ..job.clone() };
    slurm.cancel(&renamed).await.unwrap();
    assert_eq!(state(slurm, &renamed).await, State::Unknown);

    std::fs::write(directory.join("go"), "").unwrap();
    assert_eq!(ends(slurm, &job).await, End::Completed);
    assert!(!directory.join("pilots/first.secret").exists());
    assert_eq!(ends(slurm, &late).await, End::TimeLimit);
}

async fn ways_to_end(slurm: &Slurm, directory: &Path) {
    let fails = slurm.submit(&pilot("fails", request(2, 1), "echo why; exit 3")).await.unwrap();
    assert_eq!(ends(slurm, &fails).await, End::Failed { status: 3, signal: 0 });
    let log = std::fs::read_to_string(directory.join("pilots/fails.log")).unwrap();
    assert!(log.contains("why\n"), "{log}");

    for (refused, why) in [
        (Request { queue: Some(word("nope")), ..request(1, 1) }, "invalid partition"),
        (Request { reservation: Some(word("nope")), ..request(1, 1) }, "reservation is invalid"),
        (
            Request { memory_bytes: Some(1 << 40), ..request(1, 1) },
            "Memory specification can not be satisfied",
        ),
    ] {
        let error = slurm.submit(&pilot("refused", refused, "true")).await.unwrap_err();
        assert!(matches!(error, BatchError::Refused { .. }) && error.to_string().contains(why), "{error}");
        assert!(!directory.join("pilots/refused.secret").exists());
    }

    let scontrol = "SLURM_CONF=$D/slurm.conf scontrol";
    let make = "create reservation ReservationName=demo StartTime=now Duration=10 Users=root Nodes=n2";
    sh(directory, &format!("{scontrol} {make}"));
    let reserved = Request { reservation: Some(word("demo")), ..request(1, 4) };
    let inside =
        slurm.submit(&pilot("reserved", reserved, "hostname; test \"$SLURMD_NODENAME\" = n2")).await.unwrap();
    assert_eq!(ends(slurm, &inside).await, End::Completed);
    sh(directory, &format!("{scontrol} delete ReservationName=demo"));

    let lost = slurm.submit(&pilot("lost", request(2, 1), "sleep 1000")).await.unwrap();
    reaches(slurm, &lost, |state| matches!(state, State::Running { .. })).await;
    sh(
        directory,
        "kill -KILL $(cat $D/n2.pid); SLURM_CONF=$D/slurm.conf scontrol update nodename=n2 state=down reason=test",
    );
    assert_eq!(ends(slurm, &lost).await, End::NodeFailure);
    let classes = slurm.capacity().await.unwrap();
    assert_eq!(classes.iter().map(|class| class.nodes).sum::<u32>(), 1, "{classes:?}");
    let estimate = slurm.estimate(&request(2, 1)).await.unwrap();
    let named = "out of service: n2 (down";
    assert!(matches!(&estimate, Estimate::Never { reason } if reason.contains(named)), "{estimate:?}");
}

async fn controller_down(slurm: &Slurm, directory: &Path) {
    let runs = slurm.submit(&pilot("runs", request(1, 1), "sleep 1000")).await.unwrap();
    reaches(slurm, &runs, |state| matches!(state, State::Running { .. })).await;
    sh(directory, "kill $(cat $D/controller.pid); while [ -e $D/controller.pid ]; do sleep 0.1; done");
    let new = pilot("new", request(1, 1), "true");
    let (jobs, asked) = ([runs.clone()], request(1, 1));
    let (submitted, states, estimate, cancelled, capacity, found) = tokio::join!(
        slurm.submit(&new),
        slurm.states(&jobs),
        slurm.estimate(&asked),
        slurm.cancel(&runs),
        slurm.capacity(),
        slurm.find(&runs.name)
    );
    assert_unreachable(submitted);
    assert_unreachable(states);
    assert_unreachable(estimate);
    assert_unreachable(cancelled);
    assert_unreachable(capacity);
    assert_unreachable(found);
    sh(directory, "slurmctld -f $D/slurm.conf");
    let answers = async || slurm.states(&jobs).await.ok();
    let states = until("the controller answers again", answers).await;
    assert!(matches!(&states[..], [State::Running { nodes, .. }] if nodes == &["n1"]), "{states:?}");
    slurm.cancel(&runs).await.unwrap();
    assert!(matches!(ends(slurm, &runs).await, End::Cancelled { .. }));
}

/// Starts a database, and the daemon that keeps accounts in it.
const START_ACCOUNTS: &str = "
mkdir $D/db
mariadb-install-db --no-defaults --datadir=$D/db --user=root --auth-root-authentication-method=normal >&2
mariadbd --no-defaults --datadir=$D/db --user=root --socket=$D/db/socket --bind-address=10.77.0.1 --skip-grant-tables \
    --innodb-buffer-pool-size=32M >/dev/null 2>&1 &
tries=0; until [ -S $D/db/socket ]; do tries=$((tries + 1)); [ $tries -lt 600 ]; sleep 0.2; done
export SLURM_CONF=$D/slurm.conf
slurmdbd
tries=0; until sacctmgr -i add cluster alpha >&2; do tries=$((tries + 1)); [ $tries -lt 100 ]; sleep 0.5; done
";

#[test]
#[ignore = "test-all"]
fn accounts_know_what_the_controller_forgot() {
    let programs =
        [PROGRAMS, &["slurmdbd", "sacctmgr", "mariadbd", "mariadb-install-db", "my_print_defaults"]].concat();
    let Some(directory) = inside("slurm::accounts_know_what_the_controller_forgot", &programs) else {
        return;
    };
    let database = directory.join("slurmdbd.conf");
    std::fs::write(&database, DATABASE.replace("$D", directory.to_str().unwrap())).unwrap();
    std::fs::set_permissions(&database, std::fs::Permissions::from_mode(0o600)).unwrap();
    let file = start(&directory, &format!("{CONFIGURATION}{ACCOUNTS}"), START_ACCOUNTS);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let slurm = Slurm::new(runner(&[("SLURM_CONF", &file)]), &directory.join("pilots")).unwrap();
    runtime.block_on(async {
        until("both nodes are up", async || {
            let classes = slurm.capacity().await.unwrap();
            (classes.first().map(|class| class.nodes_free) == Some(2)).then_some(())
        })
        .await;
        let fails = slurm.submit(&pilot("fails", request(1, 1), "exit 3")).await.unwrap();
        let cancelled = slurm.submit(&pilot("cancelled", request(1, 1), "sleep 1000")).await.unwrap();
        reaches(&slurm, &cancelled, |state| matches!(state, State::Running { .. })).await;
        slurm.cancel(&cancelled).await.unwrap();
        let jobs = [fails, cancelled, unknown()];
        let listed = || sh(&directory, "SLURM_CONF=$D/slurm.conf squeue --noheader --states=all");
        until("the controller has forgotten both", async || listed().is_empty().then_some(())).await;
        let want = [
            State::Ended(End::Failed { status: 3, signal: 0 }),
            State::Ended(End::Cancelled { by: Some("root".to_owned()) }),
            State::Unknown,
        ];
        assert_eq!(slurm.states(&jobs).await.unwrap(), want);
        sh(&directory, "kill $(cat $D/database.pid); while [ -e $D/database.pid ]; do sleep 0.1; done");
        assert_unreachable(slurm.states(&jobs).await);
    });
}
