use std::num::NonZeroU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU32};

use isthmus_batch::{End, Estimate, JobId, NodeClass, State, Word};

use super::*;

/// A scheduler whose answers the test decides.
#[derive(Debug, Default)]
struct Scheduler {
    jobs: Mutex<Vec<(Job, State)>>,
    silent: AtomicBool,
    /// It takes the next job, and its answer is lost.
    loses_answer: AtomicBool,
    refuses: AtomicBool,
    /// No job can ever start.
    is_too_small: AtomicBool,
    cancelled: Mutex<Vec<Job>>,
    /// So many questions for a job are answered before it gets to the job.
    late: AtomicU32,
    written: Mutex<Option<String>>,
}

fn silent() -> BatchError {
    let (command, cluster, said) = ("squeue".to_owned(), "alpha".to_owned(), "no answer".to_owned());
    BatchError::Unreachable { command, cluster, said }
}

impl Scheduler {
    fn answers(&self) -> Result<(), BatchError> {
        if self.silent.load(Relaxed) { Err(silent()) } else { Ok(()) }
    }

    /// The only job has this state from now on.
    fn is(&self, state: State) {
        lock(&self.jobs)[0].1 = state;
    }
}

#[derive(Debug, Clone)]
struct TestBatch(Arc<Scheduler>);

impl Batch for TestBatch {
    async fn submit(&self, pilot: &BatchPilot) -> Result<Job, BatchError> {
        self.0.answers()?;
        if self.0.refuses.load(Relaxed) {
            let (command, cluster) = ("sbatch".to_owned(), "alpha".to_owned());
            return Err(BatchError::Refused { command, cluster, said: "no such partition".to_owned() });
        }
        assert!(pilot.script.contains("allocated") && pilot.secret.is_some());
        let mut jobs = lock(&self.0.jobs);
        let job = Job { id: JobId((jobs.len() + 1).to_string().parse().unwrap()), name: pilot.name.clone() };
        jobs.push((job.clone(), State::Pending { reason: String::new(), start: None }));
        if self.0.loses_answer.swap(false, Relaxed) { Err(silent()) } else { Ok(job) }
    }

    async fn find(&self, name: &Word) -> Result<Option<Job>, BatchError> {
        self.0.answers()?;
        if self.0.late.fetch_update(Relaxed, Relaxed, |late| late.checked_sub(1)).is_ok() {
            return Ok(None);
        }
        let jobs = lock(&self.0.jobs);
        let ended = |state: &State| matches!(state, State::Ended(_));
        Ok(jobs.iter().find(|(job, state)| job.name == *name && !ended(state)).map(|(job, _)| job.clone()))
    }

    async fn states(&self, asked: &[Job]) -> Result<Vec<State>, BatchError> {
        self.0.answers()?;
        let jobs = lock(&self.0.jobs);
        let state = |asked: &Job| jobs.iter().find(|(job, _)| job == asked).map(|(_, state)| state.clone());
        Ok(asked.iter().map(|job| state(job).unwrap_or(State::Unknown)).collect())
    }

    async fn estimate(&self, _: &Request) -> Result<Estimate, BatchError> {
        let reason = "more nodes than there are".to_owned();
        let is_too_small = self.0.is_too_small.load(Relaxed);
        Ok(if is_too_small { Estimate::Never { reason } } else { Estimate::Unknown { reason } })
    }

    async fn cancel(&self, job: &Job) -> Result<(), BatchError> {
        self.0.answers()?;
        lock(&self.0.cancelled).push(job.clone());
        Ok(())
    }

    fn written(&self, _: &Word) -> Option<String> {
        lock(&self.0.written).clone()
    }

    async fn forget(&self, _: &Word) -> Result<(), BatchError> {
        Ok(())
    }

    async fn capacity(&self) -> Result<Vec<NodeClass>, BatchError> {
        Ok(Vec::new())
    }
}

/// A grid that notes which tokens have ended.
#[derive(Debug, Clone, Default)]
struct TestGrid(Arc<Mutex<Vec<[u8; 16]>>>);

impl Grid for TestGrid {
    fn mint(&self, terms: Terms) -> Result<Minted, String> {
        assert_eq!(terms.nodes, 2);
        Ok(Minted { id: [9; 16], text: "token".to_owned() })
    }

    fn gateway(&self) -> Option<String> {
        Some("login1:7710".to_owned())
    }

    fn address(&self) -> Option<Ipv4Addr> {
        Some(Ipv4Addr::new(240, 64, 1, 2))
    }

