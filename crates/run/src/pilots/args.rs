//! The options about nodes of batch schedulers.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::bail;
use clap::Args;
use isthmus_common::quantity::ByteSize;
use isthmus_common::time::whole_seconds;
use isthmus_front::notes;

use super::wanted::{OfSite, SiteNodes};

/// How long to wait until all nodes are there, if the user doesn't say.
const WAIT: Duration = Duration::from_secs(24 * 3600);

/// Nodes of batch schedulers.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Nodes of batch schedulers")]
pub(crate) struct BatchArgs {
    /// Nodes that the batch schedulers of sites are to give, such as `alpha=4,beta=2`; or `alpha=4:16`,
    /// with 16 cores each.
    ///
    /// The user's own agents on the sites' login nodes submit the batch jobs (isthmus up --submit). All nodes
    /// are there before anything starts, and are given back at the end. `isthmus run --nodes` names others
    /// beside them. With --profile, `alpha,beta` names sites, and the profile says how many nodes are needed.
    #[arg(long, value_delimiter = ',', value_name = "SITE=NODES[:CORES]")]
    pub(crate) pilots: Vec<SiteNodes>,
    /// How long the nodes are needed, such as "2h"; by default what a profile says, or else what the
    /// schedulers give.
    #[arg(long, value_name = "TIME", value_parser = some_time)]
    pub(crate) time: Option<Duration>,
    /// How long to wait until all nodes are there; by default 1d.
    #[arg(long, value_name = "TIME", value_parser = whole_seconds)]
    wait: Option<Duration>,
    /// How long nodes that are there may wait for others, before all are given back; by default as --wait.
    /// What they cost meanwhile is told.
    #[arg(long, value_name = "TIME", value_parser = whole_seconds)]
    hold: Option<Duration>,
    /// Memory of each node, such as "64 GiB".
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<ByteSize>,
    /// A feature that each node must have, as its cluster calls it.
    #[arg(long = "tag", value_name = "WORD")]
    pub(crate) tags: Vec<String>,
    /// The queue (partition) at every site, or at one.
    #[arg(long, value_name = "[SITE=]WORD")]
    pub(crate) queue: Vec<OfSite>,
    /// An advance reservation.
    #[arg(long, value_name = "[SITE=]WORD")]
    pub(crate) reservation: Vec<OfSite>,
    /// The account that is charged.
    #[arg(long, value_name = "[SITE=]WORD")]
    pub(crate) account: Vec<OfSite>,
    /// Run nothing: say which nodes there would be, and when the batch schedulers would give them.
    #[arg(long)]
    pub(crate) start_estimate: bool,
}

/// Nodes of batch schedulers as a command asks for them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub batch: &'a BatchArgs,
    /// What this process notes of itself.
    pub note: &'a notes::Own,
    /// The socket of this node's agent; `None` for the default.
    pub socket: Option<&'a PathBuf>,
    pub quiet: bool,
    /// Nodes that are to be used beside.
    pub beside: &'a [String],
}

impl BatchArgs {
    /// How long to wait until all nodes are there.
    pub(super) fn wait(&self) -> Duration {
        self.wait.unwrap_or(WAIT)
    }

    /// How long nodes that are there may wait for others.
    pub(super) fn hold(&self) -> Duration {
        self.hold.unwrap_or(Duration::MAX)
    }

    /// Whether the command line says how many nodes of which sites.
    pub(crate) fn has_numbers(&self) -> bool {
        self.pilots.iter().any(|wanted| wanted.nodes.is_some())
    }

