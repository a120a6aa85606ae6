//! Ranks where a profile wants them (paper 2, section 3.2): on nodes with agents, and on nodes that
//! batch schedulers give for it.
//!
//! | module | what |
//! |---|---|
//! | [`line`] | the launcher's command line |
//! | [`offered`] | the nodes that there are |
//! | [`asking`] | asks the grid and the schedulers for them |
//! | [`shares`] | from a placement to batch jobs and nodes |
//! | [`told`] | the words for it |

mod asking;
mod line;
mod offered;
mod shares;
mod told;

pub(crate) use line::{ByUser, Line};

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context as _, bail};
use isthmus_front::notes;
use isthmus_front::output::print;
use isthmus_matching::{Placement, Refusal, place};
use isthmus_profile::launch::{Got, Share};
use isthmus_profile::{Profile, Ranks};
use isthmus_wire::proto;
use serde::Serialize;

use crate::args::RunArgs;
use crate::given::Given;
use crate::kept::KeptNodes;
use crate::pilots::{Asking, Pilots, scheduler};
use crate::programs::NamedProgram;
use crate::progress::Progress;
use crate::ranks::NodeRanks;
use crate::signals::{Interrupted, Signals};
use crate::tries::Tries;
use asking::Found;
use offered::{Offered, When};
use shares::Parts;

/// How long the search for a placement may take.
const SEARCH: Duration = Duration::from_secs(5);
/// How long it is tried again if something is away, where the command line doesn't say.
const TRY_FOR: Duration = Duration::from_secs(30);

/// What the ranks of a run are told of its profile, and where they go.
#[derive(Debug, Clone, Default)]
pub(crate) struct Placed {
    /// The groups, each with its number of ranks.
    pub groups: Vec<proto::Group>,
    /// Where isthmus has placed the ranks of each group; empty if the launcher has.
    pub shares: Vec<Vec<NodeRanks>>,
    /// Whether topologies may have their ranks in another order.
    pub reorder: bool,
    /// Bytes of free memory that nodes must have for their ranks, by their names.
    pub memory: BTreeMap<String, u64>,
    /// The programs that isthmus starts, and where; empty if the launcher places the ranks.
    pub programs: Vec<NamedProgram>,
}

impl Placed {
    /// The groups of a profile whose ranks the launcher places.
    pub(crate) fn by_launcher(profile: &Profile) -> Self {
        let ranks = profile.groups.iter().map(|group| group.ranks.most);
        Self { groups: groups(profile, ranks), reorder: profile.reorder, ..Self::default() }
    }

    /// What each group of the profile got.
    pub(crate) fn got(&self) -> Vec<GroupGot> {
        let group = |(index, group): (usize, &proto::Group)| GroupGot {
            name: group.name.clone(),
            ranks: group.ranks,
            nodes: self.shares.get(index).cloned(),
        };
        self.groups.iter().enumerate().map(group).collect()
    }
}

/// A group of the job's profile, and what it got.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct GroupGot {
    pub name: String,
    pub ranks: u32,
    /// Its nodes; absent if the launcher has placed its ranks.
    pub nodes: Option<Vec<NodeRanks>>,
}

/// Where nodes are looked for.
#[derive(Debug, Clone)]
pub(crate) struct Source<'a> {
    asking: Asking<'a>,
    /// Nodes and sites to choose from. If there are none, and no sites whose schedulers are asked, all of
    /// the user's.
    names: Vec<String>,
    /// Nodes that a batch job or an allocation gives, which are those of `names`.
    given: Option<&'a Given>,
    /// How long it is tried again if something is away.
    try_for: Duration,
}

impl<'a> Source<'a> {
    /// All nodes and schedulers of the user, or the schedulers that the command line names.
    pub(crate) fn all(asking: Asking<'a>) -> Self {
        Self { asking, names: Vec::new(), given: None, try_for: TRY_FOR }
    }

    /// What a run's command line names, or a batch job gives; else as [`all`](Self::all).
    ///
    /// # Errors
    /// If the command line has the profile's numbers as well.
    pub(crate) fn of(
        args: &'a RunArgs,
        note: &'a notes::Own,
        given: Option<&'a Given>,
    ) -> anyhow::Result<Self> {
        if args.min_nodes.is_some() {
            bail!(
                "--min-nodes is for runs whose ranks the launcher places, and the profile has its own numbers"
            );
        }
        let names = given.map_or_else(|| args.nodes.clone(), |given| given.names(args));
        Ok(Self { asking: args.asking(note), names, given, try_for: args.try_for })
    }
}