    async fn end(&self, token: [u8; 16], _: SystemTime) -> Result<(), String> {
        lock(&self.0).push(token);
        Ok(())
    }
}

struct Stand {
    scheduler: Arc<Scheduler>,
    grid: TestGrid,
    directory: tempfile::TempDir,
}

impl Stand {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { scheduler: Arc::default(), grid: TestGrid::default(), directory }
    }

    fn keeper(&self) -> Arc<Keeper<TestBatch, TestGrid>> {
        let place = Place {
            cluster: "alpha".to_owned(),
            directory: self.directory.path().to_owned(),
            isthmus: "/usr/bin/isthmus".into(),
            submitter: "login1-ada.alpha".to_owned(),
        };
        let keeper = Keeper::new(TestBatch(self.scheduler.clone()), self.grid.clone(), place);
        let watching = keeper.clone();
        tokio::spawn(async move { watching.watch().await });
        keeper
    }

    /// Orders a pilot, whose job then runs on n1 and n2.
    async fn running(&self, keeper: &Arc<Keeper<TestBatch, TestGrid>>) -> Held {
        let mut held = keeper.order(ID, wanted(None)).unwrap();
        reach(&mut held, |status| matches!(status.phase, Phase::Waits { .. })).await;
        let hosts = vec!["n1".to_owned(), "n2".to_owned()];
        self.scheduler.is(State::Running { nodes: hosts, end: None });
        reach(&mut held, |status| matches!(status.phase, Phase::Runs { nodes: 2, .. })).await;
        held
    }

    /// Nothing of the pilot with the only job is left.
    fn is_clear(&self, cancelled: usize) {
        assert_eq!(lock(&self.scheduler.cancelled).len(), cancelled);
        assert_eq!(*lock(&self.grid.0), [[9; 16]]);
        assert_eq!(Record::all(self.directory.path()), []);
    }
}

fn wanted(wait: Option<Duration>) -> Wanted {
    Wanted { request: Request::of(NonZeroU32::new(2).unwrap()), wait }
}

const ID: PilotId = PilotId([7; 16]);

/// Waits for a phase.
async fn reach(held: &mut Held, want: impl Fn(&Status) -> bool) -> Status {
    loop {
        let status = held.status();
        if want(&status) {
            return status;
        }
        let next = tokio::time::timeout(Duration::from_secs(600), held.next()).await;
        assert!(matches!(next, Ok(Some(_))), "it stays at {status:?}");
    }
}

fn ended(status: &Status) -> bool {
    matches!(status.phase, Phase::Ended(_))
}

#[tokio::test(start_paused = true)]
async fn a_pilot_brings_its_nodes_and_ends_with_its_job() {
    let stand = Stand::new();
    let keeper = stand.keeper();
    let mut held = stand.running(&keeper).await;
    let node = |host: &str| Arrived { name: format!("{host}-ada-1.alpha"), host: host.to_owned() };
    assert_eq!(keeper.arrive(PilotId([8; 16]), node("n1")), Err(OrderError::Unknown));
    for (host, want) in [("n1", Ok(())), ("n2", Ok(())), ("n2", Ok(())), ("n3", Err(OrderError::Complete))] {
        assert_eq!(keeper.arrive(ID, node(host)), want, "{host}");
    }
    assert_eq!(held.status().arrived, [node("n1"), node("n2")]);
    stand.scheduler.is(State::Ended(End::TimeLimit));
    let status = reach(&mut held, ended).await;
    assert_eq!(status.phase, Phase::Ended(Why::Job(End::TimeLimit)));
    stand.is_clear(1);
    assert!(keeper.arrive(ID, node("n1")).is_err());
    // Whoever has held it gets no other in its place.
    assert!(matches!(keeper.held(ID), Err(OrderError::Unknown)));
}

