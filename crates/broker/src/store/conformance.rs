//! Tests that every implementation of [`Store`] must pass.

use std::sync::Mutex;

use super::*;

/// A clock that tests set.
struct TestClock(Arc<Mutex<Instant>>);

impl TestClock {
    fn new() -> Self {
        Self(Arc::new(Mutex::new(Instant::now())))
    }

    fn clock(&self) -> Clock {
        let now = self.0.clone();
        Arc::new(move || *now.lock().unwrap())
    }

    fn advance(&self, seconds: u64) {
        *self.0.lock().unwrap() += Duration::from_secs(seconds);
    }
}

/// Runs a test against every implementation.
macro_rules! conformance {
    ($($name:ident),* $(,)?) => {
        mod in_memory {
            $(#[tokio::test]
            async fn $name() {
                let clock = super::TestClock::new();
                super::$name(&super::Memory::new(clock.clock()), &clock).await;
            })*
        }
        mod embedded {
            $(#[tokio::test]
            async fn $name() {
                let directory = tempfile::tempdir().unwrap();
                let clock = super::TestClock::new();
                let path = directory.path().join("registry.redb");
                let store = super::Embedded::open_with_clock(&path, clock.clock()).unwrap();
                super::$name(&store, &clock).await;
            })*
        }
    };
}

conformance!(
    a_range_has_one_prefix_and_one_revision,
    a_transaction_is_done_as_a_whole_or_not_at_all,
    of_transactions_at_once_one_wins,
    leases_end_by_the_clock_and_their_records_are_deleted,
    a_record_belongs_to_the_lease_of_its_last_write,
    a_watch_has_every_change_once_and_in_order,
    a_watch_from_too_early_a_revision_is_refused,
    the_history_for_watches_is_bounded_in_bytes,
    a_slow_watcher_is_ended,
);

async fn put(store: &dyn Store, key: &str, value: &str, lease: Option<Lease>) -> Revision {
    store.transact(Transaction::default().put(key, value, lease)).await.unwrap().unwrap()
}

async fn keys(store: &dyn Store, prefix: &str) -> Vec<String> {
    let records = store.range(prefix).await.unwrap().records;
    records.into_iter().map(|(key, _)| key.to_string()).collect()
}

/// The next `number` changes as "key=value", deletions as "key".
async fn changes(watch: &mut Watch, number: usize) -> Vec<String> {
    let mut seen = Vec::new();
    while seen.len() < number {
        for change in watch.next().await.unwrap() {
            let value = change.value.map(|value| format!("={}", String::from_utf8_lossy(&value)));
            seen.push(format!("{}{}", change.key, value.unwrap_or_default()));
        }
    }
    seen
}

async fn a_range_has_one_prefix_and_one_revision(store: &dyn Store, _: &TestClock) {
    assert!(store.get("a/1").await.unwrap().is_none());
    for (key, value) in [("a/2", "two"), ("a/1", "one"), ("b/1", "other"), ("a/1", "uno")] {
        put(store, key, value, None).await;
    }
    let snapshot = store.range("a/").await.unwrap();
    let records: Vec<_> = snapshot.records.iter().map(|(key, record)| (&**key, &*record.value)).collect();
    assert_eq!(records, [("a/1", &b"uno"[..]), ("a/2", b"two")]);
    assert_eq!(snapshot.records[0].1.revision, snapshot.revision, "the last write");
    assert_eq!(store.get("a/1").await.unwrap().as_ref(), Some(&snapshot.records[0].1));
    assert_eq!(keys(store, "c/").await, [""; 0]);
}

