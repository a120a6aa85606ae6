//! Grid Engine's own daemons: a master and two execution hosts.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use isthmus_batch::{Batch, BatchError, End, Estimate, GridEngine, Request, State};

use crate::cluster::{
    TOKEN, assert_unreachable, ends, inside, network, nobody_sees_the_token, pilot, reaches, request, runner,
    sh, state, unknown, until, word,
};

const PROGRAMS: &[&str] = &["unshare", "ip", "sge_qmaster", "sge_execd", "qsub", "qconf", "qacct", "qrsh"];

/// Makes a cell, with Debian's paths, and starts its master and an execution host.
const MASTER: &str = r#"
chmod 755 $D
root=$D/root; parts=/usr/lib/gridengine; given=/usr/share/gridengine
mkdir -p $root/default/common $D/spool/qmaster/job_scripts $D/spool/execd
for part in bin lib utilbin util; do ln -s /var/lib/gridengine/$part $root/$part; done
cat >$root/default/common/bootstrap <<EOF
admin_user              none
default_domain          none
ignore_fqdn             true
spooling_method         classic
spooling_lib            libspoolc
spooling_params         $root/default/common;$D/spool/qmaster
binary_path             /usr/sbin
qmaster_spool_dir       $D/spool/qmaster
security_mode           none
listener_threads        2
worker_threads          2
scheduler_threads       1
EOF
echo head >$root/default/common/act_qmaster
cat >$D/cell <<EOF
export SGE_ROOT=$root SGE_CELL=default SGE_QMASTER_PORT=6444 SGE_EXECD_PORT=6445
EOF
. $D/cell
$parts/spoolinit classic libspoolc "$root/default/common;$D/spool/qmaster" init
sed "s|^execd_spool_dir.*|execd_spool_dir $D/spool/execd|; s|^min_uid.*|min_uid 0|; s|^min_gid.*|min_gid 0|
    s|^reporting_params.*|reporting_params accounting=true reporting=false flush_time=00:00:01 joblog=false|
    s|^load_report_time.*|load_report_time 00:00:03|" $given/default-configuration >$D/configuration
$parts/spooldefaults configuration $D/configuration
$parts/spooldefaults complexes $given/util/resources/centry
$parts/spooldefaults usersets $given/util/resources/usersets
$parts/spooldefaults managers root
sge_qmaster
tries=0; until qconf -sh >/dev/null 2>&1; do tries=$((tries + 1)); [ $tries -lt 300 ]; sleep 0.2; done
qconf -as head
qconf -ah n2
sge_execd
"#;

/// Starts an execution host in a network of its own: a host has one name and one daemon.
const SECOND_HOST: &str = r#"
. $D/cell
unshare --net --uts sh -ec 'hostname n2; ip link set lo up
    until ip addr add 10.77.0.2/24 dev eth1 2>/dev/null; do sleep 0.1; done
    ip link set eth1 up; sge_execd; exec sleep infinity' >/dev/null 2>&1 &
