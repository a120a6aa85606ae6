//! Jobs whose programs connect with those of another job.
//!
//! A run that joins a job is a job of its own: it has its own nodes and its own end. Both jobs have the
//! same head, which tells each of the other. Further runs that join are partners as well, of all that
//! are there. A connection between partners is one of the acceptor's job: it has that job's id and token.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use isthmus_rpc::grpc;
use isthmus_service::lock;
use isthmus_service::mac::Secret;
use isthmus_wire::settings::Host;
use isthmus_wire::{GridName, JobId, proto};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use crate::jobs::calls;
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::peers::{parse_job, parse_nodes};
use crate::jobs::tree;

/// Most partners of a job.
const MOST: usize = 256;
/// How long a node may take to answer that it knows the partners of a job.
const TELLING: Duration = Duration::from_secs(5);
/// The pause before a node is told again. It doubles with each further failure, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A job whose programs connect with those of another one.
#[derive(Debug)]
pub(crate) struct Partner {
    pub job: JobId,
    pub token: Secret,
    /// The nodes on which its programs run.
    pub nodes: Vec<Host>,
    /// Cancelled once it is no partner any more.
    pub gone: CancellationToken,
}

impl Partner {
    fn new(job: JobId, token: Secret, nodes: Vec<Host>) -> Self {
        Self { job, token, nodes, gone: CancellationToken::new() }
    }

    /// # Errors
    /// `INVALID_ARGUMENT` if an id, a token, a name or an address is invalid.
    fn read(message: &proto::JobPartner) -> Result<Self, Status> {
        let token = Secret::from_slice(&message.token)
            .ok_or_else(|| Status::invalid_argument("a partner's token is not 32 bytes"))?;
        Ok(Self::new(parse_job(&message.job)?, token, parse_nodes(&message.nodes)?))
    }

    fn message(&self) -> proto::JobPartner {
        let node = |host: &Host| proto::JobNode {
            name: host.name.to_string(),
            virtual_address: host.address.ip().into(),
            slots: 0,
        };
        proto::JobPartner {
            job: self.job.to_string(),
            token: self.token.expose().to_vec(),
            nodes: self.nodes.iter().map(node).collect(),
        }
    }
}

/// All partners of a job. The number grows with each change.
#[derive(Debug, Clone, Default)]
struct List {
    number: u64,
    all: Vec<Arc<Partner>>,
}

/// The partners of a job, as far as this node knows. The head decides; each other node is told by the
/// node that holds it.
#[derive(Debug, Default)]
pub(crate) struct Partners(watch::Sender<List>);

impl Partners {
    pub(crate) fn new(all: Vec<Arc<Partner>>) -> Self {
        Self(watch::Sender::new(List { number: 0, all }))
    }

    /// Reads the partners that a job has when it begins.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if a partner is invalid, or there are too many.
    pub(crate) fn read(message: Option<proto::PartnerList>) -> Result<Self, Status> {
        Ok(Self(watch::Sender::new(read(&message.unwrap_or_default())?)))
    }

    pub(crate) fn message(&self) -> proto::PartnerList {
        let List { number, all } = &*self.0.borrow();
        proto::PartnerList { number: *number, partners: all.iter().map(|one| one.message()).collect() }
    }

    pub(crate) fn all(&self) -> Vec<Arc<Partner>> {
        self.0.borrow().all.clone()
    }

    /// The partner on one of whose nodes programs have this address, and that node's name.
    pub(crate) fn at(&self, address: Ipv4Addr) -> Option<(Arc<Partner>, GridName)> {
        let list = self.0.borrow();
        let mut found = list.all.iter().filter_map(|partner| {
            let host = partner.nodes.iter().find(|host| host.address.ip() == address)?;
            Some((Arc::clone(partner), host.name.clone()))
        });
        found.next()
    }

