//! What patterns are measured with: private clusters, two pairs of HAProxy,
//! and a job of isthmus with a sender or receiver on each node.

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use serde::Deserialize;

use super::references::{self, Between};
use isthmus_lab::grid::Slow;

use crate::account::{CpuTimes, exact_cpu_time};
use crate::confine::Running;
use crate::connect::until_known;
use crate::grid::{Bench, Node, root};
use crate::line_client::{LineClient, milliseconds};
use crate::traffic::{Latency, Throughput};
use crate::tunnel::{itself, start};

/// How many nodes each site has.
pub(super) const NODES: usize = 4;
/// The front-end nodes, each of which runs a HAProxy of either pair.
pub(super) const FRONTS: [&str; 2] = ["fe.from", "fe.into"];
/// The port at which the job's receivers listen on every node.
const JOB_PORT: u16 = 7000;
/// The i-th node's plain receiver listens at this port plus i, since the NAT forwards each port to
/// one node.
pub(super) const PLAIN_PORT: u16 = 7000;
/// Each HAProxy listens at this port plus i for the i-th receiver.
pub(super) const HAPROXY_PORT: u16 = 8000;
/// The same of the HAProxy that encrypt.
pub(super) const SEALED_HAPROXY_PORT: u16 = 8100;

/// How senders and receivers are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Forwarding {
    /// Over the kernel's NAT at both ends.
    Plain,
    /// Over a user-level proxy on each front-end.
    TwoProxies,
    /// Over the gateway of the receivers' site. What leaves the senders' site passes the kernel's
    /// NAT.
    Gateway,
    /// Over the gateway of the receivers' site, encrypted from agent to agent.
    Sealed,
    /// Over a user-level proxy on each front-end, with TLS between them.
    TwoSealedProxies,
}

impl Forwarding {
    /// All of them, in the order of their numbers.
    pub(super) const ALL: [Self; 5] =
        [Self::Plain, Self::TwoProxies, Self::Gateway, Self::Sealed, Self::TwoSealedProxies];

    /// The name in the rows.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Plain => "plain routing",
            Self::TwoProxies => "two HAProxy",
            Self::Gateway => "one-gateway",
            Self::Sealed => "one-gateway encrypted",
            Self::TwoSealedProxies => "two HAProxy encrypted",
        }
    }

    /// The site that the senders are at.
    fn senders(self) -> &'static str {
        match self {
            Self::Plain => "plain-a",
            Self::TwoProxies | Self::Gateway | Self::TwoSealedProxies => "from",
            Self::Sealed => "sealed",
        }
    }
}

/// What senders do with messages of a given size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Traffic {
    /// A sender sends message after message, as fast as the connection takes them.
    Streams,
    /// A sender sends the next message when the receiver has sent the last one back.
    Answered,
}

impl Traffic {
    /// Both kinds of traffic.
    pub(crate) const ALL: [Self; 2] = [Self::Streams, Self::Answered];

    /// The traffic's name in the rows.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Streams => "streams",
            Self::Answered => "answered",
        }
    }
}

/// The report of `isthmus run`, as far as the benchmark reads it.
#[derive(Debug, Deserialize)]
struct Account {
    pairs: Vec<Pair>,
}

#[derive(Debug, Deserialize)]
struct Pair {
    ends: [String; 2],
    route: String,
    dial: String,
    encrypted: bool,
}

/// The clusters with all programs that run on them.
pub(super) struct Clusters {
    senders: Vec<(Forwarding, Vec<LineClient>)>,
    /// The address at which the receivers of plain routing are reached from outside.
    plain: Ipv4Addr,
    proxies: Ipv4Addr,
    job: Running,
    haproxies: Vec<Running>,
    sealed_haproxies: Vec<Running>,
    _receivers: Vec<Running>,
    bench: Bench,
}

