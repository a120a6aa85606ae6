//! Who may call which method at which service. [`Guarded`] refuses every call that
//! the table doesn't have. The services check the scope themselves.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use isthmus_identity::{Identity, Role, audit};
use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::server::NamedService;
use tonic::{Code, Status};
use tower::Service;

use crate::grpc::Peer;

/// The service that is called.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum At {
    /// The broker, the grid's central service.
    Broker,
    /// A gateway, at its port inside the site.
    Gateway,
    /// A node's agent, at its port.
    Agent,
    /// A node's agent, at its Unix socket.
    AgentSocket,
}

/// The party that calls, by what it shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Caller {
    /// A peer without a certificate.
    Anonymous,
    /// A peer with a certificate of this role.
    Member(Role),
    /// A process of this machine, which has no certificate. The agent checks its user.
    Process,
}

/// A line of the table of calls.
#[derive(Debug)]
pub struct Rule {
    /// The service that is called.
    pub at: At,
    /// Service and method, as in the path of a request.
    pub method: &'static str,
    /// The callers that may make the call.
    pub callers: &'static [Caller],
    /// What they may make the call for, in words.
    pub scope: &'static str,
}

use At::{Agent, AgentSocket, Broker, Gateway};
use Caller::{Anonymous, Member, Process};

const MEMBERS: &[Caller] =
    &[Member(Role::Gateway), Member(Role::Agent), Member(Role::Relay), Member(Role::Admin)];
const GATEWAYS: &[Caller] = &[Member(Role::Gateway)];
const GATEWAYS_AND_ADMIN: &[Caller] = &[Member(Role::Gateway), Member(Role::Admin)];
const ADMINS: &[Caller] = &[Member(Role::Admin)];
const AGENTS: &[Caller] = &[Member(Role::Agent)];

const fn rule(at: At, method: &'static str, callers: &'static [Caller], scope: &'static str) -> Rule {
    Rule { at, method, callers, scope }
}