until [ "$(readlink /proc/$!/ns/net)" != "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
ip link set eth1 netns $!
tries=0; until [ "$(qhost | grep -c lx-)" = 2 ]; do tries=$((tries + 1)); [ $tries -lt 300 ]; sleep 0.2; done
"#;

/// A queue of both hosts with two parallel environments, and a scheduler that doesn't wait.
const QUEUE: &str = r#"
. $D/cell
cat >$D/smp <<EOF
pe_name smp
slots 999
user_lists NONE
xuser_lists NONE
start_proc_args NONE
stop_proc_args NONE
allocation_rule \$pe_slots
control_slaves FALSE
job_is_first_task FALSE
urgency_slots min
accounting_summary TRUE
qsort_args NONE
EOF
sed 's/smp/two/; s/\$pe_slots/2/; s/control_slaves FALSE/control_slaves TRUE/' $D/smp >$D/two
qconf -Ap $D/smp
qconf -Ap $D/two
qconf -sc >$D/complexes
echo 'gpu gpu BOOL == YES NO 0 0' >>$D/complexes
qconf -Mc $D/complexes
qconf -rattr exechost complex_values gpu=TRUE n2
qconf -sq | sed 's|^qname.*|qname main.q|; s|^hostlist.*|hostlist head n2|; s|^slots.*|slots 4|
    s|^pe_list.*|pe_list smp two|; s|^load_thresholds.*|load_thresholds NONE|' >$D/queue
qconf -Aq $D/queue
qconf -ssconf | sed 's|^schedule_interval.*|schedule_interval 0:0:2|; s|^schedd_job_info.*|schedd_job_info true|
    s|^flush_submit_sec.*|flush_submit_sec 1|; s|^flush_finish_sec.*|flush_finish_sec 1|' >$D/schedule
qconf -Msconf $D/schedule
"#;

fn start(directory: &Path) -> PathBuf {
    network(directory);
    sh(directory, MASTER);
    sh(directory, SECOND_HOST);
    sh(directory, QUEUE);
    directory.join("root")
}

#[test]
#[ignore = "test-all"]
fn pilots_on_grid_engine() {
    let Some(directory) = inside("grid_engine::pilots_on_grid_engine", PROGRAMS) else { return };
    let root = start(&directory);
    let ports = [("SGE_QMASTER_PORT", Path::new("6444")), ("SGE_EXECD_PORT", Path::new("6445"))];
    let runner = runner(&[("SGE_ROOT", &root), ports[0], ports[1]]);
    let cluster = GridEngine::new(runner, &directory.join("pilots")).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        whole_cluster(&cluster).await;
        a_pilot(&cluster, &directory).await;
        ways_to_end(&cluster, &directory).await;
        master_down(&cluster, &directory).await;
    });
}

async fn whole_cluster(cluster: &GridEngine) {
    let classes = cluster.capacity().await.unwrap();
    let shown =
        classes.iter().map(|class| (class.nodes, class.nodes_free, class.cores, class.features.join(" ")));
    assert_eq!(shown.collect::<Vec<_>>(), [(1, 1, 4, String::new()), (1, 1, 4, "gpu".to_owned())]);
    assert!(
        classes[0].memory_bytes > 64 << 20 && classes[0].queue.as_deref() == Some("main.q"),
        "{classes:?}"
    );
    let tagged = |tag| Request { tags: vec![word(tag)], ..request(1, 1) };
    for possible in [request(1, 1), request(1, 4), request(2, 2), tagged("gpu")] {
        assert!(matches!(cluster.estimate(&possible).await.unwrap(), Estimate::At(_)), "{possible:?}");
    }
    let elsewhere = Request { queue: Some(word("nope.q")), ..request(1, 1) };
    for impossible in [request(5, 2), request(2, 3), tagged("nope"), elsewhere] {
        let estimate = cluster.estimate(&impossible).await.unwrap();
        assert!(matches!(&estimate, Estimate::Never { reason } if !reason.is_empty()), "{estimate:?}");
    }
}

/// One pilot on both hosts, and one that waits for it.
async fn a_pilot(cluster: &GridEngine, directory: &Path) {
    let (shown, go) =
        (directory.join("shown").display().to_string(), directory.join("go").display().to_string());
    let script = format!(
        "node=$(hostname)
        cat \"$ISTHMUS_PILOT_SECRET\" >{shown}.$node.new
        stat -c ' %a' \"$ISTHMUS_PILOT_SECRET\" >>{shown}.$node.new
        mv {shown}.$node.new {shown}.$node
        until [ -e {go} ]; do sleep 0.2; done"
    );
    let asked = Request { time: Some(Duration::from_secs(600)), ..request(2, 2) };
    let job = cluster.submit(&pilot("first", asked, &script)).await.unwrap();
    let State::Running { nodes, end } =
        reaches(cluster, &job, |state| matches!(state, State::Running { .. })).await
    else {
        panic!("it runs")
    };
    assert_eq!(nodes, ["head", "n2"]);
    let left = end.unwrap().duration_since(SystemTime::now()).unwrap();
    assert!((Duration::from_secs(400)..=Duration::from_secs(610)).contains(&left), "{left:?}");
    for node in nodes {
        let shown = directory.join(format!("shown.{node}"));
        let text = until("a host has run the script", async || std::fs::read_to_string(&shown).ok()).await;
        assert_eq!(text, format!("{TOKEN} 600\n"));
    }
    nobody_sees_the_token();

    let next = cluster.submit(&pilot("next", request(1, 4), "true")).await.unwrap();
    let full =
        |state: &State| matches!(state, State::Pending { reason, .. } if reason.contains("PE \"smp\""));
    reaches(cluster, &next, full).await;
    assert!(matches!(cluster.estimate(&request(1, 4)).await.unwrap(), Estimate::Unknown { .. }));
    assert_eq!(cluster.find(&word("next")).await.unwrap().as_ref(), Some(&next));
    assert_eq!(cluster.find(&word("other")).await.unwrap(), None);
    cluster.cancel(&next).await.unwrap();
    assert!(matches!(ends(cluster, &next).await, End::Cancelled { .. }));
    cluster.cancel(&next).await.unwrap();
    cluster.cancel(&unknown()).await.unwrap();
    assert_eq!(state(cluster, &unknown()).await, State::Unknown);
    // The number alone is no job.
    let renamed = isthmus_batch::Job { name: word("renamed"), ..job.clone() };
    cluster.cancel(&renamed).await.unwrap();
    assert_eq!(state(cluster, &renamed).await, State::Unknown);

    std::fs::write(directory.join("go"), "").unwrap();
    assert_eq!(ends(cluster, &job).await, End::Completed);
    assert!(!directory.join("pilots/first.secret").exists());
}

