//! `isthmus grid list`, `revoke` and `remove`: an administrator asks the broker.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use isthmus_net::clock::unix_seconds;
use isthmus_net::{Identity, Owner, grpc};
use isthmus_wire::proto::administration_client::AdministrationClient;
use isthmus_wire::proto::{Member, MembersRequest, RevokeRequest};
use serde::Serialize;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::ask;
use crate::config::StateArgs;
use crate::output::print;
use crate::status::table;

/// The budget of one call.
const BUDGET: Duration = Duration::from_secs(20);
/// Most pages of one list, if a faulty broker never ends it.
const MOST_PAGES: usize = 4096;

/// List the grid's members with their certificates.
#[derive(Debug, Args)]
pub(crate) struct MembersArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Only members of this owner.
    #[arg(long, value_name = "USER")]
    owner: Option<Owner>,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

/// Refuse the certificates that members have, from now on and everywhere.
///
/// Their connections end, and so do the jobs that run on a revoked node. To make a
/// member one again, invite it anew for the same owner.
#[derive(Debug, Args)]
pub(crate) struct RevokeArgs {
    #[command(flatten)]
    state: StateArgs,
    /// Names as `isthmus grid list` prints them: n1.alpha, gateway.alpha, r1.relay.
    #[arg(value_name = "NAME", required_unless_present = "owner", conflicts_with = "owner")]
    names: Vec<String>,
    /// All members of this owner.
    #[arg(long, value_name = "USER")]
    owner: Option<Owner>,
    /// Print the revoked members as JSON.
    #[arg(long)]
    json: bool,
}

/// A member as `--json` prints it. Times are in seconds since 1970.
#[derive(Serialize)]
struct Line {
    name: String,
    role: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    joined: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issued: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    revoked: Option<u64>,
}

impl Line {
    fn new(member: Member) -> Self {
        let identity = Identity::from_uri(&member.identity).ok();
        let known = |time: u64| (time > 0).then_some(time);
        Self {
            name: member.name,
            role: identity.as_ref().map_or_else(|| "?".to_owned(), |identity| identity.role().to_string()),
            owner: identity.as_ref().and_then(Identity::owner).map(ToString::to_string),
            joined: known(member.joined),
            issued: known(member.issued),
            ends: known(member.ends),
            revoked: known(member.revoked),
        }
    }

    fn cells(self, now: u64) -> Vec<String> {
        let state = match (self.revoked, self.ends) {
            (Some(_), _) => "revoked",
            (None, Some(ends)) if ends <= now => "ended",
            _ => "member",
        };
        let (joined, ends) = (date(self.joined), date(self.ends));
        vec![
            self.name,
            self.role,
            self.owner.unwrap_or_else(|| "-".to_owned()),
            state.to_owned(),
            joined,
            ends,
        ]
    }
}

fn date(time: Option<u64>) -> String {
    let Some(time) = time.and_then(|time| UNIX_EPOCH.checked_add(Duration::from_secs(time))) else {
        return "-".to_owned();
    };
    humantime::format_rfc3339_seconds(time).to_string()
}

fn show(members: Vec<Member>, json: bool) -> anyhow::Result<()> {
    let now = unix_seconds(SystemTime::now());
    let lines = || members.iter().cloned().map(Line::new);
    let header = ["member", "role", "owner", "state", "joined", "certificate until"];
    let text = table(&header, &[], lines().map(|line| line.cells(now)));
    print(&lines().collect::<Vec<_>>(), &text, json)
}

/// Runs `isthmus grid list`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn list(args: MembersArgs) -> anyhow::Result<()> {
    let members = Broker::find(&args.state).await?.members(args.owner.as_ref()).await?;
    show(members, args.json)
}

/// Runs `isthmus grid revoke` and `remove`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn revoke(args: RevokeArgs, remove: bool) -> anyhow::Result<()> {
    let mut broker = Broker::find(&args.state).await?;
    let names = match &args.owner {
        None => args.names,
        Some(owner) => broker.members(Some(owner)).await?.into_iter().map(|member| member.name).collect(),
    };
    if names.is_empty() {
        bail!("no member has this owner; isthmus grid list names them");
    }
    let mut revoked = Vec::new();
    for name in names {
        revoked.extend(broker.revoke(name, remove).await?);
    }
    show(revoked, args.json)
}

struct Broker(AdministrationClient<Channel>);

impl Broker {
    async fn find(state: &StateArgs) -> anyhow::Result<Self> {
        let channel = ask::administrator(&state.directory()).await?;
        Ok(Self(AdministrationClient::new(channel)))
    }

    async fn members(&mut self, owner: Option<&Owner>) -> anyhow::Result<Vec<Member>> {
        let mut members = Vec::new();
        let mut page_token = Vec::new();
        for _ in 0..MOST_PAGES {
            let page = answer(self.0.members(MembersRequest { page_token })).await?;
            members.extend(page.members);
            page_token = page.next_page_token;
            if page_token.is_empty() {
                break;
            }
        }
        members.retain(|member| {
            let identity = Identity::from_uri(&member.identity).ok();
            owner.is_none() || identity.as_ref().and_then(Identity::owner) == owner
        });
        Ok(members)
    }

    async fn revoke(&mut self, name: String, remove: bool) -> anyhow::Result<Option<Member>> {
        Ok(answer(self.0.revoke(RevokeRequest { name, remove })).await?.member)
    }
}

async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> anyhow::Result<T> {
    match timeout(BUDGET, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => bail!("broker: {}", grpc::reason(&status)),
        Err(_) => bail!("the broker did not answer within {BUDGET:?}"),
    }
}
