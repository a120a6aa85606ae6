//! Pools over sockets, with all members in one process.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "helpers of tests fail the test")]

use std::collections::HashSet;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use isthmus_pool::{End, Pool, PoolError, Worker};
use isthmus_workers::Finished;

/// Longer than anything here takes.
const LONG: Option<Duration> = Some(Duration::from_secs(60));

fn pool(options: &str) -> Pool {
    Pool::begin(&format!("host=127.0.0.1\n{options}"), Bytes::from_static(b"setup")).unwrap()
}

fn reversed(bytes: &[u8]) -> Bytes {
    bytes.iter().rev().copied().collect::<Vec<_>>().into()
}

/// A worker at a place. It gives its arguments back in reverse, or an error if they begin with `!`. It
/// leaves after so many tasks, with the last one unfinished.
fn worker(ticket: &str, place: &str, tasks: usize) -> JoinHandle<usize> {
    let worker = Worker::join(ticket, &format!("places={place}")).unwrap();
    std::thread::spawn(move || {
        assert_eq!(worker.setup().unwrap(), b"setup"[..]);
        for run in 0..tasks {
            let Ok(found) = worker.task(LONG) else { return run };
            let (id, arguments) = found.expect("a task in time");
            if run + 1 == tasks {
                return run;
            }
            worker.done(id, arguments.starts_with(b"!"), reversed(&arguments)).unwrap();
        }
        tasks
    })
}

/// Takes so many results, and checks that they are of different tasks.
fn results(pool: &Pool, count: usize) -> Vec<(u64, Finished)> {
    let mut seen = HashSet::new();
    (0..count)
        .map(|_| {
            let (id, found) = pool.next(LONG).unwrap().expect("a result in time");
            assert!(seen.insert(id), "two results of {id:?}");
            (id.0, found)
        })
        .collect()
}

