//! Jobs whose programs connect with those of another job.
//!
//! A run that joins a job is a job of its own: it has its own nodes and its own end. Both jobs have the
//! same head, which tells each of the other. Further runs that join are partners as well, of all that
//! are there. A connection between partners is one of the acceptor's job: it has that job's id and token.

use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use isthmus_rpc::grpc;
use isthmus_service::lock;
use isthmus_service::mac::Secret;
use isthmus_wire::proto::partner_request::Change;
use isthmus_wire::settings::Host;
use isthmus_wire::{GridName, JobId, proto};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Status;

use crate::jobs::calls;
use crate::jobs::job::Job;
use crate::jobs::node::Node;
use crate::jobs::peers::{parse_job, parse_nodes};
use crate::jobs::tree;

/// Most partners of a job.
const MOST: usize = 256;
/// How long the nodes of a job may take to be told of a partner, and those of each node below.
const TELLING: Duration = Duration::from_secs(5);
const TELLING_BELOW: Duration = Duration::from_secs(3);

/// A job whose programs connect with those of another one.
#[derive(Debug)]
pub(crate) struct Partner {
    pub job: JobId,
    pub token: Secret,
    /// The nodes on which its programs run.
    pub nodes: Vec<Host>,
}

impl Partner {
    /// # Errors
    /// `INVALID_ARGUMENT` if an id, a token, a name or an address is invalid.
    fn read(message: &proto::JobPartner) -> Result<Self, Status> {
        let token = Secret::from_slice(&message.token)
            .ok_or_else(|| Status::invalid_argument("a partner's token is not 32 bytes"))?;
        Ok(Self { job: parse_job(&message.job)?, token, nodes: parse_nodes(&message.nodes)? })
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

/// The partners of a job.
#[derive(Debug, Default)]
pub(crate) struct Partners(Mutex<Vec<Arc<Partner>>>);

impl Partners {
    pub(crate) fn new(partners: Vec<Arc<Partner>>) -> Self {
        Self(Mutex::new(partners))
    }

    /// Reads the partners that a job begins with.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if a partner is invalid; `RESOURCE_EXHAUSTED` if there are too many.
    pub(crate) fn read(messages: &[proto::JobPartner]) -> Result<Self, Status> {
        if messages.len() > MOST {
            return Err(too_many());
        }
        let partners = messages.iter().map(|message| Partner::read(message).map(Arc::new));
        Ok(Self::new(partners.collect::<Result<_, _>>()?))
    }

    pub(crate) fn messages(&self) -> Vec<proto::JobPartner> {
        self.all().iter().map(|partner| partner.message()).collect()
    }

    pub(crate) fn all(&self) -> Vec<Arc<Partner>> {
        lock(&self.0).clone()
    }

    /// The partner on one of whose nodes programs have this address, and that node's name.
    pub(crate) fn at(&self, address: Ipv4Addr) -> Option<(Arc<Partner>, GridName)> {
        let all = lock(&self.0);
        let mut found = all.iter().filter_map(|partner| {
            let host = partner.nodes.iter().find(|host| host.address.ip() == address)?;
            Some((Arc::clone(partner), host.name.clone()))
        });
        found.next()
    }

    /// # Errors
    /// `RESOURCE_EXHAUSTED` if there are too many.
    fn add(&self, partner: Arc<Partner>) -> Result<(), Status> {
        let mut all = lock(&self.0);
        all.retain(|other| other.job != partner.job);
        if all.len() >= MOST {
            return Err(too_many());
        }
        all.push(partner);
        Ok(())
    }

    fn remove(&self, job: JobId) {
        lock(&self.0).retain(|partner| partner.job != job);
    }
}

fn too_many() -> Status {
    Status::resource_exhausted(format!("more than {MOST} runs have joined a job"))
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
}

/// The job that was started on this node and has an id that begins like this. One that has itself
/// joined another one stands for that.
///
/// # Errors
/// `NOT_FOUND` if there is none; `INVALID_ARGUMENT` if there are several.
pub(crate) fn to_join(node: &Node, id: &str) -> Result<Arc<Job>, Status> {
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
    match job.joined {
        Some(root) => node.job(root).ok_or_else(|| Status::not_found(format!("job {root} has ended"))),
        None => Ok(job),
    }
}

/// A job and all runs that have joined it. This node is the head of all of them.
fn together(node: &Node, root: JobId) -> Vec<Arc<Job>> {
    let mut all = node.jobs();
    all.retain(|job| job.id == root || job.joined == Some(root));
    // The job that the others have joined comes first.
    all.sort_by_key(|job| job.joined.is_some());
    all
}

/// The partners of a run that joins the job `root` with these nodes, the head first.
///
/// # Errors
/// `FAILED_PRECONDITION` if one of the nodes takes part already.
pub(crate) fn of_new(node: &Node, root: &Job, nodes: &[Host]) -> Result<Partners, Status> {
    let mut partners = Vec::new();
    for job in together(node, root.id) {
        let partner = as_partner(&job);
        let is_new = |host: &&Host| partner.nodes.iter().any(|other| other.name == host.name);
        if let Some(host) = nodes.iter().skip(1).find(is_new) {
            return Err(takes_part(&host.name, &job));
        }
        partners.push(Arc::new(partner));
    }
    Ok(Partners::new(partners))
}

/// The error for a node that can't take part in a run that joins, since it does in another one.
pub(crate) fn takes_part(node: impl std::fmt::Display, job: &Job) -> Status {
    Status::failed_precondition(format!("{node} takes part in job {} already", job.id))
}

/// What the partners of a job are told of it.
fn as_partner(job: &Job) -> Partner {
    let nodes = &job.members.nodes;
    // No program runs on the head of a run that has joined: it is the head of the other job.
    let without = usize::from(job.joined.is_some());
    Partner { job: job.id, token: job.token.clone(), nodes: nodes.iter().skip(without).cloned().collect() }
}

/// At the head: tells all partners of a run that it has joined.
pub(crate) async fn tell_joined(node: &Arc<Node>, job: &Job) {
    tell_partners(node, job, &Change::Joins(as_partner(job).message())).await;
}

/// At the head: tells all partners of a run that it has ended.
pub(crate) async fn tell_left(node: &Arc<Node>, job: &Job) {
    tell_partners(node, job, &Change::Leaves(job.id.to_string())).await;
}

async fn tell_partners(node: &Arc<Node>, job: &Job, change: &Change) {
    let mut telling = JoinSet::new();
    for partner in job.partners.all() {
        let Some(other) = node.job(partner.job) else { continue };
        let (node, change) = (node.clone(), change.clone());
        telling.spawn(async move {
            if let Err(status) = apply(&node, &other, change, TELLING).await {
                tracing::warn!(job = %other.id, reason = grpc::reason(&status), "not told of a partner");
            }
        });
    }
    telling.join_all().await;
}

/// Takes in a change at this node, and tells the nodes that this one holds.
///
/// # Errors
/// `INVALID_ARGUMENT` if the change is invalid; `RESOURCE_EXHAUSTED` if there are too many partners.
async fn apply(node: &Arc<Node>, job: &Arc<Job>, change: Change, limit: Duration) -> Result<(), Status> {
    match &change {
        Change::Joins(partner) => job.partners.add(Arc::new(Partner::read(partner)?))?,
        Change::Leaves(partner) => job.partners.remove(parse_job(partner)?),
    }
    job.write_hosts();
    let mut telling = JoinSet::new();
    for host in tree::children(&job.members.nodes, node.name()).into_iter().cloned() {
        let request = proto::PartnerRequest { job: job.id.to_string(), change: Some(change.clone()) };
        let (node, job) = (node.clone(), job.clone());
        telling.spawn(async move {
            let calling = async { calls::channel(&node, &job, &host).await?.partner(request).await };
            match timeout(limit, calling).await {
                Ok(Ok(_)) => {}
                Ok(Err(status)) => {
                    let reason = grpc::reason(&status);
                    tracing::warn!(job = %job.id, node = %host.name, reason, "not told of a partner");
                }
                Err(_) => tracing::warn!(job = %job.id, node = %host.name, "not told of a partner in time"),
            }
        });
    }
    telling.join_all().await;
    Ok(())
}

/// At a node that is held: takes its holder's word.
///
/// # Errors
/// `PERMISSION_DENIED` if the caller doesn't hold this node in the job; those of [`apply`].
pub(crate) async fn take(
    node: &Arc<Node>,
    job: &Arc<Job>,
    caller: Option<GridName>,
    change: Option<Change>,
) -> Result<(), Status> {
    let holder = tree::holder(&job.members.nodes, node.name());
    if holder.is_none_or(|holder| caller.as_ref() != Some(&holder.name)) {
        return Err(Status::permission_denied("only the node that holds this one may do this"));
    }
    let change = change.ok_or_else(|| Status::invalid_argument("no change"))?;
    apply(node, job, change, TELLING_BELOW).await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn partner(job: u8, hosts: &[(u8, &str)]) -> Arc<Partner> {
        let host = |(last, name): &(u8, &str)| Host::read(name, 0xf040_0100 + u32::from(*last)).unwrap();
        let nodes = hosts.iter().map(host).collect();
        Arc::new(Partner { job: format!("{job:032x}").parse().unwrap(), token: Secret::random(), nodes })
    }

    #[test]
    fn partners_come_and_go() {
        let partners = Partners::default();
        let at = |last: u8| partners.at([240, 64, 1, last].into()).map(|(_, name)| name.to_string());
        let first = partner(1, &[(1, "n1.alpha")]);
        partners.add(first.clone()).unwrap();
        partners.add(partner(2, &[(2, "n2.alpha")])).unwrap();
        assert_eq!([at(1), at(2), at(3)], [Some("n1.alpha".into()), Some("n2.alpha".into()), None]);
        // Told again: it has no second place.
        partners.add(first.clone()).unwrap();
        assert_eq!(partners.all().len(), 2);
        partners.remove(first.job);
        assert_eq!([at(1), at(2)], [None, Some("n2.alpha".into())]);
    }

    #[test]
    fn there_are_not_too_many() {
        let partners = Partners::default();
        let added = (0..=u8::MAX).filter(|job| partners.add(partner(*job, &[])).is_ok()).count();
        assert_eq!(added, MOST);
        let late = Arc::new(Partner {
            job: isthmus_service::mac::new_job(),
            token: Secret::random(),
            nodes: Vec::new(),
        });
        assert_eq!(partners.add(late).unwrap_err().code(), tonic::Code::ResourceExhausted);
        let mut messages = partners.messages();
        assert_eq!(Partners::read(&messages).unwrap().all().len(), MOST);
        messages.push(messages[0].clone());
        assert_eq!(Partners::read(&messages).unwrap_err().code(), tonic::Code::ResourceExhausted);
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