#[tokio::test(start_paused = true)]
async fn a_pilot_that_nobody_wants_ends() {
    for (case, end) in [("it is said", true), ("its holder is gone", false)] {
        let stand = Stand::new();
        let keeper = stand.keeper();
        let mut held = keeper.order(ID, wanted(None)).unwrap();
        reach(&mut held, |status| matches!(status.phase, Phase::Waits { .. })).await;
        let mut status = held.pilot.status.subscribe();
        if end {
            held.end();
        } else {
            // Somebody who comes back in time has the same pilot.
            drop(held);
            tokio::time::sleep(UNHELD / 2).await;
            drop(keeper.order(ID, wanted(None)).unwrap());
        }
        let over = status.wait_for(ended);
        let over = tokio::time::timeout(2 * UNHELD, over).await.unwrap().unwrap().clone();
        assert_eq!(over.phase, Phase::Ended(Why::Unwanted), "{case}");
        stand.is_clear(1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_scheduler_without_an_answer_gets_one_job() {
    let stand = Stand::new();
    let keeper = stand.keeper();
    stand.scheduler.loses_answer.store(true, Relaxed);
    stand.scheduler.late.store(WITHOUT - 1, Relaxed);
    let mut held = keeper.order(ID, wanted(None)).unwrap();
    let status = reach(&mut held, |status| status.trouble.is_some()).await;
    assert!(status.trouble.unwrap().contains("no answer"));
    reach(&mut held, |status| matches!(status.phase, Phase::Waits { .. })).await;
    assert_eq!(lock(&stand.scheduler.jobs).len(), 1);

    // It falls silent while the pilot ends. The end is tried until it answers.
    stand.scheduler.silent.store(true, Relaxed);
    held.end();
    reach(&mut held, |status| matches!(status.phase, Phase::Ends(Why::Unwanted))).await;
    tokio::time::sleep(10 * AGAIN).await;
    assert!(!ended(&held.status()));
    stand.scheduler.silent.store(false, Relaxed);
    reach(&mut held, ended).await;
    // It is cancelled again: a scheduler may get to a second one late.
    stand.is_clear(1 + WITHOUT as usize);
}

#[tokio::test(start_paused = true)]
async fn nodes_of_which_nothing_is_heard_are_gone() {
    let stand = Stand::new();
    let keeper = stand.keeper();
    let mut held = stand.running(&keeper).await;
    let node = |host: &str| Arrived { name: format!("{host}-ada-p1.alpha"), host: host.to_owned() };
    keeper.arrive(ID, node("n1")).unwrap();
    keeper.arrive(ID, node("n2")).unwrap();
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(20)).await;
        keeper.arrive(ID, node("n1")).unwrap();
    }
    assert_eq!(held.status().arrived, [node("n1")]);

    *lock(&stand.scheduler.written) =
        Some("{\"failed\":{\"host\":\"n2\",\"reason\":\"no room\"}}\n".to_owned());
    stand.scheduler.is(State::Ended(End::Failed { status: 1, signal: 0 }));
    let status = reach(&mut held, ended).await;
    assert_eq!(status.phase.why().unwrap().to_string(), "no agent on n2: no room");
}

#[tokio::test(start_paused = true)]
async fn a_pilot_that_gets_no_nodes_says_why() {
    let stand = Stand::new();
    let keeper = stand.keeper();
    stand.scheduler.refuses.store(true, Relaxed);
    let mut held = keeper.order(ID, wanted(None)).unwrap();
    let status = reach(&mut held, ended).await;
    assert!(status.phase.why().unwrap().to_string().contains("no such partition"), "{status:?}");
    stand.is_clear(0);

    let stand = Stand::new();
    let keeper = stand.keeper();
    stand.scheduler.is_too_small.store(true, Relaxed);
    let mut held = keeper.order(ID, wanted(None)).unwrap();
    let status = reach(&mut held, ended).await;
    assert!(status.phase.why().unwrap().to_string().contains("more nodes than there are"), "{status:?}");
    assert!(lock(&stand.scheduler.jobs).is_empty());
    stand.is_clear(0);

    let stand = Stand::new();
    let keeper = stand.keeper();
    let mut held = keeper.order(ID, wanted(Some(Duration::from_secs(60)))).unwrap();
    let status = reach(&mut held, ended).await;
    assert_eq!(status.phase, Phase::Ended(Why::Late));
    stand.is_clear(1);
}

#[tokio::test(start_paused = true)]
async fn a_keeper_that_starts_again_goes_on() {
    let stand = Stand::new();
    let record = Record {
        id: ID,
        token: PilotId([9; 16]),
        token_expires: 0,
        nodes: 2,
        job: Some("1".to_owned()),
        arrived: Vec::new(),
    };
    record.write(stand.directory.path()).unwrap();
    let job = record.job().unwrap();
    lock(&stand.scheduler.jobs).push((job, State::Running { nodes: vec!["n1".to_owned()], end: None }));
    let keeper = stand.keeper();
    let mut held = keeper.order(ID, wanted(None)).unwrap();
    reach(&mut held, |status| matches!(status.phase, Phase::Runs { .. })).await;
    // The job is gone, and the scheduler doesn't know how it ended.
    lock(&stand.scheduler.jobs).clear();
    let status = reach(&mut held, ended).await;
    assert_eq!(status.phase, Phase::Ended(Why::Forgotten));
    stand.is_clear(1);
}
