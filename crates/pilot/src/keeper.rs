//! Brings pilots, watches and ends them. Each pilot has a task, which ends once nothing of the pilot
//! is left.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus_batch::{Batch, BatchError, End, Estimate, Job, Pilot as BatchPilot, Request, Secret};
use isthmus_identity::CLOCK_SKEW;
use isthmus_identity::pilot::{Minted, Terms};
use isthmus_service::clock::unix_seconds;
use isthmus_service::lock;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};
use tracing::{info, warn};

use crate::order::{self, Of, Order, script};
use crate::record::{PilotId, Record};
use crate::status::{Arrived, Phase, Status, Why};
use crate::watched::{Answer, Watched};

/// How long a pilot stays that nobody holds: who held it may have lost its connection.
const UNHELD: Duration = Duration::from_secs(30);
/// For how long a job must be unknown before it counts as gone. A scheduler that was started again
/// reads its jobs first.
const UNKNOWN: Duration = Duration::from_secs(60);
/// Pause before something is tried again that the scheduler or the grid hasn't answered.
const AGAIN: Duration = Duration::from_secs(5);
/// So many answers without the batch job say that a scheduler that was silent doesn't have it.
const WITHOUT: u32 = 3;
/// How long nothing may be heard of a node. It says every 20 s that it is there.
const SILENT: Duration = Duration::from_secs(75);
/// How long the nodes' certificates are valid beyond the time that the pilot asks for: schedulers let
/// jobs end their processes, and administrators give them more time.
const GRACE: Duration = Duration::from_secs(600);
/// For how long a pilot may wait, and run, that sets no limit.
const UNLIMITED: Duration = Duration::from_secs(30 * 24 * 3600);
/// Most pilots at one time.
pub const MOST: usize = 1000;

/// What pilots need of the grid.
pub trait Grid: Send + Sync + 'static {
    /// Mints a token for a pilot's nodes.
    ///
    /// # Errors
    /// Why this agent can't.
    fn mint(&self, terms: Terms) -> Result<Minted, String>;

    /// The gateway at which the nodes enrol and attach, `HOST:PORT`.
    fn gateway(&self) -> Option<String>;

    /// The virtual address of this node; `None` before it has been attached.
    fn address(&self) -> Option<Ipv4Addr>;

    /// Has the grid end the nodes that have joined by a token, and the token.
    ///
    /// # Errors
    /// Why the grid hasn't: then this is called again.
    fn end(&self, token: [u8; 16], expires: SystemTime) -> impl Future<Output = Result<(), String>> + Send;
}

/// A pilot that somebody wants.
#[derive(Debug, Clone)]
pub struct Wanted {
    /// What the scheduler is asked for.
    pub request: Request,
    /// How long the pilot may wait for its nodes; `None` for as long as it takes.
    pub wait: Option<Duration>,
}

/// Why there is no pilot.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum OrderError {
    /// There are as many as there may be.
    #[error("this agent has {MOST} pilots already")]
    TooMany,
    /// It has ended, or is to end.
    #[error("the pilot is ending: {0}")]
    Ends(Why),
    /// There is no pilot of this id.
    #[error("there is no such pilot here: it has ended, or never was")]
    Unknown,
    /// More nodes arrive than the pilot asked for.
    #[error("all nodes of the pilot are there already")]
    Complete,
    /// The pilot can't be noted on disk.
    #[error("{0}")]
    Unkept(String),
}

/// Where the pilots of one user at one scheduler come from.
#[derive(Debug)]
pub struct Keeper<B, G> {
    batch: B,
    grid: G,
    /// Where they run.
    place: Place,
    pilots: Mutex<HashMap<PilotId, Arc<Pilot>>>,
    watched: Watched,
}

/// What all pilots of a keeper share.
#[derive(Debug, Clone)]
pub struct Place {
    /// The cluster's name; may be empty.
    pub cluster: String,
    /// Where records of pilots are kept: a directory of this user's.
    pub directory: PathBuf,
    /// The `isthmus` binary, as the nodes see it.
    pub isthmus: PathBuf,
    /// The name of this node in the grid.
    pub submitter: String,
}

