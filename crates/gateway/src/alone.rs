//! What the gateway answers by itself while the broker can't be reached: of its own site
//! what it knows, of other sites what the broker told it last. Such an answer says so, and
//! only a caller that asks for it gets one.

mod rendezvous;
pub(crate) mod ways;

use std::cell::Cell;
use std::time::{Duration, Instant};

use isthmus_identity::{Identity, Owner};
use isthmus_registry::filters;
use isthmus_rpc::contact::plan_from_facts;
use isthmus_rpc::grpc;
use isthmus_rpc::page::{Page, key_of_node};
use isthmus_service::clock::millis;
use isthmus_service::lock;
use isthmus_wire::proto::list_request::Records;
use isthmus_wire::{GridName, proto};
use tonic::{Code, Status};

use crate::gateway::Gateway;
use crate::lookup::own_contact;

use ways::{AWAY, without_broker};

/// The broker's answer, or for how long the broker has been away.
pub(crate) enum Answer<T> {
    Brokers(T),
    Away(Duration),
}

/// The age of the oldest record of another site in an answer.
#[derive(Default)]
struct Oldest(Cell<Option<Duration>>);

impl Oldest {
    fn note(&self, age: Duration) {
        self.0.set(self.0.get().max(Some(age)));
    }
}

impl Gateway {
    /// Asks the broker. With `may`, the caller takes the gateway's own answer instead if the broker
    /// isn't reached.
    ///
    /// # Errors
    /// The broker's status.
    pub(crate) async fn ask_broker<T>(
        &self,
        may: bool,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<Answer<T>, Status> {
        let began = Instant::now();
        if may && let Err(away) = self.upstream.reached().await {
            return Ok(Answer::Away(away));
        }
        match call.await {
            Ok(reply) => Ok(Answer::Brokers(reply)),
            Err(status) if may && self.is_lost(&status) => {
                Ok(Answer::Away(self.upstream.away().unwrap_or_else(|| began.elapsed())))
            }
            Err(status) => Err(status),
        }
    }

    /// Whether a call failed because the broker isn't reached, rather than by the broker's answer.
    pub(crate) fn is_lost(&self, status: &Status) -> bool {
        grpc::broke(status) || status.code() == Code::DeadlineExceeded || !self.upstream.is_attached()
    }

    /// A page of the records that the gateway knows, answered without the broker.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the request is malformed, as the broker would answer.
    pub(crate) fn list_alone(
        &self,
        caller: &Identity,
        request: &proto::ListRequest,
        away: Duration,
    ) -> Result<proto::ListReply, Status> {
        let malformed = |error: &dyn std::fmt::Display| Status::invalid_argument(error.to_string());
        let mut page = Page::new(request).map_err(|error| malformed(&error))?;
        let oldest = Oldest::default();
        let grid = lock(&self.told).grid().to_owned();
        let mut reply = proto::ListReply { grid, ..proto::ListReply::default() };
        match &request.records {
            Some(Records::Nodes(filter)) => {
                let after = page.after_node().map_err(|error| malformed(&error))?;
                reply.nodes = self.nodes(&mut page, (filter, after), &oldest);
            }
            Some(Records::Sites(filter)) => reply.sites = self.sites(&mut page, filter, &oldest),
            Some(Records::Relays(_)) => {
                let relay = |entry: proto::DirectoryEntry| {
                    let (name, address) = (entry.name, entry.address);
                    (name.clone(), proto::Relay { name, address, up: true, ..proto::Relay::default() })
                };
                reply.relays = page.take(self.directory.relays().into_iter().map(relay));
            }
            Some(Records::Jobs(filter)) => {
                let owner = caller.owner().map_or_else(String::new, Owner::to_string);
                let here = |job: &proto::JobReport| filters::wants_job(filter, &job.job, job);
                let jobs = self.roster().jobs_of(&owner).into_iter().filter(here);
                reply.jobs = page.take(jobs.map(|job| (job.job.clone(), job)));
            }
            // Only the broker has them.
            Some(Records::Paths(_)) => {}
            None => return Err(Status::invalid_argument("the request names no records")),
        }
        reply.next_page_token = page.next();
        reply.without_broker = Some(self.without_broker(away, oldest.0.get()));
        Ok(reply)
    }

    fn nodes(
        &self,
        page: &mut Page,
        (filter, after): (&proto::NodeFilter, Option<GridName>),
        oldest: &Oldest,
    ) -> Vec<proto::Node> {
        let now = Instant::now();
        let (roster, told) = (self.roster(), lock(&self.told));
        let key = |name: &GridName| (name.site.clone(), name.node.clone());
        let after = after.as_ref().map(key);
        let all = filter.names.is_empty() && filter.sites.is_empty();
        let wanted = |name: &GridName, node: &proto::Node| {
            (all || filter.names.contains(&node.name)
                || filter.sites.iter().any(|site| *site == *name.site.as_str()))
                && filters::wants_node(filter, &node.owner, node.up)
                && after.as_ref().is_none_or(|after| key(name) > *after)
        };
        let others = |is_before: bool| {
            let others = told.nodes(now).filter(move |(name, ..)| (name.site < self.site) == is_before);
            others.filter(|(name, node, _)| wanted(name, node)).map(|(name, node, age)| {
                oldest.note(age);
                (key_of_node(&name), node.clone())
            })
        };
        let own = roster.nodes().filter(|(name, node)| wanted(name, node));
        let own = own.map(|(name, node)| (key_of_node(&name), node));
        page.take(others(true).chain(own).chain(others(false)))
    }

    fn sites(&self, page: &mut Page, filter: &proto::SiteFilter, oldest: &Oldest) -> Vec<proto::Site> {
        let told = lock(&self.told).sites(Instant::now()).into_iter();
        let own = (self.site.clone(), (self.own_site(), None));
        let mut sites: Vec<_> =
            told.map(|(name, (site, age))| (name, (site, Some(age)))).chain([own]).collect();
        sites.sort_by(|(a, _), (b, _)| a.cmp(b));
        let wanted = sites.into_iter().filter(|(name, _)| filters::wants_site(filter, name));
        page.take(wanted.map(|(name, (site, age))| {
            age.into_iter().for_each(|age| oldest.note(age));
            (name.to_string(), site)
        }))
    }

    /// The record of this gateway's own site, as far as the gateway knows it.
    fn own_site(&self) -> proto::Site {
        let (mut nodes_up, mut nodes_down, mut slots) = (0, 0, 0);
        let roster = self.roster();
        for (_, node) in roster.nodes() {
            if node.up {
                nodes_up += 1;
                slots += u64::from(node.slots);
            } else {
                nodes_down += 1;
            }
        }
        let attached = roster.sessions().count();
        let own = proto::SiteGateway {
            name: self.credentials.identity().name().to_string(),
            up: true,
            version: self.hello.version.clone(),
            inbound: self.hello.inbound,
            outside_address: self.outside_address(),
            nodes: u32::try_from(attached).unwrap_or(u32::MAX),
            outside_reach: self.outside.reach(),
        };
        proto::Site {
            name: self.site.to_string(),
            inbound: own.inbound,
            up: true,
            version: own.version.clone(),
            outside_address: own.outside_address.clone(),
            measure_off: self.hello.measure_off,
            outside_reach: own.outside_reach.clone(),
            nodes_up,
            nodes_down,
            slots,
            jobs: u32::try_from(roster.jobs()).unwrap_or(u32::MAX),
            gateways: vec![own],
            ..proto::Site::default()
        }
    }

    /// The plan from a node that is attached to this gateway to another node that the gateway
    /// knows. Steps that the broker must arrange are left out.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the gateway doesn't know either node.
    pub(crate) fn explain_alone(
        &self,
        request: &proto::ExplainRequest,
        away: Duration,
    ) -> Result<proto::ExplainReply, Status> {
        let unknown = |what: &str| {
            let absent = self.upstream.absent("explain a plan");
            Status::unavailable(format!("{}; by itself this gateway knows no {what}", absent.message()))
        };
        let from = request.from.parse::<GridName>().ok().filter(|from| from.site == self.site);
        let from = from.filter(|from| self.roster().contact(&from.node).is_some());
        let from = from.ok_or_else(|| unknown(&format!("plans of {}", request.from)))?;
        let to = proto::LookupRequest { name: request.to.clone(), ..proto::LookupRequest::default() };
        let own = self.roster().find(&to);
        let found = own.map(own_contact).or_else(|| self.lookups.known(&to));
        let found = found.ok_or_else(|| unknown(&format!("contact of {}", request.to)))?;
        let facts = found.facts.unwrap_or_else(|| own_facts(&request.to));
        let initiator = self.initiator(&from.node, facts.initiator_site.clone());
        let plan = found.plan.unwrap_or_else(|| without_broker(plan_from_facts(&initiator, &facts), AWAY));
        let age = lock(&self.told).age_of(&request.to, Instant::now());
        Ok(proto::ExplainReply {
            plan: Some(plan),
            initiator: Some(initiator),
            facts: Some(facts),
            without_broker: Some(self.without_broker(away, age)),
        })
    }

    fn without_broker(&self, away: Duration, told: Option<Duration>) -> proto::WithoutBroker {
        proto::WithoutBroker {
            gateway: self.grid_name().to_string(),
            away_ms: millis(away),
            told_ms: told.map(millis),
        }
    }

    /// The grid name of this gateway.
    pub(crate) fn grid_name(&self) -> GridName {
        GridName { node: self.credentials.identity().name().clone(), site: self.site.clone() }
    }
}

/// The facts for a plan to a node of this site, from within the site.
fn own_facts(node: &str) -> proto::Facts {
    let acceptor = proto::End { node: node.to_owned(), attached: true, ..proto::End::default() };
    proto::Facts { acceptor: Some(acceptor), ..proto::Facts::default() }
}
