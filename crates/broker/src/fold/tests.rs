//! Two brokers over one store.

use std::sync::Mutex;
use std::time::{Instant, SystemTime};

use isthmus_identity::peers::Peers;
use isthmus_registry::{JobChange, LookupError, Policy, View};
use isthmus_service::mac::Secret;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::{JobId, Label, proto};
use prost::Message as _;

use super::*;
use crate::state::State;
use crate::store::{Memory, Store};

struct Brokers {
    store: Arc<Memory>,
    now: Arc<Mutex<Instant>>,
    both: [Arc<Broker>; 2],
    _directory: tempfile::TempDir,
}

impl Brokers {
    /// Starts two brokers over one store, each with its fold.
    async fn start() -> Self {
        let now = Arc::new(Mutex::new(Instant::now()));
        let clock = now.clone();
        let store = Arc::new(Memory::new(Arc::new(move || *clock.lock().unwrap())));
        let directory = tempfile::tempdir().unwrap();
        State::create(directory.path(), "demo", "127.0.0.1:7700", SystemTime::now()).unwrap();
        let broker = || {
            let state = State::load(directory.path()).unwrap();
            let registry = Registry::new("demo", Policy::default());
            Arc::new(Broker::new(state, store.clone(), registry, Peers::default()).unwrap())
        };
        let both = [broker(), broker()];
        for broker in &both {
            let fold = Fold::begin(broker).await.unwrap();
            let broker = broker.clone();
            tokio::spawn(async move { fold.keep(&broker).await });
        }
        Self { store, now, both, _directory: directory }
    }

    /// Waits until both brokers have folded all records.
    async fn settled(&self) {
        let revision = self.store.range("").await.unwrap().revision;
        for broker in &self.both {
            broker.reached(revision).await.unwrap();
        }
    }
}

fn label(text: &str) -> Label {
    text.parse().unwrap()
}

/// Attaches the gateway of a site at a broker.
async fn attach(broker: &Broker, site: &str) -> SessionId {
    let (site, name) = (label(site), label("gateway"));
    let session = broker.store.grant(Duration::from_secs(30)).await.unwrap();
    let up = proto::GatewayUp { site: site.to_string(), ..proto::GatewayUp::default() };
    let make = |registry: &Registry, _: Option<&Record>| {
        let record = registry.gateway_record(&site, &name, &up, &Secret::random())?;
        Ok(RecordChange::Put(record.encode_to_vec()))
    };
    broker.write((&records::gateway_key(&site, &name), session), |write| write, make).await.unwrap();
    session
}

/// Announces a node at a broker.
async fn announce(broker: &Broker, session: SessionId, node: &str) -> Result<VirtualAddress, NotWritten> {
    let up =
        proto::NodeUp { node: node.to_owned(), address: "10.0.0.1:7730".to_owned(), ..Default::default() };
    let found = broker.registry().node_record(session, &up)?;
    let (name, record) = found.unwrap();
    let address = broker.address_for(&name).await?;
    let key = records::gateway_key(&name.site, &label("gateway"));
    let make = |_: &Registry, _: Option<&Record>| Ok(RecordChange::Put(record.encode_to_vec()));
    broker.write((&records::node_key(&name), session), |write| write.held(&key, session), make).await?;
    Ok(address)
}

/// Reports at a broker that a job runs, or that it has ended.
async fn report(broker: &Broker, session: SessionId, running: bool) -> Result<(), NotWritten> {
    let job = JobId([7; 16]);
    let report = proto::JobReport {
        job: job.to_string(),
        nodes: vec!["n1.alpha".to_owned()],
        ended: !running,
        ..proto::JobReport::default()
    };
    let make = |registry: &Registry, _: Option<&Record>| {
        Ok(match registry.job_change(session, &job, &report)? {
            Some(JobChange::Running(record)) => RecordChange::Put(record.encode_to_vec()),
            Some(JobChange::Ended) => RecordChange::Delete,
            None => RecordChange::None,
        })
    };
    let key = records::gateway_key(&label("alpha"), &label("gateway"));
    broker.write((&records::job_key(&job), session), |write| write.held(&key, session), make).await
}

/// The number of jobs that a broker lists.
fn jobs(broker: &Broker) -> usize {
    let records = Some(Records::Jobs(proto::JobFilter::default()));
    let request = proto::ListRequest { records, ..proto::ListRequest::default() };
    broker.registry().list(&View::All, &request).unwrap().jobs.len()
}

#[tokio::test]
async fn a_job_reported_at_one_broker_is_listed_at_the_other() {
    let brokers = Brokers::start().await;
    let [a, b] = &brokers.both;
    let listed = async || {
        brokers.settled().await;
        [jobs(a), jobs(b)]
    };
    let alpha = attach(a, "alpha").await;
    announce(a, alpha, "n1").await.unwrap();
    report(a, alpha, true).await.unwrap();
    assert_eq!(listed().await, [1, 1]);
    report(a, alpha, false).await.unwrap();
    assert_eq!(listed().await, [0, 0], "it has ended");

    report(a, alpha, true).await.unwrap();
    let beta = attach(b, "beta").await;
    let foreign = report(b, beta, false).await.unwrap_err().to_string();
    assert_eq!(foreign, format!("the head of job {} is not in site beta", JobId([7; 16])));
    let again = attach(b, "alpha").await;
    report(b, again, true).await.unwrap();
    brokers.store.revoke(alpha).await.unwrap();
    assert_eq!(listed().await, [1, 1], "the gateway has reported it again, at the other broker");
    brokers.store.revoke(again).await.unwrap();
    assert_eq!(listed().await, [0, 0], "its gateway is detached");
}