impl Clusters {
    /// Brings the clusters up, and waits until every way works.
    pub(super) fn up() -> anyhow::Result<Self> {
        let bench = Bench::without_sshd("patterns", Slow::NONE)?;
        for site in ["from", "sealed"] {
            for node in 1..=NODES {
                let ends = [format!("n{node}.{site}"), format!("n{node}.into")];
                until_known(&bench, "one-gateway direct", [&ends[0], &ends[1]])?;
            }
        }
        let grid = &bench.lab().record().grid;
        let outside = |name: &str| {
            let site = grid.sites.iter().find(|site| site.name == name);
            site.map(|site| site.outside).with_context(|| format!("no site {name}"))
        };
        let (plain, beyond) = (outside("plain-b")?, outside("into")?);
        let receivers = references::receivers(&bench)?;
        let haproxies = references::proxies(&bench, beyond, Between::Plain)?;
        let sealed_haproxies = references::proxies(&bench, beyond, Between::Sealed)?;
        let mut senders = Vec::new();
        let mut pipes = Vec::new();
        for forwarding in Forwarding::ALL {
            let mut clients = Vec::new();
            for number in 1..=NODES {
                let node = format!("n{number}.{}", forwarding.senders());
                clients.push(match forwarding {
                    Forwarding::Plain | Forwarding::TwoProxies | Forwarding::TwoSealedProxies => {
                        let mut client = bench.lab().machine(&node)?.command(itself()?);
                        client.args(["traffic", "obey"]);
                        LineClient::start(client)?
                    }
                    Forwarding::Gateway | Forwarding::Sealed => {
                        let client = LineClient::at_pipes(
                            ["in", "out"].map(|end| bench.scratch().join(format!("{node}.{end}"))),
                        )?;
                        pipes.push(node);
                        client
                    }
                });
            }
            senders.push((forwarding, clients));
        }
        let job = job(&bench, &pipes)?;
        let proxies = node(&bench, FRONTS[0])?.address;
        Ok(Self { senders, plain, proxies, job, haproxies, sealed_haproxies, _receivers: receivers, bench })
    }

    /// Processor time so far of what forwards messages on a way, to the nanosecond: of both sites'
    /// gateways, or of both HAProxy of a pair. `None` where the kernel alone does, or where agents take part.
    fn spent(&self, forwarding: Forwarding) -> anyhow::Result<Option<CpuTimes>> {
        let of = |processes: &[Running]| processes.iter().map(|one| one.0.id()).collect();
        let pids: Vec<u32> = match forwarding {
            Forwarding::Plain | Forwarding::Sealed => return Ok(None),
            Forwarding::TwoProxies => of(&self.haproxies),
            Forwarding::TwoSealedProxies => of(&self.sealed_haproxies),
            Forwarding::Gateway => self.bench.services_in(|machine| FRONTS.contains(&machine))?,
        };
        exact_cpu_time(&pids).map(Some)
    }

    /// Half a round trip between the first nodes of both sites in seconds, and the processor seconds
    /// that forwarding a message takes.
    pub(super) fn half_rtt(
        &mut self,
        forwarding: Forwarding,
        size: u32,
        duration: Duration,
    ) -> anyhow::Result<Measured> {
        let line = format!("ping {} --size {size}", self.target(forwarding, 0));
        let before = self.spent(forwarding)?;
        let (_, senders) = &mut self.senders[forwarding as usize];
        let found: Latency = senders[0].ask(&line, duration).with_context(|| forwarding.name())?;
        let spent = spent_since(before, self.spent(forwarding)?)?;
        Ok(Measured {
            figure: found.half_rtt_seconds,
            cost: spent.map(|spent| spent / found.messages as f64),
        })
    }

    /// The rate of all senders of a pattern, which begin at once, and the processor seconds that
    /// forwarding a byte takes. Streams count the time from the first byte sent to the last byte
    /// arrived. Answered messages count half the median round trip, as MPI benchmarks do.
    pub(super) fn bytes_per_second(
        &mut self,
        forwarding: Forwarding,
        traffic: Traffic,
        (senders, receivers): (usize, usize),
        message: usize,
        duration: Duration,
    ) -> anyhow::Result<Measured> {
        let before = self.spent(forwarding)?;
        let (figure, bytes) = self.rate(forwarding, traffic, (senders, receivers), message, duration)?;
        let spent = spent_since(before, self.spent(forwarding)?)?;
        Ok(Measured { figure, cost: spent.map(|spent| spent / bytes) })
    }

    /// Bytes per second, and the bytes in all.
    fn rate(
        &mut self,
        forwarding: Forwarding,
        traffic: Traffic,
        (senders, receivers): (usize, usize),
        message: usize,
        duration: Duration,
    ) -> anyhow::Result<(f64, f64)> {
        let targets: Vec<_> =
            (0..senders).map(|sender| self.target(forwarding, sender % receivers)).collect();
        let (_, clients) = &mut self.senders[forwarding as usize];
        let clients = &mut clients[..senders];
        for (client, target) in clients.iter_mut().zip(&targets) {
            let what = match traffic {
                Traffic::Streams => format!("stream {target} --message {message}"),
                Traffic::Answered => format!("ping {target} --size {message}"),
            };
            client.send(&format!("{what} --wait --duration {}", milliseconds(duration)))?;
        }
        for client in &mut *clients {
            let _connected: serde_json::Value =
                client.receive(duration).with_context(|| forwarding.name())?;
        }
        for client in &mut *clients {
            client.send("")?;
        }
        let clients = clients.iter_mut();
        match traffic {
            Traffic::Streams => {
                let mut all = Throughput { bytes: 0, seconds: 0.0 };
                for client in clients {
                    let one: Throughput = client.receive(duration).with_context(|| forwarding.name())?;
                    all = Throughput { bytes: all.bytes + one.bytes, seconds: all.seconds.max(one.seconds) };
                }
                Ok((all.bytes as f64 / all.seconds, all.bytes as f64))
            }
            Traffic::Answered => {
                let (mut rate, mut bytes) = (0.0, 0.0);
                for client in clients {
                    let one: Latency = client.receive(duration).with_context(|| forwarding.name())?;
                    rate += message as f64 / one.half_rtt_seconds;
                    bytes += message as f64 * one.messages as f64;
                }
                Ok((rate, bytes))
            }
        }
    }