/// The table of calls: who may do what.
pub const RULES: &[Rule] = &[
    rule(Broker, "Enrolment/Join", &[Anonymous], "one certificate for one join token"),
    rule(
        Broker,
        "Enrolment/Renew",
        MEMBERS,
        "its own certificate; a gateway also passes on the requests of its site's agents",
    ),
    rule(Broker, "Enrolment/EndPilot", GATEWAYS, "a pilot, as the agent has signed that minted its token"),
    rule(
        Broker,
        "Registry/Attach",
        &[Member(Role::Gateway), Member(Role::Relay)],
        "a gateway announces itself, and those of its site's agents that joined, each with its owner and jobs; \
         a relay announces itself, and a gateway besides as a relay under its own grid name",
    ),
    rule(Broker, "Registry/Lookup", GATEWAYS, "every node; every gateway"),
    rule(
        Broker,
        "Registry/Rendezvous",
        GATEWAYS,
        "from a node of its own site, to every node; from itself, to a gateway of another site, if both keep trunks",
    ),
    rule(Broker, "Registry/Probe", GATEWAYS, "of a node of its own site, or of its own port outside"),
    rule(
        Broker,
        "Registry/List",
        GATEWAYS_AND_ADMIN,
        "nodes, sites, relays and measurements of the grid; jobs: an administrator all, a gateway those with a \
         node at its site, and for an agent those of the agent's owner",
    ),
    rule(Broker, "Registry/Explain", GATEWAYS_AND_ADMIN, "every pair of nodes"),
    rule(
        Broker,
        "Registry/Measure",
        GATEWAYS_AND_ADMIN,
        "an administrator from every node, a gateway from those of its site, and for an agent from those of \
         the agent's owner",
    ),
    rule(Broker, "Administration/Members", ADMINS, "all members"),
    rule(Broker, "Administration/Revoke", ADMINS, "every member but itself"),
    rule(Gateway, "Enrolment/Join", &[Anonymous], "with a join token for an agent of its site"),
    rule(Gateway, "Enrolment/Renew", AGENTS, "of its site, its own certificate"),
    rule(Gateway, "Enrolment/EndPilot", AGENTS, "of its site, its own pilot"),
    rule(Gateway, "Registry/Attach", AGENTS, "of its site, its own node and jobs"),
    rule(Gateway, "Registry/Lookup", AGENTS, "of its site, every node"),
    rule(Gateway, "Registry/Rendezvous", AGENTS, "of its site, from its own node"),
    rule(Gateway, "Registry/Probe", AGENTS, "of its site, of its own node"),
    rule(Gateway, "Registry/List", AGENTS, "of its site; jobs of its own owner"),
    rule(Gateway, "Registry/Explain", AGENTS, "of its site, every pair of nodes"),
    rule(Gateway, "Registry/Measure", AGENTS, "of its site, from nodes of its own owner"),
    rule(Gateway, "OwnGateway/Trunks", AGENTS, "of its site, the gateway's trunks with other sites"),
    rule(Gateway, "OwnGateway/Carried", AGENTS, "of its site, what it carried for jobs of its own node"),
    rule(Gateway, "OwnGateway/Packets", AGENTS, "of its site: tries large packets to the broker"),
    rule(Agent, "Peer/Hold", AGENTS, "of the same owner: makes the node take part in a job"),
    rule(Agent, "Peer/Exec", AGENTS, "of the same owner: runs a command in a job"),
    rule(Agent, "Peer/End", AGENTS, "of the same owner: ends a job"),
    rule(
        Agent,
        "Peer/Tell",
        AGENTS,
        "of the same owner: tells a job's head that the node is lost that held it",
    ),
    rule(
        Agent,
        "Peer/Partner",
        AGENTS,
        "of the same owner that holds the node in a job: tells of a run that joins",
    ),
    rule(Agent, "Peer/Pilot", AGENTS, "of the same owner: has the agent submit a batch job for its nodes"),
    rule(Agent, "Peer/Scheduler", AGENTS, "of the same owner: what the batch scheduler of the site has"),
    rule(Agent, "Peer/Arrive", AGENTS, "of the same owner and site: its node is one of a pilot"),
    rule(AgentSocket, "Local/Start", &[Process], "of the agent's user or root: starts a job"),
    rule(AgentSocket, "Local/Exec", &[Process], "of the agent's user or root: runs a command in a job"),
    rule(AgentSocket, "Local/End", &[Process], "of the agent's user or root: ends a job"),
    rule(AgentSocket, "Local/List", &[Process], "of the agent's user or root: as its agent at the gateway"),
    rule(
        AgentSocket,
        "Local/Explain",
        &[Process],
        "of the agent's user or root: as its agent at the gateway",
    ),
    rule(
        AgentSocket,
        "Local/Measure",
        &[Process],
        "of the agent's user or root: as its agent at the gateway",
    ),
    rule(
        AgentSocket,
        "Local/Trunks",
        &[Process],
        "of the agent's user or root: this node's trunks, and its gateway's",
    ),
    rule(
        AgentSocket,
        "Local/Packets",
        &[Process],
        "of the agent's user or root: tries large packets to the gateway, and has it do so",
    ),
    rule(AgentSocket, "Local/Pilot", &[Process], "of the agent's user or root: as Peer/Pilot at any node"),
    rule(
        AgentSocket,
        "Local/Scheduler",
        &[Process],
        "of the agent's user or root: as Peer/Scheduler at any node",
    ),
    rule(AgentSocket, "Local/Arrive", &[Process], "of the agent's user or root: as Peer/Arrive at any node"),
];

/// Calls at the broker whose service records refusals itself, and whom they are about.
const RECORDED: &[&str] =
    &["Enrolment/Join", "Enrolment/Renew", "Enrolment/EndPilot", "Administration/Revoke"];

