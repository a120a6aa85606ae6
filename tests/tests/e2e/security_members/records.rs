//! What the audit logs have, and a grid whose authority's key is offline.

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Job, World};
use serde_json::Value;

use super::{BROKER, GRID, SOCKET, SOON, agent, is_up, isthmus_on, own, read, state};

/// Waits until an audit log has a line with all of these words.
fn line(world: &World, machine: &str, path: &str, words: &[&str]) -> Result<()> {
    let mut log = String::new();
    World::eventually("the audit log has the line", SOON, || {
        log = read(world, machine, path)?;
        Ok(log.lines().any(|line| words.iter().all(|word| line.contains(word))))
    })
    .with_context(|| format!("no line with {words:?} in\n{log}"))
}

#[test]
fn the_audit_logs_name_who_did_what_where() -> Result<()> {
    let world = GRID.take()?;
    let _agents = [agent(&world, "n1.alpha", "log1", "")?, agent(&world, "n1.beta", "log2", "")?];
    is_up(&world, "log1.alpha")?;
    is_up(&world, "log2.beta")?;
    // The lab's agents write text.
    let own_job = world.run("n1.alpha", &["--nodes", "n1.alpha,n1.beta", "--each"], &["true"])?;
    ensure!(own_job.status == 0, "{}", own_job.whole());
    let log = "/var/lib/isthmus/agent/audit.log";
    let started = ["Z job done identity=\"user id 0\" subject=\"job ", "\\\"true\\\" on n1.alpha n1.beta\""];
    line(&world, "n1.alpha", log, &started)?;
    let taken = ["Z job done identity=\"agent n1.alpha\" owner=\"", " source=\"", "subject=\"job "];
    line(&world, "n1.beta", log, &taken)?;
    line(&world, "n1.beta", log, &["Z command done identity=\"agent n1.alpha\"", "on n1.beta\""])?;
    // Berta's agents write JSON, one object per line.
    let words = ["run", "--socket", SOCKET, "--nodes", "log1.alpha,log2.beta", "--each", "--", "true"];
    let job = isthmus_on(&world, "n1.alpha", &words)?;
    ensure!(job.status == 0, "{}", job.whole());
    let objects = |machine: &str, name: &str| -> Result<Vec<Value>> {
        let log = read(&world, machine, &format!("/var/lib/berta/{name}/audit.log"))?;
        log.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
    };
    for (machine, name, event) in [("n1.alpha", "log1", "job"), ("n1.beta", "log2", "command")] {
        World::eventually("the logs have it", SOON, || {
            Ok(objects(machine, name).is_ok_and(|all| all.iter().any(|found| found["event"] == event)))
        })?;
    }
    let (first, second) = (objects("n1.alpha", "log1")?, objects("n1.beta", "log2")?);
    let of = |events: &[Value], event: &str| -> Result<Value> {
        let found = events.iter().find(|found| found["event"] == event).cloned();
        found.with_context(|| format!("no {event} in {events:?}"))
    };
    let started = of(&first, "job")?;
    let subject = started["subject"].as_str().unwrap_or_default();
    ensure!(started["identity"] == "user id 0" && started["result"] == "done", "{started}");
    ensure!(subject.ends_with(": \"true\" on log1.alpha log2.beta"), "{started}");
    for event in ["job", "command"] {
        let taken = of(&second, event)?;
        ensure!(taken["identity"] == "agent log1.alpha" && taken["owner"] == "berta", "{taken}");
        ensure!(taken["source"].as_str().is_some_and(|source| source.contains(':')), "{taken}");
        ensure!(taken["subject"].as_str().is_some_and(|about| about.starts_with(&subject[..36])), "{taken}");
    }
    let log = format!("{BROKER}/audit.log");
    let invited =
        " invite done identity=\"user id 0\" subject=\"role agent site beta name any owner berta until ";
    line(&world, "hub", &log, &[invited])?;
    line(&world, "hub", &log, &[" join done identity=\"agent log2.beta\" owner=\"berta\" source=\""])
}