    /// Changes the partners. Returns those that are partners no more.
    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Partner>>)) -> Vec<Arc<Partner>> {
        let mut gone = Vec::new();
        self.0.send_modify(|list| {
            let former = list.all.clone();
            change(&mut list.all);
            list.number += 1;
            gone = without(former, &list.all);
        });
        gone
    }

    /// Takes in a list unless a later one has come before. Returns the partners that are none any more;
    /// `None` if the list isn't taken.
    fn take(&self, list: List) -> Option<Vec<Arc<Partner>>> {
        let mut gone = None;
        self.0.send_if_modified(|own| {
            if list.number <= own.number {
                return false;
            }
            let former = std::mem::replace(own, list);
            // What still is a partner stays the same one: connections to it are being made.
            for partner in &mut own.all {
                if let Some(same) = former.all.iter().find(|same| same.job == partner.job) {
                    *partner = Arc::clone(same);
                }
            }
            gone = Some(without(former.all, &own.all));
            true
        });
        gone
    }
}

/// Those of the former partners that aren't among these.
fn without(mut former: Vec<Arc<Partner>>, now: &[Arc<Partner>]) -> Vec<Arc<Partner>> {
    former.retain(|one| !now.iter().any(|partner| partner.job == one.job));
    former
}

/// # Errors
/// `INVALID_ARGUMENT` if a partner is invalid, or there are too many.
fn read(message: &proto::PartnerList) -> Result<List, Status> {
    if message.partners.len() > MOST {
        return Err(Status::invalid_argument(format!("more than {MOST} partners of a job")));
    }
    let all = message.partners.iter().map(|message| Partner::read(message).map(Arc::new));
    Ok(List { number: message.number, all: all.collect::<Result<_, _>>()? })
}

/// Where a program's connection leads: to a node of the job, or of a partner.
#[derive(Debug, Clone)]
pub(crate) struct Acceptor {
    pub name: GridName,
    /// `None` for the program's own job.
    pub partner: Option<Arc<Partner>>,
}

impl Acceptor {
    /// The job that the connection is of, and its token.
    pub(crate) fn job<'a>(&'a self, own: &'a Job) -> (JobId, &'a Secret) {
        self.partner.as_ref().map_or((own.id, &own.token), |partner| (partner.job, &partner.token))
    }

    /// Returns once the node takes part no more, as its run has ended. Never for the own job's nodes.
    pub(crate) async fn left(&self) {
        match &self.partner {
            Some(partner) => partner.gone.cancelled().await,
            None => std::future::pending().await,
        }
    }
}

/// A job that a run has joined.
#[derive(Debug, Clone)]
pub(crate) struct Joined {
    pub job: JobId,
    /// The first of its nodes on which its program runs.
    pub leader: String,
}

/// The job that was started on this node and has an id that begins like this. One that has itself
/// joined another one stands for that.
///
/// # Errors
/// `NOT_FOUND` if there is none; `INVALID_ARGUMENT` if there are several.
fn to_join(node: &Node, id: &str) -> Result<Arc<Job>, Status> {
    let mut found: Vec<_> = node
        .jobs()
        .into_iter()
        .filter(|job| tree::is_head(&job.members.nodes, node.name()) && job.id.to_string().starts_with(id))
        .collect();
    let Some(job) = found.pop() else {
        return Err(Status::not_found(format!(
            "no job {id} was started on {}; a run joins a job on the node on which that was started (isthmus jobs)",
            node.name()
        )));
    };
    if !found.is_empty() {
        return Err(Status::invalid_argument(format!("the ids of several jobs begin with {id}")));
    }
    match &job.joined {
        Some(root) => {
            node.job(root.job).ok_or_else(|| Status::not_found(format!("job {} has ended", root.job)))
        }
        None => Ok(job),
    }
}

/// A job and all runs that have joined it, the job first. This node is the head of all of them.
fn together(node: &Node, root: JobId) -> Vec<Arc<Job>> {
    let is_joined = |job: &Job| job.joined.as_ref().is_some_and(|joined| joined.job == root);
    let mut all = node.jobs();
    all.retain(|job| job.id == root || is_joined(job));
    all.sort_by_key(|job| job.joined.is_some());
    all
}