#[test]
fn tasks_and_their_results() {
    let pool = pool("flat_below=0");
    let workers: Vec<_> =
        (0..9).map(|at| worker(pool.ticket(), ["alpha/n1", "beta/n1"][at % 2], usize::MAX)).collect();
    let arguments = |id: u64| match id % 100 {
        0 => vec![id as u8; 300_000],
        1 => b"!wrong".to_vec(),
        _ => id.to_be_bytes().to_vec(),
    };
    for id in 0..3000 {
        assert_eq!(pool.submit(arguments(id).into()).unwrap().0, id);
    }
    for (id, found) in results(&pool, 3000) {
        let result = reversed(&arguments(id));
        let want = if id % 100 == 1 { Finished::Failed(result) } else { Finished::Done(result) };
        assert_eq!(found, want, "{id}");
    }
    let counts = pool.counts();
    assert_eq!((counts.done, counts.again, counts.members), (3000, 0, 9));
    let sites = pool.sites();
    assert_eq!(
        sites.values().map(|site| (site.done, site.workers)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
        (3000, 9)
    );
    assert!(sites.values().all(|site| site.done > 0), "{sites:?}");
    pool.end();
    assert_eq!(workers.into_iter().map(|worker| worker.join().unwrap()).sum::<usize>(), 3000);
    assert_eq!(pool.next(LONG), Err(End::Over));
    assert!(matches!(pool.submit(Bytes::new()), Err(PoolError::Ended(End::Over))));
}

#[test]
fn workers_that_leave_in_the_middle() {
    let pool = pool("flat_below=0\nattempts=1000");
    let tasks = 6000;
    for id in 0..tasks {
        pool.submit(u64::to_be_bytes(id).to_vec().into()).unwrap();
    }
    let ticket = pool.ticket().to_owned();
    let feeder = std::thread::spawn(move || {
        let mut random = fastrand::Rng::with_seed(4);
        let mut workers = Vec::new();
        for at in 0..120 {
            let tasks = if at % 10 == 9 { usize::MAX } else { random.usize(1..60) };
            workers.push(worker(&ticket, ["alpha/n1", "alpha/n2", "beta/n1"][at % 3], tasks));
        }
        workers
    });
    let found = results(&pool, tasks as usize);
    assert!(found.iter().all(|(id, found)| *found == Finished::Done(reversed(&id.to_be_bytes()))));
    let workers = feeder.join().unwrap();
    assert!(pool.counts().lost > 50, "{:?}", pool.counts());
    pool.end();
    for worker in workers {
        worker.join().unwrap();
    }
}

/// Nobody would tell them later that the pool is over.
#[test]
fn the_end_waits_for_workers_that_have_yet_to_join() {
    let pool = std::sync::Arc::new(pool("expects=2"));
    let ender = std::thread::spawn({
        let pool = pool.clone();
        move || pool.end()
    });
    let first = worker(pool.ticket(), "alpha/n1", usize::MAX);
    while pool.counts().members == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(pool.why(), None, "one hasn't joined");
    let second = worker(pool.ticket(), "alpha/n1", usize::MAX);
    assert_eq!([first, second].map(|worker| worker.join().unwrap()), [0, 0]);
    ender.join().unwrap();
    assert_eq!(pool.why(), Some(End::Over));

    let impatient = self::pool("expects=1\npatience_s=0");
    impatient.end();
    assert_eq!(impatient.why(), Some(End::Over));
}

#[test]
fn who_does_not_know_the_key_gets_nothing() {
    let pool = pool("");
    let address = pool.ticket().rsplit_once(':').unwrap().0.to_owned();
    let wrong = format!("{address}:{}", "ab".repeat(32));
    assert!(matches!(Worker::join(&wrong, "").unwrap().setup(), Err(End::Gone(_))));
    // One that says nothing, and one that says something else: neither is in the way.
    let silent = TcpStream::connect(&address).unwrap();
    let mut other = TcpStream::connect(&address).unwrap();
    other.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    assert_eq!(other.read(&mut [0; 100]).unwrap(), 0, "it is closed without a word");
    let worker = worker(pool.ticket(), "alpha/n1", usize::MAX);
    pool.submit(Bytes::from_static(b"abc")).unwrap();
    assert_eq!(results(&pool, 1), [(0, Finished::Done(Bytes::from_static(b"cba")))]);
    drop(silent);
    pool.end();
    worker.join().unwrap();
}

#[test]
fn a_master_that_is_gone() {
    let pool = pool("");
    let ticket = pool.ticket().to_owned();
    let worker = Worker::join(&ticket, "").unwrap();
    worker.setup().unwrap();
    drop(pool);
    assert_eq!(worker.task(LONG), Err(End::Over));
    let key = ticket.rsplit_once(':').unwrap().1;
    let error = Worker::join(&format!("127.0.0.1:1:{key}"), "patience_s=0").unwrap_err().to_string();
    assert!(error.starts_with("cannot reach the pool's master at 127.0.0.1:1: "), "{error}");
    assert!(!error.contains(key), "the key isn't shown");
}

#[test]
fn tasks_that_are_taken_back() {
    let pool = pool("slots=1");
    let ids: Vec<_> = (0..3).map(|_| pool.submit(Bytes::new()).unwrap()).collect();
    let (first, _) = pool.task(LONG).unwrap().unwrap();
    assert_eq!(first, ids[0]);
    assert!(pool.cancel(ids[2]) && !pool.cancel(ids[2]) && !pool.cancel(ids[0]));
    for id in &ids[..2] {
        pool.done(*id, false, Bytes::new()).unwrap();
        results(&pool, 1);
    }
    assert_eq!(pool.next(Some(Duration::from_millis(50))), Ok(None));
}

#[test]
fn wrong_options_are_told() {
    for (options, want) in [
        ("colour=red", "there is no option `colour`"),
        ("slots=x", "option `slots` can't be `x`"),
        ("key=12", "this is no pool's ticket"),
    ] {
        let error = Pool::begin(options, Bytes::new()).unwrap_err().to_string();
        assert!(error.starts_with(want), "{error}");
    }
    assert!(Worker::join("nothing", "").is_err());
}