/// A placement, and what it was made of.
struct Chosen {
    offered: Offered,
    parts: Parts,
}

/// The nodes of a placement.
struct Had {
    chosen: Chosen,
    /// The pilots that were started for it, if any.
    pilots: Option<Pilots>,
    /// Each group's nodes.
    shares: Vec<Vec<Share>>,
}

/// Places the ranks of a profile's groups, and has schedulers give nodes where that is needed. These
/// are put into `given`. Returns the command line with which the run goes on.
///
/// # Errors
/// If the grid doesn't meet the profile, the message says which requirements it is about; or if a
/// scheduler gives no nodes; [`Interrupted`] if a signal comes.
pub(crate) async fn run(
    (args, note): (&RunArgs, &notes::Own),
    (profile, line): (&Profile, &Line),
    given: &mut Option<Given>,
    progress: &mut Progress,
    signals: &mut Signals,
) -> anyhow::Result<RunArgs> {
    let source = Source::of(args, note, given.as_ref())?;
    let Had { chosen, pilots, shares } = have(&source, profile, progress, signals).await?;
    let mut args = args.clone();
    if given.is_none() {
        args.nodes = chosen.parts.standing();
    }
    if let Some(pilots) = pilots {
        *given = Some(Given::Pilots(pilots));
    }
    let ranks = shares.iter().map(|shares| shares.iter().map(|share| share.ranks.get()).sum::<u32>());
    args.placed = Placed {
        groups: groups(profile, ranks),
        shares: shares.iter().map(|shares| shares.iter().map(of_node).collect()).collect(),
        reorder: profile.reorder,
        memory: chosen.parts.memory(profile),
        programs: line.programs(profile, &shares),
    };
    args.command = line.command(profile, &Got::Nodes(shares))?;
    Ok(args)
}

/// Has nodes for the groups of a profile, in the order of the groups; and the pilots that give them, if
/// any is needed.
///
/// # Errors
/// As [`run`].
pub(crate) async fn keep(
    source: &Source<'_>,
    profile: &Profile,
    progress: &mut Progress,
    signals: &mut Signals,
) -> anyhow::Result<(KeptNodes, Option<Pilots>)> {
    let Had { pilots, shares, .. } = have(source, profile, progress, signals).await?;
    let mut kept = KeptNodes::default();
    for (group, shares) in profile.groups.iter().zip(&shares) {
        let first = kept.names.len();
        kept.names.extend(shares.iter().map(|share| share.node.to_string()));
        for tag in &group.needs.tags {
            kept.tags.entry(tag.as_str().to_owned()).or_default().extend(first..kept.names.len());
        }
    }
    Ok((kept, pilots))
}

/// Chooses where the groups go, and has schedulers give nodes where that is needed.
async fn have(
    source: &Source<'_>,
    profile: &Profile,
    progress: &mut Progress,
    signals: &mut Signals,
) -> anyhow::Result<Had> {
    let asking = source.asking;
    let (found, chosen) = choose(source, profile, progress, signals).await?;
    if !asking.quiet {
        found.unasked.iter().for_each(|line| progress.message(line));
    }
    let orders = orders(asking, &found, &chosen);
    let mut names = vec![Vec::new(); orders.len()];
    let mut pilots = None;
    if !orders.is_empty() {
        let started = Pilots::start(asking, orders, progress, signals).await?;
        for (index, names) in names.iter_mut().enumerate() {
            *names = started.names_of(index);
        }
        pilots = Some(started);
    }
    let shares = chosen.parts.shares(&names);
    if !asking.quiet {
        progress.message(&told::got(profile, &shares, &chosen.offered.offer));
    }
    Ok(Had { chosen, pilots, shares })
}

