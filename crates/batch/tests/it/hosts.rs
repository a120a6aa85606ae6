//! Two hosts with sshd, and a third that doesn't answer.

use std::path::Path;
use std::time::{Duration, SystemTime};

use isthmus_batch::hosts::Host;
use isthmus_batch::{Batch, BatchError, End, Estimate, Hosts, Request, State};

use crate::cluster::{
    TOKEN, ends, inside, network, nobody_sees_the_token, pilot, reaches, request, runner, sh, state, unknown,
    until, word,
};

const PROGRAMS: &[&str] = &["unshare", "ip", "ssh", "sshd", "ssh-keygen", "setsid", "timeout", "base64"];

/// Starts an sshd for each host. All have one home, as hosts of a cluster may.
fn start(directory: &Path) {
    network(directory);
    sh(
        directory,
        "mkdir -m 700 $D/home $D/home/.ssh
        mount --bind $D/home \"$(getent passwd 0 | cut -d: -f6)\"
        mount -t tmpfs tmpfs /run
        mkdir /run/sshd
        ssh-keygen -q -t ed25519 -N '' -f $D/key
        ssh-keygen -q -t ed25519 -N '' -f $D/host
        cp $D/key.pub $D/home/.ssh/authorized_keys
        for n in 1 2; do
            cat >$D/sshd$n <<EOF
Port 220$n
ListenAddress 10.77.0.1
HostKey $D/host
AuthorizedKeysFile $D/home/.ssh/authorized_keys
PidFile $D/sshd$n.pid
PasswordAuthentication no
UsePAM no
StrictModes no
PermitRootLogin yes
EOF
            $(command -v sshd) -f $D/sshd$n -E $D/sshd$n.log
        done
        echo \"* $(cat $D/host.pub)\" >$D/known
        cat >$D/ssh <<EOF
Host h1
    Port 2201
Host h2
    Port 2202
Host h3
    Port 2203
Host *
    HostName 10.77.0.1
    HostKeyAlias any
    User root
    IdentityFile $D/key
    IdentitiesOnly yes
    UserKnownHostsFile $D/known
EOF
",
    );
}

#[test]
fn pilots_on_plain_hosts() {
    let Some(directory) = inside("hosts::pilots_on_plain_hosts", PROGRAMS) else { return };
    start(&directory);
    let host = |name: &str| Host { address: word(name), pilots: 1, tags: vec![word("ib")] };
    let options = vec!["-F".to_owned(), directory.join("ssh").display().to_string()];
    let list = ["h1", "h2", "h3"].map(host).to_vec();
    let hosts = Hosts::new(runner(&[]), &directory.join("pilots"), list, options).unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        the_hosts(&hosts).await;
        in_their_order(&hosts, &directory).await;
        ways_to_end(&hosts, &directory).await;
        a_host_is_silent(&hosts, &directory).await;
    });
    // Nothing is left on the hosts.
    assert_eq!(sh(&directory, "cd $D/home/.isthmus-pilots; find . -mindepth 2"), "");
}

async fn the_hosts(hosts: &Hosts) {
    let classes = hosts.capacity().await.unwrap();
    let [class] = &classes[..] else { panic!("{classes:?}") };
    assert_eq!((class.nodes, class.nodes_free, class.queue.as_deref()), (2, 2, None));
    assert!(class.cores > 0 && class.memory_bytes > 64 << 20 && class.features == ["ib"], "{class:?}");
    let Estimate::At(start) = hosts.estimate(&request(2, 1)).await.unwrap() else { panic!("it can start") };
    assert!(start <= SystemTime::now());
    for impossible in
        [request(3, 1), request(1, 1 << 20), Request { tags: vec![word("gpu")], ..request(1, 1) }]
    {
        assert!(
            matches!(hosts.estimate(&impossible).await.unwrap(), Estimate::Never { .. }),
            "{impossible:?}"
        );
    }
}

async fn in_their_order(hosts: &Hosts, directory: &Path) {
    let (shown, go) =
        (directory.join("shown").display().to_string(), directory.join("go").display().to_string());
    let script = format!(
        "host=${{ISTHMUS_PILOT_SECRET%/*/*}}; host=${{host##*/}}
        cat \"$ISTHMUS_PILOT_SECRET\" >{shown}.$host.new
        stat -c ' %a' \"$ISTHMUS_PILOT_SECRET\" >>{shown}.$host.new
        mv {shown}.$host.new {shown}.$host
        until [ -e {go} ]; do sleep 0.2; done"
    );
    let asked = Request { time: Some(Duration::from_secs(600)), ..request(2, 1) };
    let first = hosts.submit(&pilot("first", asked, &script)).await.unwrap();
    let State::Running { nodes, end } = state(hosts, &first).await else { panic!("it runs at once") };
    assert_eq!(nodes, ["h1", "h2"]);
    assert!(end.unwrap() > SystemTime::now());
    for node in nodes {
        let shown = directory.join(format!("shown.{node}"));
        let text = until("a host has run the script", async || std::fs::read_to_string(&shown).ok()).await;
        assert_eq!(text, format!("{TOKEN} 600\n"));
    }
    nobody_sees_the_token();
    let error = hosts.submit(&pilot("first", request(1, 1), "true")).await.unwrap_err();
    assert!(error.to_string().contains("there is a pilot first already"), "{error}");

    let second = hosts.submit(&pilot("second", request(2, 1), "true")).await.unwrap();
    let third = hosts.submit(&pilot("third", request(1, 1), "true")).await.unwrap();
    let states = hosts.states(&[second.clone(), third.clone(), unknown()]).await.unwrap();
    let reason = |state: &State| match state {
        State::Pending { reason, .. } => reason.clone(),
        State::Unknown => "unknown".to_owned(),
        state => panic!("{state:?}"),
    };
    let reasons: Vec<_> = states.iter().map(reason).collect();
    assert_eq!(reasons, ["2 free hosts are needed", "1 pilots are before it", "unknown"]);
    assert!(matches!(hosts.estimate(&request(1, 1)).await.unwrap(), Estimate::Unknown { .. }));
    assert_eq!(hosts.capacity().await.unwrap()[0].nodes_free, 0);
    assert_eq!(hosts.find(&word("third")).await.unwrap().as_ref(), Some(&third));
    hosts.cancel(&third).await.unwrap();
    hosts.cancel(&third).await.unwrap();
    hosts.cancel(&unknown()).await.unwrap();
    assert_eq!(hosts.find(&word("third")).await.unwrap(), None);
    assert_eq!(state(hosts, &third).await, State::Ended(End::Cancelled { by: Some("root".to_owned()) }));

    std::fs::write(directory.join("go"), "").unwrap();
    assert_eq!(ends(hosts, &first).await, End::Completed);
    assert_eq!(ends(hosts, &second).await, End::Completed);
    for name in ["first", "third"] {
        assert!(!directory.join(format!("pilots/{name}.secret")).exists());
    }
}