    /// Refuses a command line that no batch job can make good. `by_profile`: a profile says how many nodes
    /// are needed. `is_open`: schedulers may be asked even if `--pilots` names none.
    ///
    /// # Errors
    /// What is wrong.
    pub(crate) fn check(&self, by_profile: bool, is_open: bool) -> anyhow::Result<()> {
        let needs = [("--memory", self.memory.is_some()), ("--tag", !self.tags.is_empty())];
        let others = [
            ("--time", self.time.is_some()),
            ("--wait", self.wait.is_some()),
            ("--hold", self.hold.is_some()),
            ("--queue", !self.queue.is_empty()),
            ("--reservation", !self.reservation.is_empty()),
            ("--account", !self.account.is_empty()),
            ("--start-estimate", self.start_estimate && !by_profile),
        ];
        if self.pilots.is_empty()
            && !is_open
            && let Some(option) = first(needs.iter().chain(&others))
        {
            bail!(
                "{option} is for nodes of batch schedulers: say with --pilots how many, or with --profile and a launcher \
                 without numbers and --nodes"
            );
        }
        if let Some(wanted) = self.pilots.iter().find(|wanted| wanted.nodes.is_none() && !by_profile) {
            bail!("--pilots {0}: say how many nodes, such as {0}=4", wanted.site);
        }
        if self.has_numbers() && self.pilots.iter().any(|wanted| wanted.nodes.is_none()) {
            bail!("--pilots: say for each site how many nodes, or for none and the profile says so");
        }
        if by_profile
            && !self.has_numbers()
            && let Some(option) = first(&needs)
        {
            bail!("leave {option} out: the profile says what its groups need");
        }
        for (index, wanted) in self.pilots.iter().enumerate() {
            if self.pilots.iter().take(index).any(|other| other.site == wanted.site) {
                bail!("--pilots names site {} twice: add its nodes up", wanted.site);
            }
        }
        let words =
            [("--queue", &self.queue), ("--reservation", &self.reservation), ("--account", &self.account)];
        for (option, values) in words {
            for site in values.iter().filter_map(|value| value.site.as_ref()) {
                if !self.pilots.is_empty() && !self.pilots.iter().any(|wanted| wanted.site == *site) {
                    bail!("{option} names site {site}, of which --pilots asks for no nodes");
                }
            }
        }
        Ok(())
    }
}

/// The first option that is given.
fn first<'a>(options: impl IntoIterator<Item = &'a (&'static str, bool)>) -> Option<&'static str> {
    options.into_iter().find(|(_, is_given)| *is_given).map(|(option, _)| *option)
}

/// The word that holds for a site: its own, or that of all sites.
pub(crate) fn of_site<'a>(values: &'a [OfSite], site: &str) -> Option<&'a str> {
    let named = values.iter().find(|value| value.site.as_deref() == Some(site));
    named.or_else(|| values.iter().find(|value| value.site.is_none())).map(|value| value.value.as_str())
}

/// Reads for how long nodes are needed.
fn some_time(text: &str) -> Result<Duration, String> {
    const YEAR: Duration = Duration::from_secs(366 * 24 * 3600);
    let read = whole_seconds(text)?;
    if read.is_zero() || read > YEAR { Err("give a second to a year".to_owned()) } else { Ok(read) }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[derive(Debug, clap::Parser)]
    struct Cli {
        #[command(flatten)]
        batch: BatchArgs,
    }

    fn read(line: &str) -> BatchArgs {
        let words = std::iter::once("x").chain(line.split_whitespace());
        Cli::try_parse_from(words).unwrap().batch
    }

    #[test]
    fn what_no_batch_job_can_make_good_is_refused() {
        for (line, by_profile, want) in [
            ("", false, ""),
            ("--pilots a=2,b=2:4 --time 2h --tag gpu --queue a=short --queue long", false, ""),
            ("--pilots a,b --time 2h --queue a=short", true, ""),
            ("--queue c=short --wait 10m", true, ""),
            ("--pilots a=2 --memory 2GiB", true, ""),
            ("--time 2h", false, "--time is for nodes of batch schedulers"),
            ("--start-estimate", false, "--start-estimate is for"),
            ("--tag gpu", false, "--tag is for"),
            ("--pilots a=2,b", false, "--pilots b: say how many nodes, such as b=4"),
            ("--pilots a=2,b", true, "for each site how many nodes, or for none"),
            ("--pilots a,b --tag gpu", true, "leave --tag out"),
            ("--memory 2GiB", true, "leave --memory out"),
            ("--pilots a=1,b=1,a=2", false, "site a twice"),
            ("--pilots a=1 --account b=x", false, "--account names site b"),
        ] {
            let said = read(line)
                .check(by_profile, by_profile)
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default();
            assert!(said.contains(want) && said.is_empty() == want.is_empty(), "{line}: {said}");
        }
    }

    #[test]
    fn nodes_that_are_named_need_no_scheduler() {
        let check = |line: &str| read(line).check(true, false);
        assert!(check("--wait 10m").is_err() && check("--queue x").is_err());
        assert!(check("--start-estimate").is_ok() && check("").is_ok());
    }

    #[test]
    fn a_site_has_its_own_word_or_that_of_all() {
        let batch = read("--pilots a=1,b=1 --queue long --queue a=short");
        assert_eq!(["a", "b"].map(|site| of_site(&batch.queue, site)), [Some("short"), Some("long")]);
        assert_eq!(of_site(&batch.account, "a"), None);
        assert_eq!(batch.wait(), WAIT);
    }
}