/// Finds the job that a run joins with these nodes, the head first. Returns it, and the partners that
/// the run begins with. The caller holds [`Node::joining`] until the run is [`added`](add).
///
/// # Errors
/// If there is no such job, or one of the nodes takes part already, or too many runs have joined.
pub(crate) fn find(node: &Node, id: &str, nodes: &[proto::JobNode]) -> Result<(Arc<Job>, Partners), Status> {
    let root = to_join(node, id)?;
    if let Some(head) = nodes.first().filter(|head| head.slots > 0) {
        // The head is the joined job's.
        return Err(takes_part(&head.name, &root));
    }
    let mut partners = Vec::new();
    for job in together(node, root.id) {
        let partner = as_partner(&job);
        let takes_part_here = |new: &&proto::JobNode| {
            partner.nodes.iter().any(|host| u32::from(host.address.ip()) == new.virtual_address)
        };
        if let Some(new) = nodes.iter().skip(1).find(takes_part_here) {
            return Err(takes_part(&new.name, &job));
        }
        partners.push(Arc::new(partner));
    }
    if partners.len() >= MOST {
        return Err(Status::resource_exhausted(format!("{MOST} runs have joined job {} already", root.id)));
    }
    Ok((root, Partners::new(partners)))
}

fn takes_part(node: &str, job: &Job) -> Status {
    Status::failed_precondition(format!("{node} takes part in job {} already", job.id))
}

/// What the partners of a job are told of it.
fn as_partner(job: &Job) -> Partner {
    // No program of a run that has joined runs on its head, which is the head of the other job.
    let without = usize::from(job.joined.is_some());
    Partner::new(job.id, job.token.clone(), job.members.nodes.iter().skip(without).cloned().collect())
}

/// At the head: makes a run that joins a partner of the others.
pub(crate) fn add(node: &Node, run: &Job) {
    let partner = Arc::new(as_partner(run));
    for job in others(node, run) {
        let gone = job.partners.change(|all| all.push(Arc::clone(&partner)));
        changed(&job, &gone);
    }
}

/// At the head: makes a run that ends no partner of the others any more.
pub(crate) fn remove(node: &Node, run: &Job) {
    let _turn = lock(node.joining());
    for job in others(node, run) {
        let gone = job.partners.change(|all| all.retain(|partner| partner.job != run.id));
        changed(&job, &gone);
    }
}

fn others(node: &Node, run: &Job) -> impl Iterator<Item = Arc<Job>> {
    let all = run.joined.as_ref().map(|root| together(node, root.job)).unwrap_or_default();
    all.into_iter().filter(|job| job.id != run.id)
}

/// Carries out at this node what follows from a change of a job's partners.
fn changed(job: &Job, gone: &[Arc<Partner>]) {
    for partner in gone {
        partner.gone.cancel();
        job.sockets.end_with(|peer| partner.nodes.iter().any(|host| host.address.ip() == peer));
    }
    job.write_hosts();
}

/// Tells a node that this one holds of the job's partners, again whenever they change, until the job
/// ends. What doesn't arrive, as over a way that is cut, is told again.
pub(crate) async fn keep_told(node: Arc<Node>, job: Arc<Job>, host: Host) {
    let mut changes = job.partners.0.subscribe();
    // The list that it has begun with.
    let mut told = 0;
    let mut pause = PAUSE;
    loop {
        let partners = job.partners.message();
        if partners.number == told {
            tokio::select! {
                // The sender lives as long as the job.
                _ = changes.changed() => {}
                () = job.ended.cancelled() => return,
            }
            continue;
        }
        let number = partners.number;
        let request = proto::PartnerRequest { job: job.id.to_string(), partners: Some(partners) };
        let calling = async { calls::channel(&node, &job, &host).await?.partner(request).await };
        let answered = tokio::select! {
            answered = timeout(TELLING, calling) => answered,
            () = job.ended.cancelled() => return,
        };
        let reason = match answered {
            Ok(Ok(_)) => {
                (told, pause) = (number, PAUSE);
                continue;
            }
            Ok(Err(status)) => grpc::reason(&status),
            Err(_) => format!("no answer within {} s", TELLING.as_secs()),
        };
        tracing::info!(job = %job.id, node = %host.name, reason, "not told of the job's partners yet");
        tokio::select! {
            () = sleep(pause) => pause = (2 * pause).min(LONGEST_PAUSE),
            () = job.ended.cancelled() => return,
        }
    }
}

