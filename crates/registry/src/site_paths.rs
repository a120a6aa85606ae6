//! Measured round trips and bandwidths between sites, and whether a site was reached
//! directly though a relay didn't reach it. One node of each pair of sites measures.

use std::collections::BTreeMap;
use std::time::Duration;

use isthmus_plan::measuring::{self, Pair};
use isthmus_rpc::contact::path_of;
use isthmus_wire::proto;
use isthmus_wire::{GridName, Label};

/// Shortest time between two measurements of bandwidth if the step in use changes. So a step that
/// works now and then isn't measured each time.
const NEW_WAY: Duration = Duration::from_secs(3600);

/// Two sites, in the order of their names.
type SitePair = (Label, Label);

/// The measured paths between sites.
#[derive(Debug, Default)]
pub(super) struct SitePaths {
    paths: BTreeMap<SitePair, SitePath>,
    /// When the last measurement with a site began.
    begun_unix_seconds: BTreeMap<Label, u64>,
}

#[derive(Debug, Default)]
struct SitePath {
    asked_unix_seconds: u64,
    /// The node that measures and its destination, until the report arrives.
    running: Option<(GridName, GridName)>,
    last: Option<proto::PathReport>,
    transfer: Option<Transfer>,
    /// The site of the pair to which the other site has connected directly; `None` if neither was.
    direct_to: Option<Label>,
    /// When a direct connection was last tried though a relay failed to connect.
    tried_unix_seconds: u64,
}

/// How fast data was transferred over a way.
#[derive(Debug, Clone, Copy)]
struct Transfer {
    way: (proto::Route, proto::Dial),
    sent_bytes_per_second: u64,
    received_bytes_per_second: u64,
    loss_ppm: Option<u32>,
    unix_ms: u64,
}

impl SitePaths {
    /// The last report of each pair, with a key that keeps the order of the pairs: a
    /// blank sorts before all characters of names.
    pub(super) fn by_pair(&self) -> impl Iterator<Item = (String, proto::PathReport)> {
        self.paths.iter().filter_map(|((a, b), path)| Some((format!("{a} {b}"), path.report()?)))
    }

    /// The last report between two sites; `None` if the last measurement failed.
    pub(super) fn between(&self, a: &Label, b: &Label) -> Option<proto::PathReport> {
        self.paths.get(&site_pair(a, b))?.report().filter(|report| report.failure.is_empty())
    }

    /// Whether the way between two sites loses so much that plans depend on it.
    pub(super) fn is_lossy(&self, a: &Label, b: &Label) -> bool {
        self.between(a, b).is_some_and(|report| path_of(&report).lossy().is_some())
    }

    /// Takes the report of a measurement in the background. Reports of nodes without
    /// an order are dropped.
    pub(super) fn take_background(&mut self, nodes: (GridName, GridName), report: proto::PathReport) {
        let path = self.paths.get_mut(&site_pair(&nodes.0.site, &nodes.1.site));
        if let Some(path) = path.filter(|path| path.running.as_ref() == Some(&nodes)) {
            path.running = None;
            path.set_direct(&nodes.1.site, &report);
            path.take(report);
        }
    }

    /// Takes the report of a measurement that a user asked for, if it is of the
    /// direction that the background measures.
    pub(super) fn take(&mut self, (from, to): &(GridName, GridName), report: proto::PathReport) {
        if from.site != to.site && initiator(&from.site, &to.site) == &from.site {
            self.paths.entry(site_pair(&from.site, &to.site)).or_default().take(report);
        }
    }

    /// How long ago a direct connection was tried though a relay failed to connect;
    /// `None` for never.
    pub(super) fn tried(&self, sites: &SitePair, now: u64) -> Option<Duration> {
        let path = self.paths.get(sites).filter(|path| path.tried_unix_seconds > 0)?;
        Some(age(path.tried_unix_seconds, now))
    }

    /// Notes that a direct connection between two sites is tried now.
    pub(super) fn trying(&mut self, sites: &SitePair, now: u64) {
        self.paths.entry(sites.clone()).or_default().tried_unix_seconds = now;
    }

    /// How long ago a measurement with a site began.
    pub(super) fn begun(&self, site: &Label, now: u64) -> Option<Duration> {
        self.begun_unix_seconds.get(site).map(|begun| age(*begun, now))
    }

    /// Whether a node of site `from` has connected directly to a node of site `to`.
    pub(super) fn has_connected(&self, from: &Label, to: &Label) -> bool {
        self.paths.get(&site_pair(from, to)).is_some_and(|path| path.direct_to.as_ref() == Some(to))
    }

    /// The sites of the pairs under measurement.
    pub(super) fn measuring(&self, now: u64) -> impl Iterator<Item = &Label> {
        let running = self.paths.iter().filter(move |(_, path)| {
            path.running.is_some() && age(path.asked_unix_seconds, now) < measuring::LIMIT
        });
        running.flat_map(|((a, b), _)| [a, b])
    }

