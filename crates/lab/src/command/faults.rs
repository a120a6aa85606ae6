//! `isthmus lab cut`, `heal`, `set`, `flap`, `kill`, `freeze`, `thaw`, `nat`.

use std::net::Ipv4Addr;
use std::process::ExitCode;
use std::str::FromStr;
use std::time::Duration;

use clap_complete::engine::ArgValueCandidates;
use nix::sys::signal::Signal;

use super::interrupt::Interrupt;
use super::{Which, complete, guardian, output};
use crate::faults::Flap;
use crate::grid::Role;
use crate::lab::Running;

/// The lines to cut or heal.
#[derive(Debug, clap::Args)]
pub struct CutArgs {
    /// Which of the running labs is meant.
    #[command(flatten)]
    which: Which,
    /// A link: SITE or HOST. Or a machine, for all of its links: NODE.SITE, router.SITE.
    #[arg(value_name = "LINK|NODE", required = true, add = ArgValueCandidates::new(complete::targets))]
    targets: Vec<String>,
}

/// The lines to heal.
#[derive(Debug, clap::Args)]
pub struct HealArgs {
    /// Which of the running labs is meant.
    #[command(flatten)]
    which: Which,
    /// A link or machine that was cut.
    #[arg(
        value_name = "LINK|NODE",
        required_unless_present = "all",
        conflicts_with = "all",
        add = ArgValueCandidates::new(complete::cut)
    )]
    targets: Vec<String>,
    /// Heal all that is cut.
    #[arg(long)]
    all: bool,
}

/// The changes of a link.
#[derive(Debug, clap::Args)]
pub struct SetArgs {
    /// Which of the running labs is meant.
    #[command(flatten)]
    which: Which,
    /// The link: SITE or HOST.
    #[arg(add = ArgValueCandidates::new(complete::links))]
    link: String,
    /// What to change, as in a grid file: delay=20ms, jitter=2ms, rate=10Mbit/s (or none),
    /// queue=256KiB, loss=1%, burst=3, black-hole=1300 (or none); for one direction up.KEY=VALUE or down.KEY=VALUE.
    #[arg(value_name = "KEY=VALUE", required = true, add = ArgValueCandidates::new(complete::link_keys))]
    changes: Vec<String>,
}

/// How a link flaps.
#[derive(Debug, clap::Args)]
pub struct FlapArgs {
    /// Which of the running labs is meant.
    #[command(flatten)]
    which: Which,
    /// A link or machine, as for `cut`.
    #[arg(value_name = "LINK|NODE", add = ArgValueCandidates::new(complete::targets))]
    target: String,
    /// How long it carries nothing each time.
    #[arg(long, value_name = "TIME", default_value = "500ms", value_parser = humantime::parse_duration)]
    down: Duration,
    /// How long it carries packets in between.
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = humantime::parse_duration)]
    up: Duration,
    /// How often it is cut [default: until ctrl-C].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    count: Option<u32>,
}

/// The processes to kill.
#[derive(Debug, clap::Args)]
pub struct KillArgs {
    /// Which of the running labs is meant.
    #[command(flatten)]
    which: Which,
    /// NODE.SITE or HOST.
    #[arg(add = ArgValueCandidates::new(complete::machines))]
    node: String,
    /// Only this service: broker, relay, gateway or agent [default: all processes].
    #[arg(value_parser = role, add = ArgValueCandidates::new(complete::roles))]
    role: Option<Role>,
    /// The signal, by name or number.
    #[arg(long, value_name = "SIGNAL", default_value = "KILL", value_parser = signal)]
    signal: Signal,
}

/// A machine and its lab.
#[derive(Debug, clap::Args)]
pub struct NodeArgs {
    /// Which of the running labs is meant.
    #[command(flatten)]
    which: Which,
    /// NODE.SITE, HOST or router.SITE.
    #[arg(add = ArgValueCandidates::new(complete::machines))]
    node: String,
}

/// What happens to a NAT.
#[derive(Debug, clap::Subcommand)]
pub enum NatCommand {
    /// Have a site's router forget all mappings and sessions, as if their timers had run out.
    ///
    /// From then on packets from outside are unsolicited, until the inside sends again.
    Expire {
        /// Which of the running labs is meant.
        #[command(flatten)]
        which: Which,
        /// A site behind NAT or a stateful firewall.
        #[arg(add = ArgValueCandidates::new(complete::sites))]
        site: String,
    },
    /// Restart a site's router: an outage, after which it remembers nothing.
    ///
    /// TCP connections from before don't come back.
    Restart {
        /// Which of the running labs is meant.
        #[command(flatten)]
        which: Which,
        /// A site behind NAT or a stateful firewall.
        #[arg(add = ArgValueCandidates::new(complete::sites))]
        site: String,
        /// Length of the outage.
        #[arg(long = "for", value_name = "TIME", default_value = "1s", value_parser = humantime::parse_duration)]
        outage: Duration,
    },
    /// Change a site's outside address.
    Move {
        /// Which of the running labs is meant.
        #[command(flatten)]
        which: Which,
        /// A site behind NAT.
        #[arg(add = ArgValueCandidates::new(complete::sites))]
        site: String,
        /// The new address, a free one of the wide area.
        address: Ipv4Addr,
    },
}