/// A pilot.
#[derive(Debug)]
struct Pilot {
    id: PilotId,
    status: watch::Sender<Status>,
    wish: watch::Sender<Wish>,
    record: Mutex<Record>,
    /// Whether there may be a batch job whose number isn't known.
    doubt: Mutex<Doubt>,
    /// When each node was heard of last, by its host.
    heard: Mutex<HashMap<String, Instant>>,
}

/// Whether a scheduler may have a batch job whose number isn't known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doubt {
    /// It has none.
    None,
    /// It was asked for one, and has answered or is to.
    Submitting,
    /// It didn't answer, and may still get to it.
    Late,
}

/// Who wants a pilot.
#[derive(Debug, Clone, Copy)]
struct Wish {
    /// How many hold it.
    holders: u32,
    /// Since when nobody does.
    unheld: Instant,
    /// Whether one of them has said that it is to end.
    end: bool,
}

/// The right to a pilot, which lasts a little longer than the last one that is held.
#[derive(Debug)]
pub struct Held {
    pilot: Arc<Pilot>,
    status: watch::Receiver<Status>,
    look: Arc<Notify>,
}

impl Held {
    /// What is known of the pilot.
    pub fn status(&self) -> Status {
        self.status.borrow().clone()
    }

    /// Waits until more is known of the pilot, and returns that; `None` once nothing further comes.
    pub async fn next(&mut self) -> Option<Status> {
        self.status.changed().await.ok()?;
        Some(self.status.borrow_and_update().clone())
    }

    /// Ends the pilot.
    pub fn end(&self) {
        self.pilot.wish.send_modify(|wish| wish.end = true);
    }

    /// Has the scheduler asked at once.
    pub fn look(&self) {
        self.look.notify_one();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.pilot.wish.send_modify(|wish| {
            wish.holders = wish.holders.saturating_sub(1);
            wish.unheld = Instant::now();
        });
    }
}

impl Pilot {
    fn new(record: Record, doubt: Doubt) -> Arc<Self> {
        let arrived = record.arrived.clone();
        let status = Status { job: record.job(), arrived, ..Status::default() };
        let wish = Wish { holders: 0, unheld: Instant::now(), end: false };
        let now = Instant::now();
        let heard = record.arrived.iter().map(|node| (node.host.clone(), now)).collect();
        Arc::new(Self {
            id: record.id,
            status: watch::Sender::new(status),
            wish: watch::Sender::new(wish),
            record: Mutex::new(record),
            doubt: Mutex::new(doubt),
            heard: Mutex::new(heard),
        })
    }

    fn doubt(&self, doubt: Doubt) {
        *lock(&self.doubt) = doubt;
    }

    fn hold(self: &Arc<Self>, look: &Arc<Notify>) -> Held {
        self.wish.send_modify(|wish| wish.holders += 1);
        Held { pilot: self.clone(), status: self.status.subscribe(), look: look.clone() }
    }

    /// Changes what is known. Who holds the pilot is told if it is something else.
    fn know(&self, change: impl FnOnce(&mut Status)) {
        self.status.send_if_modified(|status| {
            let former = status.clone();
            change(status);
            *status != former
        });
    }

    fn trouble(&self, reason: String) {
        self.know(|status| status.trouble = Some(reason));
    }

    /// Waits until nobody wants the pilot.
    async fn unwanted(&self) {
        let mut wishes = self.wish.subscribe();
        loop {
            let Wish { holders, unheld, end } = *wishes.borrow_and_update();
            if end {
                return;
            }
            tokio::select! {
                Ok(()) = wishes.changed() => {}
                () = sleep_until(unheld + UNHELD), if holders == 0 => return,
            }
        }
    }

    /// Notes on disk what is known.
    fn note(&self, directory: &Path, change: impl FnOnce(&mut Record)) -> Result<(), OrderError> {
        let mut record = lock(&self.record);
        change(&mut record);
        record.write(directory).map_err(|error| OrderError::Unkept(error.to_string()))
    }
}