    /// The facts by which the next pair to measure is chosen. `doubt` says that a site of the pair
    /// may be open though a relay didn't reach it.
    pub(super) fn pair(&self, sites: &SitePair, parties: [usize; 2], doubt: bool, now: u64) -> Pair {
        let Some(path) = self.paths.get(sites) else { return Pair { parties, ..Pair::default() } };
        let way = path.last.as_ref().map(|last| (last.route(), last.dial()));
        let transferred = path.transfer.and_then(|transfer| {
            let age = age(transfer.unix_ms / 1000, now);
            (Some(transfer.way) == way || age < NEW_WAY).then_some(age)
        });
        Pair {
            parties,
            asked: (path.asked_unix_seconds > 0).then(|| age(path.asked_unix_seconds, now)),
            transferred,
            doubt,
            failed: path.last.as_ref().is_none_or(|last| !last.failure.is_empty()),
            chance: chance(sites, path.asked_unix_seconds),
        }
    }

    /// Notes that `nodes` begin to measure; `None` if the plan has no step.
    pub(super) fn begin(&mut self, sites: &SitePair, nodes: Option<(GridName, GridName)>, now: u64) {
        if nodes.is_some() {
            for site in [&sites.0, &sites.1] {
                self.begun_unix_seconds.insert(site.clone(), now);
            }
        }
        let path = self.paths.entry(sites.clone()).or_default();
        (path.asked_unix_seconds, path.running) = (now, nodes);
    }
}

impl SitePath {
    /// Updates `direct_to`, by whether the acceptor's site has let a node of the other site in.
    fn set_direct(&mut self, acceptor: &Label, report: &proto::PathReport) {
        use proto::Reachability::{Reachable, Unknown};
        let taken = (report.failure.is_empty(), report.route(), report.dial());
        let tried = report.direct.as_ref().map(proto::Reach::result).unwrap_or_default();
        if tried == Reachable || taken == (true, proto::Route::EndToEnd, proto::Dial::Direct) {
            self.direct_to = Some(acceptor.clone());
        } else if (tried != Unknown || !report.failure.is_empty())
            && self.direct_to.as_ref() == Some(acceptor)
        {
            // Without a relay nobody tries: then no way at all says enough.
            self.direct_to = None;
        }
    }

    fn take(&mut self, report: proto::PathReport) {
        if report.transferred_unix_ms > 0 && report.failure.is_empty() {
            self.transfer = Some(Transfer {
                way: (report.route(), report.dial()),
                sent_bytes_per_second: report.sent_bytes_per_second,
                received_bytes_per_second: report.received_bytes_per_second,
                loss_ppm: report.loss_ppm,
                unix_ms: report.transferred_unix_ms,
            });
        }
        self.last = Some(report);
    }

    /// The last report, with the last bandwidth that was measured over the same step.
    fn report(&self) -> Option<proto::PathReport> {
        let mut report = self.last.clone()?;
        let same = |transfer: &Transfer| transfer.way == (report.route(), report.dial());
        if let Some(transfer) = self.transfer.filter(|transfer| report.failure.is_empty() && same(transfer)) {
            report.sent_bytes_per_second = transfer.sent_bytes_per_second;
            report.received_bytes_per_second = transfer.received_bytes_per_second;
            report.loss_ppm = transfer.loss_ppm;
            report.transferred_unix_ms = transfer.unix_ms;
        }
        Some(report)
    }
}

/// Two sites in the order of their names.
pub(super) fn site_pair(a: &Label, b: &Label) -> SitePair {
    if a <= b { (a.clone(), b.clone()) } else { (b.clone(), a.clone()) }
}

/// Which of two sites measures. Each site measures towards about half of the others.
pub(super) fn initiator<'a>(a: &'a Label, b: &'a Label) -> &'a Label {
    let even = (sum(a.as_str()) ^ sum(b.as_str())) & 1 == 0;
    if even == (a <= b) { a } else { b }
}

/// A number for a text, which differs between texts (FNV-1a, 32 bits).
fn sum(text: &str) -> u32 {
    text.bytes().fold(0x811c_9dc5, |sum, byte| (sum ^ u32::from(byte)).wrapping_mul(0x0100_0193))
}

fn chance((a, b): &SitePair, asked_unix_seconds: u64) -> u8 {
    let [chance, ..] = sum(&format!("{a} {b} {asked_unix_seconds}")).to_le_bytes();
    chance
}

/// How long ago a time in Unix seconds was.
pub(super) fn age(then_unix_seconds: u64, now: u64) -> Duration {
    Duration::from_secs(now.saturating_sub(then_unix_seconds))
}