/// The id that a pilot's script has written to a file.
async fn process(path: &Path) -> String {
    let written = async || std::fs::read_to_string(path).ok().filter(|text| text.ends_with('\n'));
    until("it runs", written).await.trim().to_owned()
}

fn assert_gone(directory: &Path, process: &str) {
    assert_eq!(sh(directory, &format!("kill -0 {process} 2>/dev/null || echo gone")), "gone\n");
}

async fn ways_to_end(hosts: &Hosts, directory: &Path) {
    let fails = hosts.submit(&pilot("fails", request(2, 1), "echo why; exit 3")).await.unwrap();
    assert_eq!(ends(hosts, &fails).await, End::Failed { status: 3, signal: 0 });
    let log = std::fs::read_to_string(directory.join("pilots/fails.log")).unwrap();
    assert_eq!(log.matches("why\n").count(), 2, "{log}");

    let killed = hosts.submit(&pilot("killed", request(1, 1), "kill -KILL $$")).await.unwrap();
    assert_eq!(ends(hosts, &killed).await, End::Failed { status: 0, signal: 9 });

    let short = Request { time: Some(Duration::from_secs(1)), ..request(1, 1) };
    let late = hosts.submit(&pilot("late", short, "sleep 1000")).await.unwrap();
    assert_eq!(ends(hosts, &late).await, End::TimeLimit);

    // What a pilot has started ends with it.
    let script = |file: &str| format!("echo $$ >{}/{file}; sleep 1000 & wait", directory.display());
    let cancelled = hosts.submit(&pilot("cancelled", request(1, 1), &script("alive"))).await.unwrap();
    let alive = process(&directory.join("alive")).await;
    hosts.cancel(&cancelled).await.unwrap();
    assert!(matches!(ends(hosts, &cancelled).await, End::Cancelled { .. }));
    assert_gone(directory, &alive);

    // Its watcher is killed.
    let lost = hosts.submit(&pilot("lost", request(1, 1), &script("lost"))).await.unwrap();
    let alive = process(&directory.join("lost")).await;
    sh(
        directory,
        "read number boot watcher rest <$D/home/.isthmus-pilots/h1/lost/started; kill -KILL $watcher",
    );
    assert_eq!(ends(hosts, &lost).await, End::NodeFailure);
    assert_gone(directory, &alive);

    for refused in [
        Request { queue: Some(word("main")), ..request(1, 1) },
        Request { account: Some(word("a1")), ..request(1, 1) },
    ] {
        let error = hosts.submit(&pilot("refused", refused, "true")).await.unwrap_err();
        assert!(matches!(error, BatchError::Request { .. }), "{error}");
    }
}

async fn a_host_is_silent(hosts: &Hosts, directory: &Path) {
    let runs = hosts.submit(&pilot("runs", request(2, 1), "sleep 1000")).await.unwrap();
    reaches(hosts, &runs, |state| matches!(state, State::Running { .. })).await;
    sh(directory, "kill $(cat $D/sshd2.pid); while [ -e $D/sshd2.pid ]; do sleep 0.1; done");
    assert_eq!(hosts.capacity().await.unwrap()[0].nodes, 1);
    let State::Running { nodes, .. } = state(hosts, &runs).await else { panic!("it may still run") };
    assert_eq!(nodes, ["h1", "h2"]);
    let error = hosts.cancel(&runs).await.unwrap_err();
    assert!(error.is_unreachable() && error.to_string().contains("ssh h2"), "{error}");
    assert!(matches!(state(hosts, &runs).await, State::Ended(End::Cancelled { .. })));
    assert_eq!(sh(directory, "ls $D/home/.isthmus-pilots/h2"), "runs\n");
    // Once it answers, it is ended there, too.
    sh(directory, "$(command -v sshd) -f $D/sshd2 -E $D/sshd2.log");
    let gone = async || {
        hosts.states(&[]).await.unwrap();
        (!directory.join("home/.isthmus-pilots/h2/runs").exists()).then_some(())
    };
    until("it is ended on h2", gone).await;
}