const PACKAGE: &str = "/isthmus.v1.";

/// Checks a call by the table. `peer` is the identity of the connection's other end, if it has
/// shown a certificate; `None` for a Unix socket.
///
/// # Errors
/// The refusal, with those who may make the call.
fn check(at: At, path: &str, peer: Option<Option<&Identity>>) -> Result<(), Status> {
    let method = path.strip_prefix(PACKAGE).unwrap_or(path);
    let Some(rule) = RULES.iter().find(|rule| rule.at == at && rule.method == method) else {
        return Err(Status::unimplemented(format!("{at} has no call {method:?}")));
    };
    let identity = peer.flatten();
    let caller = match (peer, identity) {
        (None, _) => Process,
        (Some(_), None) => Anonymous,
        (Some(_), Some(identity)) => Member(identity.role()),
    };
    // A member may do what a peer without a certificate may.
    if rule.callers.contains(&caller) || rule.callers.contains(&Anonymous) && caller != Process {
        return Ok(());
    }
    let Some(identity) = identity else {
        return Err(Status::unauthenticated(
            "this call needs a certificate of the grid; run `isthmus join` first",
        ));
    };
    let mut reason = format!("{identity} may not call {method} at {at}; {} may", callers(rule));
    if at == Broker
        && let (Role::Agent, Some(site)) = (identity.role(), identity.site())
    {
        reason += &format!(
            ". Agents must attach to the gateway of site {site}, not to the broker: join again with --via and \
             the gateway's address"
        );
    }
    Err(Status::permission_denied(reason))
}

/// The callers of a rule in words, such as "gateways and administrators".
fn callers(rule: &Rule) -> String {
    let names = rule.callers.iter().map(|caller| match caller {
        Anonymous => "peers without a certificate",
        Process => "local processes",
        Member(Role::Broker) => "brokers",
        Member(Role::Relay) => "relays",
        Member(Role::Gateway) => "gateways",
        Member(Role::Agent) => "agents",
        Member(Role::Admin) => "administrators",
    });
    let names: Vec<_> = names.collect();
    match names.split_last() {
        Some((last, others)) if !others.is_empty() => format!("{} and {last}", others.join(", ")),
        _ => names.concat(),
    }
}

impl fmt::Display for At {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Broker => "the broker",
            Gateway => "a gateway",
            Agent => "an agent",
            AgentSocket => "an agent's Unix socket",
        })
    }
}

/// The table in Markdown, as docs/security.md has it.
pub fn table() -> String {
    let mut table = "| at | call | by | for |\n|---|---|---|---|\n".to_owned();
    for rule in RULES {
        table += &format!("| {} | `{}` | {} | {} |\n", rule.at, rule.method, callers(rule), rule.scope);
    }
    table
}

/// A service that answers only the calls in the table. Refusals are in the audit log, here
/// or by the service.
#[derive(Debug, Clone)]
pub struct Guarded<S> {
    at: At,
    service: S,
}

/// Guards a service by the table.
pub fn guarded<S>(at: At, service: S) -> Guarded<S> {
    Guarded { at, service }
}

impl<S: NamedService> NamedService for Guarded<S> {
    const NAME: &'static str = S::NAME;
}

impl<S> Service<Request<Body>> for Guarded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Error = Infallible, Future: Send + 'static>,
{
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.service.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let peer = request.extensions().get::<Peer>().cloned();
        let identity = peer.as_ref().map(|peer| peer.identity.as_deref());
        let checked = check(self.at, request.uri().path(), identity);
        let method = request.uri().path().strip_prefix(PACKAGE).unwrap_or_default();
        let recorded = checked.is_ok() && RECORDED.contains(&method);
        let answer = checked.map(|()| self.service.call(request));
        Box::pin(async move {
            let response = match answer {
                Ok(answer) => answer.await?,
                Err(status) => status.into_http(),
            };
            if !recorded {
                record_refusal(&response, peer.as_ref());
            }
            Ok(response)
        })
    }
}

