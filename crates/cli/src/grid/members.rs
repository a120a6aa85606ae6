//! `isthmus grid list`, `revoke` and `remove`: an administrator asks the broker.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::bail;
use clap::Args;
use isthmus_front::ask;
use isthmus_front::output::print;
use isthmus_front::state::StateArgs;
use isthmus_identity::{Identity, Owner};
use isthmus_rpc::grpc;
use isthmus_service::clock::unix_seconds;
use isthmus_wire::proto::administration_client::AdministrationClient;
use isthmus_wire::proto::{Member, MembersRequest, RevokeRequest};
use serde::Serialize;
use tokio::time::timeout;
use tonic::transport::Channel;
use tonic::{Response, Status};

use crate::status::table;

/// How long the broker may take to answer one call.
const BUDGET: Duration = Duration::from_secs(20);
/// Most pages of one list: a faulty broker may never end it.
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
/// Their connections end, and so do the jobs that run on a revoked node. If one has joined
/// by a site's token, that admits nobody any more: by it, the same machine could join under
/// another name. To make a member one again, invite it anew for the same owner.
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
    /// Leave the sites' tokens open by which they joined.
    #[arg(long)]
    keep_token: bool,
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
    /// For a member that was just revoked: what became of the site's token by which it joined.
    #[serde(flatten)]
    token: Option<Token>,
}

/// A site's token by which a revoked member had joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
struct Token {
    #[serde(rename = "token_closed")]
    closed: bool,
    #[serde(rename = "token_ends")]
    ends: u64,
}

impl Token {
    /// What became of the token, and what to do. `members` are those that had joined by it.
    fn told(self, members: &str) -> String {
        if self.closed {
            return format!(
                "The site's join token that {members} used admits nobody any more. Nodes that are to join, or join \
                 again, need a new one (isthmus grid invite); those that have joined go on.\n"
            );
        }
        format!(
            "The site's join token that {members} used is open until {}: whoever has it can join, under another \
             name. The same command without --keep-token closes it.\n",
            date(Some(self.ends))
        )
    }
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
            token: None,
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

/// Prints members, and what became of the tokens by which revoked ones had joined.
fn show(members: Vec<(Member, Option<Token>)>, json: bool) -> anyhow::Result<()> {
    let now = unix_seconds(SystemTime::now());
    let lines = || members.iter().cloned().map(|(member, token)| Line { token, ..Line::new(member) });
    let header = ["member", "role", "owner", "state", "joined", "certificate until"];
    // One token may have admitted many of them.
    let mut tokens: BTreeMap<Token, Vec<&str>> = BTreeMap::new();
    for (member, token) in &members {
        token.iter().for_each(|token| tokens.entry(*token).or_default().push(&member.name));
    }
    let told = tokens.into_iter().map(|(token, members)| token.told(&members.join(", ")));
    let text = table(&header, &[], lines().map(|line| line.cells(now))) + &told.collect::<String>();
    print(&lines().collect::<Vec<_>>(), &text, json)
}

/// Runs `isthmus grid list`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn list(args: MembersArgs) -> anyhow::Result<()> {
    let members = Broker::find(&args.state).await?.members(args.owner.as_ref()).await?;
    show(members.into_iter().map(|member| (member, None)).collect(), args.json)
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
        revoked.extend(broker.revoke(name, remove, args.keep_token).await?);
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

    async fn revoke(
        &mut self,
        name: String,
        remove: bool,
        keep_token: bool,
    ) -> anyhow::Result<Option<(Member, Option<Token>)>> {
        let reply = answer(self.0.revoke(RevokeRequest { name, remove, keep_token })).await?;
        let token = Token { closed: reply.token_closed, ends: reply.token_ends };
        Ok(reply.member.map(|member| (member, (token.ends > 0).then_some(token))))
    }
}

async fn answer<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> anyhow::Result<T> {
    match timeout(BUDGET, call).await {
        Ok(Ok(response)) => Ok(response.into_inner()),
        Ok(Err(status)) => bail!("broker: {}", grpc::reason(&status)),
        Err(_) => bail!("the broker did not answer within {BUDGET:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_became_of_a_token_is_told() {
        let line = |token| {
            let member = Member { name: "n1.alpha".to_owned(), ..Member::default() };
            serde_json::to_value(Line { token, ..Line::new(member) }).unwrap()
        };
        let closed = Token { closed: true, ends: 1_800_000_000 };
        assert_eq!(
            (&line(Some(closed))["token_closed"], &line(None)["token_closed"]),
            (&true.into(), &().into())
        );
        for (token, want) in [
            (closed, "that n1.alpha used admits nobody any more"),
            (Token { closed: false, ..closed }, "open until 2027-01-15T08:00:00Z"),
        ] {
            assert!(token.told("n1.alpha").contains(want), "{want}");
        }
    }
}