/// At a node that is held: takes its holder's word.
///
/// # Errors
/// `PERMISSION_DENIED` if the caller doesn't hold this node in the job; `INVALID_ARGUMENT` if a partner
/// is invalid, or there are too many.
pub(crate) fn take(
    node: &Node,
    job: &Job,
    caller: Option<GridName>,
    partners: Option<proto::PartnerList>,
) -> Result<(), Status> {
    let holder = tree::holder(&job.members.nodes, node.name());
    if holder.is_none_or(|holder| caller.as_ref() != Some(&holder.name)) {
        return Err(Status::permission_denied("only the node that holds this one may do this"));
    }
    let list = read(&partners.unwrap_or_default())?;
    if let Some(gone) = job.partners.take(list) {
        changed(job, &gone);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partner(job: u8, hosts: &[(u8, &str)]) -> Arc<Partner> {
        let host = |(last, name): &(u8, &str)| Host::read(name, 0xf040_0100 + u32::from(*last)).unwrap();
        let nodes = hosts.iter().map(host).collect();
        Arc::new(Partner::new(format!("{job:032x}").parse().unwrap(), Secret::random(), nodes))
    }

    fn names(partners: &Partners) -> Vec<String> {
        let at = |last: u8| partners.at([240, 64, 1, last].into()).map(|(_, name)| name.to_string());
        (1..=3).filter_map(at).collect()
    }

    #[test]
    fn partners_come_and_go() {
        let head = Partners::default();
        let (first, second) = (partner(1, &[(1, "n1.alpha")]), partner(2, &[(2, "n2.alpha")]));
        assert!(head.change(|all| all.push(first.clone())).is_empty());
        let told = Partners::read(Some(head.message())).unwrap();
        assert!(head.change(|all| all.push(second)).is_empty());
        assert_eq!(names(&head), ["n1.alpha", "n2.alpha"]);

        let both = read(&head.message()).unwrap();
        assert_eq!(told.take(both.clone()).unwrap().len(), 0);
        assert!(told.take(both.clone()).is_none(), "it was told of that before");
        let known = told.at([240, 64, 1, 1].into()).unwrap().0;
        let gone = head.change(|all| all.retain(|partner| partner.job != first.job));
        assert_eq!(gone.iter().map(|partner| partner.job).collect::<Vec<_>>(), [first.job]);
        let gone = told.take(read(&head.message()).unwrap()).unwrap();
        assert!(Arc::ptr_eq(&gone[0], &known), "the one to which connections are being made");
        assert!(told.take(both).is_none(), "it comes late");
        assert_eq!((names(&head), names(&told)), (vec!["n2.alpha".into()], vec!["n2.alpha".into()]));
    }

    #[test]
    fn there_are_not_too_many() {
        let partners = Partners::new(vec![partner(0, &[]); MOST]);
        let mut message = partners.message();
        assert_eq!(read(&message).unwrap().all.len(), MOST);
        message.partners.push(message.partners[0].clone());
        assert_eq!(read(&message).unwrap_err().code(), tonic::Code::InvalidArgument);
    }

    #[test]
    fn a_partner_is_told_and_read() {
        let told = partner(7, &[(1, "n1.alpha"), (2, "n1.beta")]);
        let read = Partner::read(&told.message()).unwrap();
        assert_eq!((read.job, &read.nodes), (told.job, &told.nodes));
        assert_eq!(read.token.expose(), told.token.expose());
        for broken in [
            proto::JobPartner { job: "x".into(), ..told.message() },
            proto::JobPartner { token: vec![1; 31], ..told.message() },
            proto::JobPartner {
                nodes: vec![proto::JobNode { name: "n1".into(), ..Default::default() }],
                ..told.message()
            },
        ] {
            assert_eq!(Partner::read(&broken).unwrap_err().code(), tonic::Code::InvalidArgument);
        }
    }
}