fn record_refusal(response: &Response<Body>, peer: Option<&Peer>) {
    let Some(status) = Status::from_header_map(response.headers()) else { return };
    if !matches!(status.code(), Code::PermissionDenied | Code::Unauthenticated) {
        return;
    }
    let entry = audit::Entry::refused("call", status.message()).from(peer.map(|peer| peer.address));
    match peer.and_then(|peer| peer.identity.as_ref()) {
        Some(identity) => entry.by(identity).record(),
        None => entry.record(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_the_table_has_not_is_refused() {
        let (agent, gateway) = ("isthmus:///agent/alpha/n1/anna", "isthmus:///gateway/alpha/gateway/");
        let relay = "isthmus:///relay//r1/";
        for (at, method, uri, want) in [
            (Broker, "Enrolment/Join", "", Code::Ok),
            (Broker, "Enrolment/Join", agent, Code::Ok),
            (Broker, "Enrolment/Renew", "", Code::Unauthenticated),
            (Broker, "Registry/List", relay, Code::PermissionDenied),
            (Broker, "Registry/Measure", relay, Code::PermissionDenied),
            (Broker, "Registry/List", agent, Code::PermissionDenied),
            (Broker, "Registry/List", gateway, Code::Ok),
            (Broker, "Registry/Lookup", "isthmus:///admin//admin/", Code::PermissionDenied),
            (Broker, "Registry/Burn", gateway, Code::Unimplemented),
            (Broker, "Peer/Exec", gateway, Code::Unimplemented),
            (Gateway, "Registry/List", relay, Code::PermissionDenied),
            (Agent, "Peer/Exec", gateway, Code::PermissionDenied),
            (Agent, "Peer/Exec", agent, Code::Ok),
            (Agent, "Local/Start", agent, Code::Unimplemented),
        ] {
            let identity = Identity::from_uri(uri).ok();
            let code = check(at, &format!("{PACKAGE}{method}"), Some(identity.as_ref()))
                .map_or_else(|e| e.code(), |()| Code::Ok);
            assert_eq!(code, want, "{method} at {at} by {uri:?}");
        }
        assert!(check(AgentSocket, "/isthmus.v1.Local/Start", None).is_ok());
        assert!(check(Broker, "/isthmus.v1.Enrolment/Join", None).is_err(), "a connection without a peer");
    }

    #[test]
    fn every_method_of_the_protocol_is_in_the_table() {
        let protocol = include_str!("../../wire/proto/isthmus.proto");
        let mut service = "";
        let mut methods = Vec::new();
        for line in protocol.lines() {
            if let Some(name) = line.strip_prefix("service ") {
                service = name.trim_end_matches(" {");
            }
            if let Some(method) = line.trim_start().strip_prefix("rpc ") {
                methods.push(format!("{service}/{}", method.split_once('(').unwrap().0));
            }
        }
        assert!(methods.len() > 15);
        for method in &methods {
            assert!(RULES.iter().any(|rule| rule.method == method), "{method} is not in RULES");
        }
        for rule in RULES {
            assert!(methods.iter().any(|method| method == rule.method), "{rule:?}");
        }
    }

    #[test]
    fn the_page_has_the_table() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/security.md");
        let page = std::fs::read_to_string(path).unwrap();
        let start = page.find("| at | call |").unwrap();
        let rows = page[start..].split_inclusive('\n').take_while(|line| line.starts_with('|'));
        let found: String = rows.collect();
        if std::env::var_os("ISTHMUS_UPDATE_GOLDEN").is_some() {
            std::fs::write(path, page.replace(&found, &table())).unwrap();
        } else {
            assert_eq!(found, table(), "ISTHMUS_UPDATE_GOLDEN=1 writes the table of docs/security.md anew");
        }
    }
}