async fn ways_to_end(cluster: &GridEngine, directory: &Path) {
    let fails = cluster.submit(&pilot("fails", request(2, 2), "echo why; exit 3")).await.unwrap();
    assert_eq!(ends(cluster, &fails).await, End::Failed { status: 3, signal: 0 });
    let log = std::fs::read_to_string(directory.join("pilots/fails.log")).unwrap();
    assert!(log.contains("why\n"), "{log}");

    let short = Request { time: Some(Duration::from_secs(2)), ..request(1, 2) };
    let late = cluster.submit(&pilot("late", short, "sleep 1000")).await.unwrap();
    assert_eq!(ends(cluster, &late).await, End::TimeLimit);

    let runs = cluster.submit(&pilot("runs", request(2, 2), "sleep 1000")).await.unwrap();
    reaches(cluster, &runs, |state| matches!(state, State::Running { .. })).await;
    cluster.cancel(&runs).await.unwrap();
    assert!(matches!(ends(cluster, &runs).await, End::Cancelled { .. }));

    for (refused, why) in [
        (Request { queue: Some(word("nope.q")), ..request(1, 1) }, "unknown queue"),
        (Request { account: Some(word("nope")), ..request(1, 1) }, "project \"nope\" does not exist"),
        (Request { reservation: Some(word("77")), ..request(1, 1) }, "reservation id 77 is invalid"),
        (Request { tags: vec![word("nope")], ..request(1, 1) }, "unknown resource"),
    ] {
        let error = cluster.submit(&pilot("refused", refused, "true")).await.unwrap_err();
        assert!(matches!(error, BatchError::Refused { .. }) && error.to_string().contains(why), "{error}");
        assert!(!directory.join("pilots/refused.secret").exists());
    }
}

async fn master_down(cluster: &GridEngine, directory: &Path) {
    let runs = cluster.submit(&pilot("stays", request(1, 1), "sleep 1000")).await.unwrap();
    reaches(cluster, &runs, |state| matches!(state, State::Running { .. })).await;
    sh(
        directory,
        "pid=$(cat $D/spool/qmaster/qmaster.pid); kill $pid; while [ -d /proc/$pid ]; do sleep 0.2; done",
    );
    let jobs = [runs.clone()];
    assert_unreachable(cluster.submit(&pilot("new", request(1, 1), "true")).await);
    assert_unreachable(cluster.states(&jobs).await);
    assert_unreachable(cluster.estimate(&request(1, 1)).await);
    assert_unreachable(cluster.cancel(&runs).await);
    assert_unreachable(cluster.capacity().await);
    assert_unreachable(cluster.find(&runs.name).await);
    sh(directory, ". $D/cell; sge_qmaster");
    let answers = async || cluster.states(&jobs).await.ok();
    let states = until("the master answers again", answers).await;
    assert!(matches!(&states[..], [State::Running { .. }]), "{states:?}");
    cluster.cancel(&runs).await.unwrap();
    assert!(matches!(ends(cluster, &runs).await, End::Cancelled { .. }));
}
