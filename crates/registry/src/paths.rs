//! Measurements between nodes that users asked for.

use std::collections::BTreeMap;

use isthmus_plan::measuring;
use isthmus_wire::bounds::Bounded as _;
use isthmus_wire::proto::{self, attach_down};
use isthmus_wire::{GridName, VirtualAddress};

use super::{Effect, LookupError, Party, Refused, Registry, RendezvousError, SessionId, View};

/// Most pairs of nodes that are remembered; beyond that, the oldest pair is dropped.
const MOST: usize = 4096;
/// How long a measurement may take before it counts as lost.
const PATIENCE_SECONDS: u64 = measuring::LIMIT.as_secs();
/// Most measurements that a caller may order within a minute.
const ORDERS: u32 = 60;
const MINUTE: u64 = 60;
/// Shortest time between two measurements of the same pair.
const PAUSE_SECONDS: u64 = 5;

/// The measured paths between nodes.
#[derive(Debug, Default)]
pub(super) struct Paths {
    by_pair: BTreeMap<(GridName, GridName), Path>,
    /// When each caller's minute began, in Unix seconds, and how many orders came since.
    orders: BTreeMap<String, (u64, u32)>,
}

#[derive(Debug, Default)]
struct Path {
    started_unix_seconds: u64,
    running: bool,
    last: Option<proto::PathReport>,
}

impl Paths {
    /// The last report of each pair, with a key that keeps the order of the pairs: a
    /// blank sorts before all characters of names.
    pub(super) fn by_pair(&self) -> impl Iterator<Item = (String, &proto::PathReport)> {
        let key = |(from, to): &(GridName, GridName)| {
            format!("{} {} {} {}", from.node, from.site, to.node, to.site)
        };
        self.by_pair.iter().filter_map(move |(pair, path)| Some((key(pair), path.last.as_ref()?)))
    }

    /// The pairs under measurement.
    pub(super) fn running(&self, now: u64) -> impl Iterator<Item = &(GridName, GridName)> {
        let running = move |path: &Path| {
            path.running && now.saturating_sub(path.started_unix_seconds) < PATIENCE_SECONDS
        };
        self.by_pair.iter().filter(move |(_, path)| running(path)).map(|(pair, _)| pair)
    }