fn find(broker: &Broker, name: &str) -> Result<proto::Node, LookupError> {
    let request = proto::LookupRequest { name: name.to_owned(), ..proto::LookupRequest::default() };
    broker.registry().lookup((&label("beta"), &label("gateway")), &request).map(|reply| reply.node.unwrap())
}

#[tokio::test]
async fn nodes_attached_at_one_broker_are_found_at_the_other() {
    let brokers = Brokers::start().await;
    let [a, b] = &brokers.both;
    let (alpha, beta) = (attach(a, "alpha").await, attach(b, "beta").await);
    let (one, other) = tokio::join!(announce(a, alpha, "n1"), announce(b, beta, "n1"));
    assert_ne!(one.unwrap(), other.unwrap(), "both were assigned at the same time");
    brokers.settled().await;
    for broker in &brokers.both {
        assert!(find(broker, "n1.alpha").unwrap().up && find(broker, "n1.beta").unwrap().up);
    }
    let addresses = [a, b].map(|broker| find(broker, "n1.alpha").unwrap().virtual_address);
    assert_eq!(addresses[0], addresses[1]);

    // Alpha's gateway attaches to the other broker: only its new attachment counts.
    let again = attach(b, "alpha").await;
    brokers.settled().await;
    let late = announce(a, alpha, "n2").await.unwrap_err().to_string();
    assert_eq!(late, "this gateway is not attached");
    announce(b, again, "n1").await.unwrap();
    brokers.store.revoke(alpha).await.unwrap();
    brokers.settled().await;
    for broker in &brokers.both {
        assert!(find(broker, "n1.alpha").unwrap().up);
    }

    // The broker of the attachment has ended and keeps no lease alive.
    *brokers.now.lock().unwrap() += Duration::from_secs(31);
    brokers.store.expire().await.unwrap();
    brokers.settled().await;
    for broker in &brokers.both {
        assert!(!find(broker, "n1.alpha").unwrap().up, "its gateway is not attached");
        assert_eq!(
            find(broker, "n1.alpha").unwrap().address,
            "10.0.0.1:7730",
            "its contact may still be good"
        );
    }
}

#[tokio::test]
async fn the_first_nodes_of_many_sites_get_addresses_at_once() {
    let brokers = Brokers::start().await;
    let mut sessions = Vec::new();
    for index in 0..100 {
        let broker = brokers.both[index % 2].clone();
        let session = attach(&broker, &format!("site{index}")).await;
        sessions.push((broker, session));
    }
    let announced = sessions
        .into_iter()
        .map(|(broker, session)| async move { announce(&broker, session, "n1").await.unwrap() });
    let announced: tokio::task::JoinSet<_> = announced.collect();
    let addresses: std::collections::BTreeSet<_> = announced.join_all().await.into_iter().collect();
    assert_eq!(addresses.len(), 100);
}

#[tokio::test]
async fn a_gateway_that_was_replaced_writes_nothing_more() {
    let brokers = Brokers::start().await;
    let [a, b] = &brokers.both;
    let old = attach(a, "alpha").await;
    attach(b, "alpha").await;
    // The former gateway was still attached when its announcement was checked.
    let key = records::gateway_key(&label("alpha"), &label("gateway"));
    let make = |_: &Registry, _: Option<&Record>| {
        Ok(RecordChange::Put(records::NodeRecord::default().encode_to_vec()))
    };
    let written = a.write(("nodes/alpha/n1", old), |write| write.held(&key, old), make).await;
    assert!(matches!(written, Err(NotWritten::Refused(_))), "{written:?}");
    assert!(brokers.store.get("nodes/alpha/n1").await.unwrap().is_none());
}

#[tokio::test]
async fn a_fold_that_was_too_slow_reads_all_records_anew() {
    let brokers = Brokers::start().await;
    let [a, _] = &brokers.both;
    let state = State::load(&a.state.directory).unwrap();
    let registry = Registry::new("demo", Policy::default());
    let slow = Broker::new(state, brokers.store.clone(), registry, Peers::default());
    let slow = Arc::new(slow.unwrap());
    let lost = attach(a, "beta").await;
    announce(a, lost, "n1").await.unwrap();
    let fold = Fold::begin(&slow).await.unwrap();
    assert!(find(&slow, "n1.beta").unwrap().up);
    brokers.store.revoke(lost).await.unwrap();
    let alpha = attach(a, "alpha").await;
    for _ in 0..2000 {
        announce(a, alpha, "n1").await.unwrap();
    }
    let keeping = slow.clone();
    tokio::spawn(async move { fold.keep(&keeping).await });
    slow.reached(brokers.store.range("").await.unwrap().revision).await.unwrap();
    assert!(find(&slow, "n1.alpha").unwrap().up);
    assert!(!find(&slow, "n1.beta").unwrap().up);
}