/// Says where the ranks would go, and when the schedulers would give nodes for it. Nothing is
/// submitted.
///
/// # Errors
/// As [`run`].
pub(crate) async fn estimate(
    source: &Source<'_>,
    profile: &Profile,
    progress: &mut Progress,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let (found, chosen) = choose(source, profile, progress, signals).await?;
    let orders = orders(source.asking, &found, &chosen);
    let starts = tokio::select! {
        starts = scheduler::starts_of(&found.agent, &orders) => starts?,
        signal = signals.next() => return Err(Interrupted(signal).into()),
    };
    progress.clear();
    print(&starts, &told::planned(profile, &chosen.parts, &starts), false)
}

fn of_node(share: &Share) -> NodeRanks {
    NodeRanks { node: share.node.to_string(), ranks: share.ranks.get().into() }
}

/// The groups of a profile, with these numbers of ranks.
fn groups(profile: &Profile, ranks: impl Iterator<Item = u32>) -> Vec<proto::Group> {
    let group =
        |(group, ranks): (&isthmus_profile::Group, u32)| proto::Group { name: group.name.to_string(), ranks };
    profile.groups.iter().zip(ranks).map(group).collect()
}

/// Finds out what there is, and chooses where the groups go.
async fn choose(
    source: &Source<'_>,
    profile: &Profile,
    progress: &mut Progress,
    signals: &mut Signals,
) -> anyhow::Result<(Found, Chosen)> {
    let asking = source.asking;
    let time = asking.batch.time.or(profile.time);
    progress.show("looking for nodes for the profile's groups");
    let mut tries = Tries::begin(source.try_for);
    let found = loop {
        let found = tokio::select! {
            found = asking::find(source, time, progress) => found,
            signal = signals.next() => return Err(Interrupted(signal).into()),
        };
        match found {
            Ok(found) => break found,
            Err(error) => tries.again(error, progress, (&mut *signals, asking.quiet)).await?,
        }
    };
    if found.standing.is_empty() && found.schedulers.is_empty() {
        let none =
            if source.names.is_empty() { "no node of yours is free" } else { "these nodes start no ranks" };
        let schedulers = match found.unasked.as_slice() {
            [] if source.names.is_empty() => "; no agent of yours submits batch jobs".to_owned(),
            lines => lines.iter().map(|line| format!("; {line}")).collect(),
        };
        bail!("not started: {none}{schedulers}");
    }
    // What has to be waited for is asked for at the least.
    let least = Profile { groups: profile.groups.iter().cloned().map(at_least).collect(), ..profile.clone() };
    let mut stages = vec![(When::Now, profile)];
    if !found.schedulers.is_empty() {
        stages.push((When::Later, &least));
    }
    let last = stages.len() - 1;
    for (stage, (when, profile)) in stages.into_iter().enumerate() {
        let offered = Offered::new(&found.standing, &found.schedulers, &found.paths, when);
        match search(profile, &offered, signals).await? {
            Ok(placement) => {
                let parts = Parts::new(&placement, &offered, profile, time);
                return Ok((found, Chosen { offered, parts }));
            }
            Err(Refusal::Impossible(_)) if stage < last => {}
            Err(refusal) => {
                let unasked: String = found.unasked.iter().map(|line| format!("\n({line})")).collect();
                bail!("not started: {refusal}{unasked}")
            }
        }
    }
    bail!("not started: the profile has no groups")
}

fn at_least(mut group: isthmus_profile::Group) -> isthmus_profile::Group {
    group.ranks = Ranks { most: group.ranks.least, ..group.ranks };
    group
}

/// Searches on a thread of its own, so that a signal ends the wait.
async fn search(
    profile: &Profile,
    offered: &Offered,
    signals: &mut Signals,
) -> anyhow::Result<Result<Placement, Refusal>> {
    let (profile, offer) = (profile.clone(), offered.offer.clone());
    let searching = tokio::task::spawn_blocking(move || place(&profile, &offer, SEARCH));
    tokio::select! {
        placement = searching => placement.context("the search for a placement failed"),
        signal = signals.next() => Err(Interrupted(signal).into()),
    }
}

/// What the agents that submit are asked for.
fn orders(asking: Asking<'_>, found: &Found, chosen: &Chosen) -> Vec<proto::PilotOrder> {
    let order = |wanted: &shares::Wanted| {
        let scheduler = found.schedulers.get(wanted.scheduler)?;
        Some(crate::pilots::order(asking.batch, &scheduler.submitter, wanted.nodes.clone()))
    };
    chosen.parts.orders.iter().filter_map(order).collect()
}