impl<B, G> Keeper<B, G>
where
    B: Batch + Send + Sync + 'static,
    G: Grid,
{
    /// A keeper, which ends the pilots that an earlier one has left, unless somebody asks for them
    /// soon.
    pub fn new(batch: B, grid: G, place: Place) -> Arc<Self> {
        let records = Record::all(&place.directory);
        let keeper =
            Arc::new(Self { batch, grid, place, pilots: Mutex::default(), watched: Watched::default() });
        for record in records {
            info!(pilot = %record.id, "a pilot is left from before");
            let doubt = if record.job.is_some() { Doubt::Submitting } else { Doubt::Late };
            let pilot = Pilot::new(record, doubt);
            lock(&keeper.pilots).insert(pilot.id, pilot.clone());
            tokio::spawn(keeper.clone().live(pilot, None));
        }
        keeper
    }

    /// The scheduler.
    pub fn batch(&self) -> &B {
        &self.batch
    }

    /// Watches the scheduler. To be run as long as the keeper is used. Never returns.
    pub async fn watch(&self) -> Infallible {
        self.watched.ask(&self.batch).await
    }

    /// The pilot of this id: a new one, or the one that is there.
    ///
    /// # Errors
    /// [`OrderError`] says why there is none. Why the scheduler doesn't take one, its status says.
    pub fn order(self: &Arc<Self>, id: PilotId, wanted: Wanted) -> Result<Held, OrderError> {
        let mut pilots = lock(&self.pilots);
        if let Some(pilot) = pilots.get(&id) {
            return self.hold(pilot);
        }
        if pilots.len() >= MOST {
            return Err(OrderError::TooMany);
        }
        let run = wanted.request.time.unwrap_or(UNLIMITED).saturating_add(GRACE);
        // The broker judges by its own clock.
        let lasts = wanted.wait.unwrap_or(UNLIMITED).min(UNLIMITED) + run.min(UNLIMITED);
        let expires = SystemTime::now() + lasts + CLOCK_SKEW;
        let terms = Terms { nodes: wanted.request.nodes.get(), expires, life: run };
        let minted = self.grid.mint(terms).map_err(OrderError::Unkept)?;
        let record = Record {
            id,
            token: PilotId(minted.id),
            token_expires: unix_seconds(expires),
            nodes: wanted.request.nodes.get(),
            job: None,
            arrived: Vec::new(),
        };
        // Before there is a batch job, so that a restart finds it.
        record.write(&self.place.directory).map_err(|error| OrderError::Unkept(error.to_string()))?;
        let pilot = Pilot::new(record, Doubt::None);
        let held = pilot.hold(self.watched.look());
        pilots.insert(id, pilot.clone());
        tokio::spawn(self.clone().live(pilot, Some((wanted, minted))));
        Ok(held)
    }

    /// Goes on with a pilot.
    ///
    /// # Errors
    /// There is no such pilot any more, or it is ending.
    pub fn held(&self, id: PilotId) -> Result<Held, OrderError> {
        let pilot = lock(&self.pilots).get(&id).cloned().ok_or(OrderError::Unknown)?;
        self.hold(&pilot)
    }

    fn hold(&self, pilot: &Arc<Pilot>) -> Result<Held, OrderError> {
        match pilot.status.borrow().phase.why() {
            Some(why) => Err(OrderError::Ends(why.clone())),
            None => Ok(pilot.hold(self.watched.look())),
        }
    }

    /// A node of a pilot is there, or still there.
    ///
    /// # Errors
    /// If there is no such pilot, or it has all its nodes.
    pub fn arrive(&self, id: PilotId, node: Arrived) -> Result<(), OrderError> {
        let pilot = lock(&self.pilots).get(&id).cloned().ok_or(OrderError::Unknown)?;
        if let Some(why) = pilot.status.borrow().phase.why() {
            return Err(OrderError::Ends(why.clone()));
        }
        lock(&pilot.heard).insert(node.host.clone(), Instant::now());
        if pilot.status.borrow().arrived.contains(&node) {
            return Ok(());
        }
        let mut known = Ok(());
        pilot.note(&self.place.directory, |record| {
            // A host's agent that was started again has the same name or another one.
            record.arrived.retain(|other| other.host != node.host);
            if record.arrived.len() < record.nodes as usize {
                record.arrived.push(node);
            } else {
                known = Err(OrderError::Complete);
            }
        })?;
        known?;
        let arrived = lock(&pilot.record).arrived.clone();
        pilot.know(|status| status.arrived = arrived);
        Ok(())
    }

    /// A pilot's life.
    async fn live(self: Arc<Self>, pilot: Arc<Pilot>, ordered: Option<(Wanted, Minted)>) {
        let why = self.until_end(&pilot, ordered).await;
        info!(pilot = %pilot.id, %why, "a pilot ends");
        pilot.know(|status| status.phase = Phase::Ends(why.clone()));
        tokio::join!(self.end_job(&pilot), self.end_nodes(&pilot));
        lock(&self.pilots).remove(&pilot.id);
        Record::remove(&self.place.directory, pilot.id);
        pilot.know(|status| (status.phase, status.trouble) = (Phase::Ended(why), None));
    }

    /// Follows a pilot until it has ended or is to end.
    async fn until_end(&self, pilot: &Pilot, ordered: Option<(Wanted, Minted)>) -> Why {
        let deadline = ordered.as_ref().and_then(|(wanted, _)| Some(Instant::now() + wanted.wait?));
        // A command that submits is never dropped: it may have submitted.
        let job = match self.job(pilot, ordered, deadline).await {
            Ok(job) => job,
            Err(why) => return why,
        };
        let number = job.id.to_string();
        if let Err(error) = pilot.note(&self.place.directory, |record| record.job = Some(number)) {
            return Why::Unsubmitted(error.to_string());
        }
        pilot.know(|status| (status.job, status.trouble) = (Some(job.clone()), None));
        let mut answers = self.watched.watch(job);
        let mut unknown: Option<Instant> = None;
        loop {
            self.drop_silent(pilot);
            let waits = matches!(pilot.status.borrow().phase, Phase::Submitting | Phase::Waits { .. });
            tokio::select! {
                () = pilot.unwanted() => return Why::Unwanted,
                () = until(deadline), if waits => return Why::Late,
                Ok(()) = answers.changed() => {}
                () = sleep(AGAIN) => continue,
            }
            let state = match answers.borrow_and_update().clone() {
                Some(Answer::State(state)) => state,
                Some(Answer::Silent(reason)) => {
                    pilot.trouble(reason);
                    continue;
                }
                None => continue,
            };
            unknown = (state == isthmus_batch::State::Unknown).then(|| unknown.unwrap_or_else(Instant::now));
            let long = unknown.is_some_and(|since| since.elapsed() >= UNKNOWN);
            pilot.know(|status| {
                status.trouble = None;
                status.answers += 1;
                status.phase = std::mem::take(&mut status.phase).after(state, long);
            });
            let ended = pilot.status.borrow().phase.why().cloned();
            match ended {
                Some(Why::Job(End::Failed { status, signal })) => return self.failed(pilot, status, signal),
                Some(why) => return why,
                None => {}
            }
        }
    }

    /// Why a pilot has failed, if one of its nodes has written that.
    fn failed(&self, pilot: &Pilot, status: u8, signal: u8) -> Why {
        let written = pilot.id.job_name().ok().and_then(|name| self.batch.written(&name));
        match written.as_deref().and_then(order::failure) {
            Some((host, reason)) => Why::Node { host, reason },
            None => Why::Job(End::Failed { status, signal }),
        }
    }

    /// Nodes of which nothing is heard any more aren't there.
    fn drop_silent(&self, pilot: &Pilot) {
        let silent = |host: &str| lock(&pilot.heard).get(host).is_none_or(|heard| heard.elapsed() >= SILENT);
        if !pilot.status.borrow().arrived.iter().any(|node| silent(&node.host)) {
            return;
        }
        let dropped =
            pilot.note(&self.place.directory, |record| record.arrived.retain(|node| !silent(&node.host)));
        if let Err(error) = dropped {
            warn!(pilot = %pilot.id, %error, "cannot note that a node of a pilot is gone");
        }
        let arrived = lock(&pilot.record).arrived.clone();
        pilot.know(|status| status.arrived = arrived);
    }

    /// The batch job of a pilot: the one that it has, or a new one.
    async fn job(
        &self,
        pilot: &Pilot,
        ordered: Option<(Wanted, Minted)>,
        deadline: Option<Instant>,
    ) -> Result<Job, Why> {
        let known = lock(&pilot.record).job();
        if let Some(job) = known {
            return Ok(job);
        }
        let Some((wanted, minted)) = ordered else {
            // The agent was started again while it submitted. The order is gone.
            return Err(Why::Unsubmitted("its agent was started again meanwhile".to_owned()));
        };
        let unsubmitted = |reason: &dyn std::fmt::Display| Why::Unsubmitted(reason.to_string());
        let name = pilot.id.job_name().map_err(|error| unsubmitted(&error))?;
        // Schedulers take jobs that never start, and let them wait.
        let estimate = tokio::select! {
            estimate = self.batch.estimate(&wanted.request) => estimate,
            () = pilot.unwanted() => return Err(Why::Unwanted),
            () = until(deadline) => return Err(Why::Late),
        };
        if let Ok(Estimate::Never { reason }) = estimate {
            return Err(Why::Unsubmitted(format!("it can't start as things are: {reason}")));
        }
        let order = self.told(pilot.id, minted).map_err(|reason| unsubmitted(&reason))?;
        let batch_pilot = BatchPilot {
            name: name.clone(),
            request: wanted.request,
            script: script(&self.place.isthmus),
            secret: Some(Secret::new(order)),
        };
        loop {
            pilot.doubt(Doubt::Submitting);
            let mut error = match self.batch.submit(&batch_pilot).await {
                Ok(job) => return Ok(job),
                Err(error) if error.is_unreachable() => error,
                Err(error) => {
                    pilot.doubt(Doubt::None);
                    return Err(unsubmitted(&error));
                }
            };
            // It may have the job all the same, or get to it once it answers again. Only several answers
            // without the job say that it has not.
            pilot.doubt(Doubt::Late);
            let mut without = 0;
            while without < WITHOUT {
                pilot.trouble(error.to_string());
                tokio::select! {
                    () = pilot.unwanted() => return Err(Why::Unwanted),
                    () = until(deadline) => return Err(Why::Late),
                    () = sleep(AGAIN) => {}
                }
                match self.batch.find(&name).await {
                    Ok(Some(job)) => return Ok(job),
                    Ok(None) => without += 1,
                    Err(other) => (without, error) = (0, other),
                }
            }
        }
    }

    /// What the nodes of a pilot are told.
    fn told(&self, id: PilotId, minted: Minted) -> Result<Vec<u8>, String> {
        let attached = self.grid.gateway().zip(self.grid.address());
        let (gateway, address) = attached.ok_or("this agent isn't attached to its gateway")?;
        let order = Order {
            cluster: self.place.cluster.clone(),
            state: None,
            token: Some(minted.text),
            via: Some(gateway),
            tethered: false,
            pilot: Some(Of { id, submitter: self.place.submitter.clone(), address }),
        };
        serde_json::to_vec(&order).map_err(|error| error.to_string())
    }

    /// Ends the batch job, if there is one.
    async fn end_job(&self, pilot: &Pilot) {
        let doubt = *lock(&pilot.doubt);
        // A scheduler that was silent while the pilot was submitted may get to it later.
        let mut left = if doubt == Doubt::Late { WITHOUT } else { 0 };
        loop {
            match self.end_job_once(pilot, doubt).await {
                Ok(()) if left == 0 => return,
                Ok(()) => left -= 1,
                Err(error) => {
                    warn!(pilot = %pilot.id, %error, "cannot end the batch job of a pilot");
                    pilot.trouble(error.to_string());
                }
            }
            sleep(AGAIN).await;
        }
    }

    async fn end_job_once(&self, pilot: &Pilot, doubt: Doubt) -> Result<(), BatchError> {
        let name = pilot.id.job_name().map_err(|error| BatchError::Request { what: error.to_string() })?;
        let known = lock(&pilot.record).job();
        let job = match (known, doubt) {
            (None, Doubt::Submitting | Doubt::Late) => self.batch.find(&name).await?,
            (known, _) => known,
        };
        match job {
            Some(job) => self.batch.cancel(&job).await,
            None => self.batch.forget(&name).await,
        }
    }

    /// Ends the nodes' memberships.
    async fn end_nodes(&self, pilot: &Pilot) {
        let (token, expires) = {
            let record = lock(&pilot.record);
            (record.token.0, UNIX_EPOCH + Duration::from_secs(record.token_expires))
        };
        while let Err(reason) = self.grid.end(token, expires).await {
            warn!(pilot = %pilot.id, reason, "the grid hasn't ended the nodes of a pilot yet");
            sleep(AGAIN).await;
        }
    }
}

/// Waits until a time, for ever if there is none.
async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests;