fn role(text: &str) -> Result<Role, String> {
    let found = Role::ALL.into_iter().find(|role| role.command() == text);
    found.ok_or_else(|| format!("no such service; there are: {}", Role::ALL.map(Role::command).join(", ")))
}

fn signal(text: &str) -> Result<Signal, String> {
    let upper = text.to_ascii_uppercase();
    let by_number = text.parse::<i32>().ok().and_then(|number| Signal::try_from(number).ok());
    let by_name = || Signal::from_str(&upper).or_else(|_| Signal::from_str(&format!("SIG{upper}"))).ok();
    by_number.or_else(by_name).ok_or_else(|| "no such signal; try KILL, TERM, INT, HUP or STOP".to_owned())
}

pub(super) fn cut(args: &CutArgs) -> anyhow::Result<ExitCode> {
    let lab = args.which.running()?;
    for target in &args.targets {
        let names = lab.cut(target)?;
        output::print(format!("{} cut: nothing passes until isthmus lab heal {target}\n", are(&names)))?;
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn heal(args: &HealArgs) -> anyhow::Result<ExitCode> {
    let lab = args.which.running()?;
    let mut healed = Vec::new();
    if args.all {
        healed = lab.heal_all()?;
    }
    for target in &args.targets {
        healed.extend(lab.heal(target)?);
    }
    let message =
        if healed.is_empty() { "nothing was cut\n".to_owned() } else { format!("{} healed\n", are(&healed)) };
    output::print(message)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn set(args: &SetArgs) -> anyhow::Result<ExitCode> {
    let link = args.which.running()?.set_link(&args.link, &args.changes)?;
    let message = if link.up == link.down {
        format!("{}: {}\n", args.link, link.up)
    } else {
        format!("{} up: {}\n{} down: {}\n", args.link, link.up, args.link, link.down)
    };
    output::print(message)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn flap(args: &FlapArgs) -> anyhow::Result<ExitCode> {
    let lab = args.which.running()?;
    let FlapArgs { target, down, up, count, .. } = args;
    crate::faults::find(&lab.record()?, target)?;
    // From here on a signal ends the flapping, not the process.
    let interrupt = Interrupt::prepare()?;
    let guardian = guardian::start(|| drop(lab.heal(target)))?;
    let pause = |time| !interrupt.wait(time);
    let changed = |is_up| {
        // The listener may have left; the fault goes on.
        let _ = output::print(format!("{target} {}\n", if is_up { "up" } else { "down" }));
    };
    let times = lab.flap(target, &Flap { down: *down, up: *up, count: *count }, pause, changed)?;
    guardian.dismiss();
    output::print(format!("{target} healed after {times} {}\n", if times == 1 { "cut" } else { "cuts" }))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn kill(args: &KillArgs) -> anyhow::Result<ExitCode> {
    let count = args.which.running()?.kill(&args.node, args.role, args.signal)?;
    output::print(format!("{}: {} sent to {}\n", args.node, args.signal, processes(count)))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn freeze(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    let count = args.which.running()?.freeze(&args.node)?;
    output::print(format!("{}: {} frozen\n", args.node, processes(count)))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn thaw(args: &NodeArgs) -> anyhow::Result<ExitCode> {
    let count = args.which.running()?.thaw(&args.node)?;
    output::print(format!("{}: {} thawed\n", args.node, processes(count)))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn nat(command: &NatCommand) -> anyhow::Result<ExitCode> {
    let message = match command {
        NatCommand::Expire { which, site } => {
            let count = which.running()?.nat(site)?.expire()?;
            format!("{site}: {count} {} forgotten\n", if count == 1 { "session" } else { "sessions" })
        }
        NatCommand::Restart { which, site, outage } => {
            which.running()?.nat(site)?.restart(*outage)?;
            format!("{site}: the router is back after {outage:?}, all state forgotten\n")
        }
        NatCommand::Move { which, site, address } => {
            let lab = which.running()?;
            lab.nat(site)?.move_to(*address)?;
            format!("{site}: outside address is {address}\n")
        }
    };
    output::print(message)?;
    Ok(ExitCode::SUCCESS)
}

fn processes(count: usize) -> String {
    if count == 1 { "1 process".to_owned() } else { format!("{count} processes") }
}

fn are(names: &[String]) -> String {
    format!("{} {}", names.join(", "), if names.len() == 1 { "is" } else { "are" })
}

impl Which {
    /// The running lab that the options select.
    pub(super) fn running(&self) -> anyhow::Result<Running> {
        Ok(Running::find(self.lab.as_deref())?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_are_known_by_name_and_number() {
        for text in ["KILL", "kill", "SIGKILL", "9"] {
            assert_eq!(signal(text), Ok(Signal::SIGKILL), "{text}");
        }
        assert!(signal("MURDER").unwrap_err().contains("TERM"));
        assert!(signal("99").is_err());
        assert_eq!(role("agent"), Ok(Role::Agent));
        assert!(role("agnet").unwrap_err().contains("gateway"));
    }
}