async fn a_transaction_is_done_as_a_whole_or_not_at_all(store: &dyn Store, _: &TestClock) {
    let first = put(store, "a", "1", None).await;
    for (name, transaction, done) in [
        ("b is there already?", Transaction::default().when("b", first).put("a", "x", None), false),
        (
            "one of two holds",
            Transaction::default().when("a", first).when("a", 0).delete("a").put("c", "x", None),
            false,
        ),
        (
            "both hold",
            Transaction::default().when("a", first).when("b", 0).delete("a").put("b", "2", None),
            true,
        ),
        ("a is gone", Transaction::default().when("a", first).put("c", "x", None), false),
        ("nothing to delete", Transaction::default().delete("a"), true),
    ] {
        assert_eq!(store.transact(transaction).await.unwrap().is_some(), done, "{name}");
    }
    assert_eq!(keys(store, "").await, ["b"]);
    let twice = Transaction::default().put("a", "1", None).delete("a");
    assert_eq!(store.transact(twice).await, Err(StoreError::Twice("a".to_owned())));
    let no_lease = Transaction::default().put("a", "1", None).put("c", "1", Some(Lease(999)));
    assert_eq!(store.transact(no_lease).await, Err(StoreError::NoLease(Lease(999))));
    assert_eq!(keys(store, "").await, ["b"]);
}

async fn of_transactions_at_once_one_wins(store: &dyn Store, _: &TestClock) {
    let take = || store.transact(Transaction::default().when("block", 0).put("block", "mine", None));
    let (a, b, c) = tokio::join!(take(), take(), take());
    let won = [a, b, c].into_iter().filter(|done| done.as_ref().unwrap().is_some()).count();
    assert_eq!(won, 1);
}

async fn leases_end_by_the_clock_and_their_records_are_deleted(store: &dyn Store, clock: &TestClock) {
    let lease = store.grant(Duration::from_secs(10)).await.unwrap();
    let other = store.grant(Duration::from_secs(10)).await.unwrap();
    assert_ne!(lease, other);
    put(store, "kept", "x", None).await;
    put(store, "leased/1", "x", Some(lease)).await;
    let last = put(store, "leased/2", "x", Some(lease)).await;
    let mut watch = store.watch("leased/", last + 1).await.unwrap();
    clock.advance(9);
    store.keep_alive(lease).await.unwrap();
    clock.advance(9);
    store.expire().await.unwrap();
    assert_eq!(keys(store, "").await, ["kept", "leased/1", "leased/2"], "kept alive");
    assert_eq!(store.keep_alive(other).await, Err(StoreError::NoLease(other)));
    clock.advance(1);
    store.expire().await.unwrap();
    assert_eq!(keys(store, "").await, ["kept"]);
    let gone = watch.next().await.unwrap();
    assert_eq!(gone.iter().map(|change| &*change.key).collect::<Vec<_>>(), ["leased/1", "leased/2"]);
    assert!(gone.iter().all(|change| change.value.is_none() && change.revision == gone[0].revision));
    let late = store.transact(Transaction::default().put("leased/1", "x", Some(lease))).await;
    assert_eq!(late, Err(StoreError::NoLease(lease)));
    let lease = store.grant(Duration::from_secs(10)).await.unwrap();
    put(store, "leased/3", "x", Some(lease)).await;
    store.revoke(lease).await.unwrap();
    store.revoke(lease).await.unwrap();
    assert_eq!(changes(&mut watch, 2).await, ["leased/3=x", "leased/3"]);
}

async fn a_record_belongs_to_the_lease_of_its_last_write(store: &dyn Store, _: &TestClock) {
    let (old, new) = (
        store.grant(Duration::from_secs(10)).await.unwrap(),
        store.grant(Duration::from_secs(10)).await.unwrap(),
    );
    put(store, "a", "1", Some(old)).await;
    put(store, "a", "2", Some(new)).await;
    put(store, "b", "1", Some(old)).await;
    put(store, "b", "2", None).await;
    for (name, key, lease, done) in
        [("its former one", "a", old, false), ("its own", "a", new, true), ("none", "b", old, false)]
    {
        let transaction = Transaction::default().held(key, lease).delete("c");
        assert_eq!(store.transact(transaction).await.unwrap().is_some(), done, "{name}");
    }
    store.revoke(old).await.unwrap();
    assert_eq!(keys(store, "").await, ["a", "b"]);
    store.revoke(new).await.unwrap();
    assert_eq!(keys(store, "").await, ["b"]);
}