/// Starts the broker of a lab anew with further settings.
fn broker_again(world: &World, settings: &str) -> Result<Job> {
    if world.service("hub", "broker").is_ok() {
        world.stop("hub", "broker")?;
    }
    own(
        world,
        "hub",
        &format!("(cat /run/isthmus-machine/broker.toml; echo '{settings}') > /run/broker.toml"),
    )?;
    let broker = world.serve("hub", "broker", &[], "/run/broker.toml")?;
    let nodes = world.nodes();
    World::eventually("all nodes are back", SOON, || {
        let shown = isthmus_on(world, "hub", &["status", "--json", "--state", BROKER])?;
        let status: Value = serde_json::from_str(&shown.stdout).unwrap_or_default();
        let found = status["nodes"].as_array().cloned().unwrap_or_default();
        Ok(nodes.iter().all(|name| found.iter().any(|node| node["name"] == **name && node["up"] == true)))
    })?;
    Ok(broker)
}

/// As docs/operators.md says, the authority's key is away except for a command once a year.
#[test]
fn the_authority_s_key_may_be_kept_offline() -> Result<()> {
    let world = World::up("two-relays")?;
    own(&world, "hub", &format!("mkdir -m 700 /media/safe; mv {BROKER}/ca-key.pem /media/safe/"))?;
    let former = broker_again(&world, "audit_format = \"json\"")?;
    let _first = agent(&world, "n1.alpha", "key1", "")?;
    is_up(&world, "key1.alpha")?;
    let signing = || -> Result<String> {
        let text = read(&world, "hub", &format!("{BROKER}/signing.pem"))?;
        let (certificate, _) = text.split_once("-----END CERTIFICATE-----").context("no certificate")?;
        Ok(certificate.trim().to_owned())
    };
    let chain = |machine: &str, name: &str| read(&world, machine, &format!("{}/identity.pem", state(name)));
    let old = signing()?;
    ensure!(chain("n1.alpha", "key1")?.contains(&old));

    let without = isthmus_on(&world, "hub", &["grid", "sign", "--state", BROKER])?;
    ensure!(without.status == 1 && without.stderr.contains("ca-key.pem"), "{}", without.whole());
    ensure!(signing()? == old, "a failed command has changed the certificate");
    let words = ["grid", "sign", "--state", BROKER, "--authority-key", "/media/safe/ca-key.pem"];
    let signed = isthmus_on(&world, "hub", &words)?;
    ensure!(signed.status == 0 && signed.stdout.contains("ends at "), "{}", signed.whole());
    let new = signing()?;
    ensure!(new != old);
    drop(former);
    let _broker = broker_again(&world, "audit_format = \"json\"")?;
    let _second = agent(&world, "n1.beta", "key2", "")?;
    is_up(&world, "key2.beta")?;
    let issued = chain("n1.beta", "key2")?;
    ensure!(issued.contains(&new) && !issued.contains(&old), "{issued}");
    // Members of both certificates belong together.
    is_up(&world, "key1.alpha")?;
    let words = ["run", "--socket", SOCKET, "--nodes", "key1.alpha,key2.beta", "--each", "--", "true"];
    let job = isthmus_on(&world, "n1.alpha", &words)?;
    ensure!(job.status == 0, "{}", job.whole());
    let kept = world.sh("hub", SOON, &["test", "-e", &format!("{BROKER}/ca-key.pem")])?;
    ensure!(kept.status != 0, "the key is back in the broker's directory");
    // The broker's audit log, as JSON from its restart on.
    let log = read(&world, "hub", &format!("{BROKER}/audit.log"))?;
    let joined = log.lines().rev().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let joined = joined.into_iter().find(|line| line["event"] == "join").context("no join")?;
    ensure!(joined["identity"] == "agent key2.beta" && joined["owner"] == "berta", "{joined}");
    Ok(())
}