    /// Ends the job, and checks that its connections took the ways that were to be measured.
    pub(super) fn finish(mut self) -> anyhow::Result<()> {
        let targets: Vec<_> = (0..NODES).map(|receiver| self.target(Forwarding::Gateway, receiver)).collect();
        let (_, clients) = &mut self.senders[Forwarding::Gateway as usize];
        for target in targets {
            clients[0].send(&format!("stop {target}"))?;
        }
        // The end of their input ends the senders.
        self.senders.clear();
        let status = self.job.0.wait()?;
        ensure!(status.success(), "the job ended badly: {status}");
        let text =
            fs::read_to_string(self.bench.scratch().join(ACCOUNT)).context("the job left no report")?;
        let Account { pairs } = serde_json::from_str(&text)?;
        for (site, encrypted) in [("from", false), ("sealed", true)] {
            let mut count = 0;
            for pair in &pairs {
                if ![site, "into"].iter().all(|end| pair.ends.iter().any(|site| site == end)) {
                    continue;
                }
                count += 1;
                ensure!(
                    pair.route == "one-gateway" && pair.dial == "direct" && pair.encrypted == encrypted,
                    "not joined as was to be measured: {pair:?}"
                );
            }
            ensure!(count > 0, "no connection from {site} is in the job's report: {text}");
        }
        Ok(())
    }

    /// The address that a sender connects to for the receiver of this number. Receivers count
    /// from 0.
    fn target(&self, forwarding: Forwarding, receiver: usize) -> String {
        let number = receiver + 1;
        match forwarding {
            Forwarding::Plain => format!("{}:{}", self.plain, usize::from(PLAIN_PORT) + number),
            Forwarding::TwoProxies => format!("{}:{}", self.proxies, usize::from(HAPROXY_PORT) + number),
            Forwarding::TwoSealedProxies => {
                format!("{}:{}", self.proxies, usize::from(SEALED_HAPROXY_PORT) + number)
            }
            Forwarding::Gateway | Forwarding::Sealed => format!("n{number}.into:{JOB_PORT}"),
        }
    }
}

/// What was measured on a way.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Measured {
    /// A time in seconds, or a rate in bytes per second.
    pub figure: f64,
    /// Processor seconds of what forwards, per message or byte. `None` where nothing does alone.
    pub cost: Option<f64>,
}

/// Processor seconds between two looks.
fn spent_since(before: Option<CpuTimes>, after: Option<CpuTimes>) -> anyhow::Result<Option<f64>> {
    let spent = before.zip(after).map(|(before, after)| after.since(&before)).transpose()?;
    Ok(spent.map(|spent| spent.as_secs_f64()))
}

/// Name of the job's report among the benchmark's files.
const ACCOUNT: &str = "account.json";

/// Starts the job: a sender on each node of `senders`, at a pair of pipes, and a receiver on each
/// node of the site `into`.
fn job(bench: &Bench, senders: &[String]) -> anyhow::Result<Running> {
    let mut nodes = senders.to_vec();
    nodes.extend((1..=NODES).map(|number| format!("n{number}.into")));
    let script = root().join("bench/programs/patterns-job.sh");
    let head = nodes.first().context("no senders")?.clone();
    let mut command = bench.lab().machine(&head)?.command(bench.isthmus());
    command.args(["run", "--quiet", "--each", "--no-prefix", "--report"]);
    command.arg(bench.scratch().join(ACCOUNT));
    command.args(["--nodes", &nodes.join(","), "--"]);
    command.arg(script).arg(itself()?).arg(bench.scratch()).arg(format!("0.0.0.0:{JOB_PORT}"));
    start(command)
}

/// The node of this name.
pub(super) fn node<'a>(bench: &'a Bench, name: &str) -> anyhow::Result<&'a Node> {
    bench.nodes().iter().find(|node| node.name == name).with_context(|| format!("no node {name}"))
}