async fn a_watch_has_every_change_once_and_in_order(store: &dyn Store, _: &TestClock) {
    let first = put(store, "a/1", "1", None).await;
    put(store, "b/1", "not watched", None).await;
    store.transact(Transaction::default().put("a/2", "2", None).delete("a/1")).await.unwrap();
    let mut all = store.watch("a/", first).await.unwrap();
    let mut later = store.watch("a/", store.range("").await.unwrap().revision + 1).await.unwrap();
    let wanted: Vec<String> = (0..100).map(|number| format!("a/3={number}")).collect();
    for number in 0..100 {
        put(store, "a/3", &number.to_string(), None).await;
    }
    assert_eq!(
        changes(&mut all, 103).await,
        [&["a/1=1", "a/2=2", "a/1"].map(str::to_owned)[..], &wanted].concat()
    );
    assert_eq!(changes(&mut later, 100).await, wanted);
    store.transact(Transaction::default().delete("a/9")).await.unwrap();
    put(store, "a/4", "last", None).await;
    for watch in [&mut all, &mut later] {
        assert_eq!(
            changes(watch, 1).await,
            ["a/4=last"],
            "no change twice, and none for a deletion without effect"
        );
    }
}

async fn a_watch_from_too_early_a_revision_is_refused(store: &dyn Store, _: &TestClock) {
    let lease = store.grant(Duration::from_secs(10)).await.unwrap();
    for number in 0..17 * 1024 {
        put(store, "a", &number.to_string(), Some(lease)).await;
    }
    let refused = store.watch("a", 1).await;
    assert!(matches!(refused, Err(StoreError::Forgotten { from: 1, oldest }) if oldest > 1), "{refused:?}");
    let now = store.range("a").await.unwrap().revision;
    assert_eq!(changes(&mut store.watch("a", now).await.unwrap(), 1).await, ["a=17407"]);
}

async fn the_history_for_watches_is_bounded_in_bytes(store: &dyn Store, _: &TestClock) {
    let lease = store.grant(Duration::from_secs(10)).await.unwrap();
    let megabyte = "x".repeat(1 << 20);
    for _ in 0..66 {
        put(store, "a", &megabyte, Some(lease)).await;
    }
    let refused = store.watch("a", 1).await;
    assert!(matches!(refused, Err(StoreError::Forgotten { from: 1, .. })), "{refused:?}");
    assert!(store.watch("a", store.range("").await.unwrap().revision).await.is_ok());
}

async fn a_slow_watcher_is_ended(store: &dyn Store, _: &TestClock) {
    let lease = store.grant(Duration::from_secs(10)).await.unwrap();
    let mut slow = store.watch("a", store.range("").await.unwrap().revision + 1).await.unwrap();
    for number in 0..2000 {
        put(store, "a", &number.to_string(), Some(lease)).await;
    }
    let mut taken = 0;
    let end = loop {
        match slow.next().await {
            Ok(changes) => {
                let value = changes[0].value.clone().unwrap();
                assert_eq!(
                    String::from_utf8_lossy(&value),
                    taken.to_string(),
                    "none is left out before the end"
                );
                taken += changes.len();
            }
            Err(error) => break error,
        }
    };
    assert_eq!(end, StoreError::Slow);
    assert!((1..2000).contains(&taken), "{taken}");
}

#[tokio::test]
async fn records_without_a_lease_outlive_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("registry.redb");
    {
        let store = Embedded::open(&path).unwrap();
        assert!(Embedded::open(&path).unwrap_err().to_string().ends_with("another broker uses it"));
        let lease = store.grant(Duration::from_secs(10)).await.unwrap();
        for key in ["kept", "deleted", "leased later"] {
            put(&store, key, "x", None).await;
        }
        put(&store, "leased", "x", Some(lease)).await;
        put(&store, "leased later", "y", Some(lease)).await;
        store.transact(Transaction::default().delete("deleted")).await.unwrap();
    }
    let store = Embedded::open(&path).unwrap();
    assert_eq!(keys(&store, "").await, ["kept"]);
    let before = store.range("").await.unwrap().revision;
    let mut watch = store.watch("", before + 1).await.unwrap();
    put(&store, "new", "x", None).await;
    assert_eq!(changes(&mut watch, 1).await, ["new=x"]);
}