    /// Counts an order of a caller. An error says that the caller orders too often.
    fn allow(&mut self, caller: String, now: u64) -> Result<(), RendezvousError> {
        let ended = |since: u64| now.saturating_sub(since) >= MINUTE;
        if self.orders.len() >= MOST {
            self.orders.retain(|_, (since, _)| !ended(*since));
        }
        let (since, count) = self.orders.entry(caller).or_insert((now, 0));
        if ended(*since) {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        match *count {
            0..=ORDERS => Ok(()),
            _ => Err(RendezvousError::TooOften(format!(
                "at most {ORDERS} measurements in {MINUTE} s may be ordered; try again in a minute"
            ))),
        }
    }

    /// Begins a measurement, unless one of the pair is under way or has just ended. Returns whether
    /// it begins.
    fn begin(&mut self, pair: (GridName, GridName), now: u64) -> bool {
        let path = self.by_pair.entry(pair).or_default();
        let since = now.saturating_sub(path.started_unix_seconds);
        if since < if path.running { PATIENCE_SECONDS } else { PAUSE_SECONDS } {
            return false;
        }
        (path.running, path.started_unix_seconds) = (true, now);
        self.make_room();
        true
    }

    fn make_room(&mut self) {
        if self.by_pair.len() > MOST {
            let oldest = self.by_pair.iter().min_by_key(|(_, path)| path.started_unix_seconds);
            if let Some(pair) = oldest.map(|(pair, _)| pair.clone()) {
                self.by_pair.remove(&pair);
            }
        }
    }

    fn reply(&self, pair: &(GridName, GridName), now: u64) -> proto::MeasureReply {
        let Some(path) = self.by_pair.get(pair) else { return proto::MeasureReply::default() };
        let running = path.running && now.saturating_sub(path.started_unix_seconds) < PATIENCE_SECONDS;
        proto::MeasureReply { running, last: path.last.clone() }
    }
}

/// The orders to the node that is measured and to the node that measures, each by its gateway. The
/// measured node's order is sent first, as its way may be longer.
pub(super) fn orders(
    (from, to): &(GridName, GridName),
    [to_gateway, from_gateway]: [Party; 2],
    order: proto::MeasureOrder,
) -> [Effect; 2] {
    let serve = proto::MeasureOrder {
        node: to.node.to_string(),
        initiator: from.to_string(),
        try_direct: false,
        ..order.clone()
    };
    [(to_gateway, serve), (from_gateway, order)]
        .map(|(to, order)| Effect::Send { to, message: attach_down::Kind::Measure(order) })
}

impl Registry {
    /// Has a node measure the path to another node, unless a measurement is under way or has just
    /// ended. The other node takes part by an order, too. The reply has the last report.
    ///
    /// # Errors
    /// If a node is unknown or absent, or no gateway can pass the order on. If the caller may not
    /// have this node measure, or orders too often.
    pub fn measure(
        &mut self,
        view: &View,
        request: &proto::MeasureRequest,
        now_unix_seconds: u64,
    ) -> Result<(proto::MeasureReply, Vec<Effect>), RendezvousError> {
        let (from, origin) = self.up(&request.from)?;
        if request.start
            && let Some(entry) = self.nodes.get(&origin)
        {
            view.check_measure(entry)?;
        }
        let (to, destination) = self.up(&request.to)?;
        let pair = (from, to);
        let mut effects = Vec::new();
        if request.start {
            let gateways = [self.home(&pair.1)?, self.home(&pair.0)?];
            self.paths.allow(view.key(), now_unix_seconds)?;
            if self.paths.begin(pair.clone(), now_unix_seconds) {
                let order = proto::MeasureOrder {
                    node: pair.0.node.to_string(),
                    destination: destination.ip().into(),
                    ..proto::MeasureOrder::default()
                };
                effects = orders(&pair, gateways, order).into();
            }
        }
        Ok((self.paths.reply(&pair, now_unix_seconds), effects))
    }

    /// Takes the report of a measurement, which a gateway passed on.
    ///
    /// # Errors
    /// If the node is of another site, a name is malformed, or a bound is exceeded.
    pub fn measured(
        &mut self,
        session: SessionId,
        report: proto::PathReport,
    ) -> Result<Vec<Effect>, Refused> {
        let name = |text: &str| text.parse::<GridName>().map_err(|error| Refused(error.to_string()));
        let pair = (name(&report.from)?, name(&report.to)?);
        if self.gateway_of(session).is_none_or(|(site, _)| site != pair.0.site) {
            return Err(Refused(format!("{} is not of this site", pair.0)));
        }
        report.check()?;
        let (from, to) = (pair.0.site.clone(), pair.1.site.clone());
        let in_doubt = report.background && report.direct.is_some();
        let before = (self.site_paths.has_connected(&from, &to), self.site_paths.is_lossy(&from, &to));
        if report.background {
            self.site_paths.take_background(pair, report);
        } else {
            // Reports that no user asked for are dropped, so that a site can't fill the table.
            let Some(path) = self.paths.by_pair.get_mut(&pair) else { return Ok(Vec::new()) };
            path.running = false;
            path.last = Some(report.clone());
            self.site_paths.take(&pair, report);
        }
        // Plans depend on these reports.
        let connected = in_doubt && self.site_paths.has_connected(&from, &to) != before.0;
        let changed = connected || self.site_paths.is_lossy(&from, &to) != before.1;
        Ok(if changed { self.between_changed(&from, &to) } else { Vec::new() })
    }

    fn up(&self, name: &str) -> Result<(GridName, VirtualAddress), RendezvousError> {
        let lookup = proto::LookupRequest { name: name.to_owned(), ..proto::LookupRequest::default() };
        let found = self.resolve(&lookup).and_then(|address| Ok((self.present(address)?.0, address)));
        let (entry, address) = found.map_err(RendezvousError::Lookup)?;
        if entry.presence == super::Presence::Down {
            return Err(RendezvousError::Lookup(LookupError::Absent(entry.name.to_string())));
        }
        Ok((entry.name.clone(), address))
    }
}
