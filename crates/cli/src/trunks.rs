//! `isthmus trunks`: the trunks of this node.

use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use isthmus_front::format::{bytes, count, milliseconds};
use isthmus_front::local;
use isthmus_front::output::print;
use isthmus_rpc::enums::{dial_name, route_name};
use isthmus_wire::proto::{self, TrunksReply, TrunksRequest};
use serde::Serialize;

use crate::status::table;

/// How long the agent may take to answer.
const BUDGET: Duration = Duration::from_secs(20);

/// Show this node's trunks: the encrypted connections to nodes of other sites.
///
/// Programs' connections share them. It says whether they are cut. If this node's gateway
/// keeps trunks with gateways of other sites, it shows those, too.
///
/// A trunk sends over its carriers. Their figures are the kernel's, of what this end
/// sends. A trunk that this node has not made says how the other node has dialed it;
/// gateways don't tell each other.
#[derive(Debug, Args)]
pub(crate) struct TrunksArgs {
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

/// The output of `isthmus trunks --json`.
#[derive(Debug, Serialize)]
struct View {
    trunks: Vec<Trunk>,
    /// How many trunks aren't shown: those beyond the most, and those that didn't answer in time.
    left_out: u32,
    /// The trunks of this node's gateway with gateways of other sites.
    site_trunks: Vec<Trunk>,
    site_left_out: u32,
    /// Why the gateway hasn't told of its trunks; absent if it has.
    site_failure: Option<String>,
}

#[derive(Debug, Serialize)]
struct Trunk {
    peer: String,
    /// Whether this end made the trunk, and so dials its carriers.
    made_here: bool,
    route: String,
    dial: String,
    relay: String,
    age_seconds: f64,
    /// For how many seconds no carrier has worked; absent while one does.
    cut_seconds: Option<f64>,
    pauses: u32,
    paused_seconds: f64,
    streams: u32,
    /// Bytes that were taken from programs and are not acknowledged.
    held_bytes: u64,
    /// Bytes that have come and were not read.
    unread_bytes: u64,
    carriers: Vec<Carrier>,
}

#[derive(Debug, Serialize)]
struct Carrier {
    /// Whether the carrier is for small frames alone.
    small: bool,
    /// Whether the carrier's other end is heard.
    live: bool,
    round_trip_ms: f64,
    congestion_window_bytes: u64,
    bytes_per_second: u64,
    /// Its congestion control's name; absent if it isn't known.
    congestion_control: Option<String>,
    /// Who decided that, and why.
    congestion_control_by: &'static str,
    /// Most bytes per second that isthmus lets it send; absent if its congestion control decides alone.
    bound_bytes_per_second: Option<u64>,
    /// Bytes that wait in the carrier's socket.
    unsent_bytes: u64,
    data_segments: u64,
    retransmitted_segments: u64,
    /// How many retransmission timeouts the carrier had; absent where the kernel doesn't tell
    /// (before Linux 6.7).
    timeouts: Option<u64>,
    /// The addresses of this end and of the other one.
    ends: String,
}

/// Runs `isthmus trunks`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(args: TrunksArgs) -> anyhow::Result<()> {
    let mut client = local::connect(&local::socket()).await?;
    let asking = client.trunks(TrunksRequest {});
    let late = || format!("this node's agent doesn't answer within {BUDGET:?}");
    let reply = tokio::time::timeout(BUDGET, asking).await.with_context(late)?.map_err(local::failure)?;
    let view = View::new(reply.into_inner());
    print(&view, &view.text(), args.json)
}

impl View {
    fn new(reply: TrunksReply) -> Self {
        let trunks = |trunks: Vec<proto::Trunk>| trunks.into_iter().map(Trunk::new).collect();
        Self {
            trunks: trunks(reply.trunks),
            left_out: reply.left_out,
            site_trunks: trunks(reply.site_trunks),
            site_left_out: reply.site_left_out,
            site_failure: Some(reply.site_failure).filter(|reason| !reason.is_empty()),
        }
    }

    fn text(&self) -> String {
        let mut text = match (self.trunks.is_empty(), self.left_out) {
            (true, 0) => "this node has no trunks\n".to_owned(),
            _ => list(&self.trunks, self.left_out),
        };
        if let Some(reason) = &self.site_failure {
            text.push_str(&format!("this node's gateway doesn't tell of its trunks: {reason}\n"));
        }
        if !self.site_trunks.is_empty() || self.site_left_out > 0 {
            text.push_str("\ntrunks of this node's gateway:\n");
            text.push_str(&list(&self.site_trunks, self.site_left_out));
        }
        text
    }
}

fn list(trunks: &[Trunk], left_out: u32) -> String {
    let mut text: String = trunks.iter().map(Trunk::text).collect();
    if left_out > 0 {
        text.push_str(&format!("and {left_out} more, too many to show or without an answer in time\n"));
    }
    text
}

impl Trunk {
    fn new(trunk: proto::Trunk) -> Self {
        Self {
            made_here: trunk.made_here,
            route: route_name(trunk.route()),
            dial: dial_name(trunk.dial()),
            peer: trunk.peer,
            relay: trunk.relay,
            age_seconds: seconds(trunk.age_ms),
            cut_seconds: trunk.cut_ms.map(seconds),
            pauses: trunk.pauses,
            paused_seconds: seconds(trunk.paused_ms),
            streams: trunk.streams,
            held_bytes: trunk.held_bytes,
            unread_bytes: trunk.unread_bytes,
            carriers: trunk.carriers.into_iter().map(Carrier::new).collect(),
        }
    }

    fn text(&self) -> String {
        let (from, state) = (
            if self.made_here { "to" } else { "from" },
            match self.cut_seconds {
                Some(cut) => format!("cut for {cut:.1} s"),
                None => "works".to_owned(),
            },
        );
        let relay = if self.relay.is_empty() { String::new() } else { format!(" {}", self.relay) };
        let dialed = if self.dial == dial_name(proto::Dial::Unknown) {
            // A gateway doesn't tell the other one how it has dialed it.
            "dialed there".to_owned()
        } else {
            format!("by {}{relay}", self.dial)
        };
        let paused = match self.pauses {
            0 => String::new(),
            pauses => format!(", paused {} for {:.1} s", count(pauses.into(), "time"), self.paused_seconds),
        };
        let head = format!(
            "{from} {} {dialed}, {}: {state}, {:.0} s old{paused}, {}, {} not acknowledged\n",
            self.peer,
            self.route,
            self.age_seconds,
            count(self.streams.into(), "stream"),
            bytes(self.held_bytes),
        );
        let header = [
            "carrier for",
            "round trip",
            "window",
            "rate",
            "queued",
            "sent again",
            "timeouts",
            "congestion control",
            "addresses",
        ];
        head + &table(&header, &[1, 2, 3, 4, 5, 6], self.carriers.iter().map(Carrier::row)) + "\n"
    }
}

impl Carrier {
    fn new(carrier: proto::Carrier) -> Self {
        Self {
            small: carrier.small,
            live: carrier.live,
            round_trip_ms: milliseconds(carrier.round_trip_us),
            congestion_window_bytes: carrier.congestion_window_bytes,
            bytes_per_second: carrier.bytes_per_second,
            congestion_control_by: congestion_by(carrier.congestion_by()),
            congestion_control: Some(carrier.congestion_control).filter(|name| !name.is_empty()),
            bound_bytes_per_second: carrier.bound_bytes_per_second,
            unsent_bytes: carrier.unsent_bytes,
            data_segments: carrier.data_segments,
            retransmitted_segments: carrier.retransmitted_segments,
            timeouts: carrier.timeouts,
            ends: carrier.ends,
        }
    }

    fn row(&self) -> Vec<String> {
        let purpose = if self.small { "small messages" } else { "everything" };
        vec![
            if self.live { purpose.to_owned() } else { format!("{purpose}, silent") },
            format!("{:.1} ms", self.round_trip_ms),
            bytes(self.congestion_window_bytes),
            format!("{}/s", bytes(self.bytes_per_second)),
            bytes(self.unsent_bytes),
            self.sent_again(),
            self.timeouts.map_or_else(|| "–".to_owned(), |timeouts| timeouts.to_string()),
            self.congestion(),
            self.ends.clone(),
        ]
    }

    /// How many segments were sent again, and which share of all that is.
    fn sent_again(&self) -> String {
        let share = 100.0 * self.retransmitted_segments as f64 / self.data_segments.max(1) as f64;
        format!("{} of {} ({share:.2} %)", self.retransmitted_segments, self.data_segments)
    }

    /// What decides how fast the carrier sends.
    fn congestion(&self) -> String {
        let Some(name) = &self.congestion_control else { return "–".to_owned() };
        let bound = self.bound_bytes_per_second;
        let bound = bound.map_or_else(String::new, |bound| format!(", at most {}/s", bytes(bound)));
        format!("{name}, by {}{bound}", self.congestion_control_by)
    }
}

/// Who decided a carrier's congestion control.
fn congestion_by(by: proto::CongestionBy) -> &'static str {
    match by {
        proto::CongestionBy::Unknown => "unknown",
        proto::CongestionBy::Isthmus => "isthmus",
        proto::CongestionBy::SystemForSmall => "the system",
        proto::CongestionBy::SystemWithoutBbr => "the system: the kernel refuses BBR",
        proto::CongestionBy::SystemAsConfigured => "the system: BBR is switched off",
    }
}

fn seconds(milliseconds: u64) -> f64 {
    milliseconds as f64 / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn carrier() -> proto::Carrier {
        proto::Carrier {
            live: true,
            round_trip_us: 10_600,
            congestion_window_bytes: 1_000_000,
            bytes_per_second: 125_000_000,
            data_segments: 4000,
            retransmitted_segments: 3,
            timeouts: Some(1),
            ends: "10.11.0.2:40000 to 198.51.100.22:7740".to_owned(),
            ..proto::Carrier::default()
        }
    }

    #[test]
    fn a_carrier_tells_its_congestion_control_and_who_decided_it() {
        use proto::CongestionBy as By;
        for (name, by, text, json) in [
            ("bbr", By::Isthmus, "bbr, by isthmus", [Some("bbr"), Some("isthmus")]),
            ("cubic", By::SystemForSmall, "cubic, by the system", [Some("cubic"), Some("the system")]),
            (
                "cubic",
                By::SystemWithoutBbr,
                "cubic, by the system: the kernel refuses BBR",
                [Some("cubic"), Some("the system: the kernel refuses BBR")],
            ),
            (
                "cubic",
                By::SystemAsConfigured,
                "cubic, by the system: BBR is switched off",
                [Some("cubic"), Some("the system: BBR is switched off")],
            ),
            // An older agent or gateway doesn't tell.
            ("", By::Unknown, "–", [None, Some("unknown")]),
        ] {
            let told =
                proto::Carrier { congestion_control: name.to_owned(), congestion_by: by.into(), ..carrier() };
            let shown = Carrier::new(told);
            assert!(shown.row().contains(&text.to_owned()), "{:?}", shown.row());
            let found = serde_json::to_value(&shown).unwrap();
            let found = ["congestion_control", "congestion_control_by"].map(|key| found[key].as_str());
            assert_eq!(found, json);
        }
    }

    #[test]
    fn a_trunk_is_shown_with_its_carriers() {
        let silent = proto::Carrier { small: true, timeouts: None, live: false, ..carrier() };
        let trunk = proto::Trunk {
            peer: "n1.beta".to_owned(),
            made_here: true,
            route: proto::Route::EndToEnd.into(),
            dial: proto::Dial::Relay.into(),
            relay: "hub".to_owned(),
            age_ms: 90_400,
            pauses: 2,
            paused_ms: 23_500,
            streams: 1,
            held_bytes: 2_000,
            carriers: vec![carrier(), silent],
            ..proto::Trunk::default()
        };
        let cut = proto::Trunk { made_here: false, cut_ms: Some(4_200), pauses: 0, ..trunk.clone() };
        let of_site = proto::Trunk {
            peer: "gateway.beta".to_owned(),
            made_here: false,
            route: proto::Route::TwoGateway.into(),
            dial: proto::Dial::Unknown.into(),
            relay: String::new(),
            ..trunk.clone()
        };
        let view = View::new(TrunksReply {
            trunks: vec![trunk, cut],
            left_out: 1,
            site_trunks: vec![of_site],
            ..TrunksReply::default()
        });
        let text = view.text();
        for part in [
            "to n1.beta by relay hub, end-to-end: works, 90 s old, paused 2 times for 23.5 s, 1 stream, 2.0 kB not acknowledged\n",
            "everything",
            "10.6 ms",
            "3 of 4000 (0.07 %)",
            "10.11.0.2:40000 to 198.51.100.22:7740",
            "small messages, silent",
            "from n1.beta by relay hub, end-to-end: cut for 4.2 s, 90 s old, 1 stream",
            "and 1 more, too many to show or without an answer in time\n",
            "\ntrunks of this node's gateway:\nfrom gateway.beta dialed there, two-gateway: works, 90 s old, paused",
        ] {
            assert!(text.contains(part), "no {part:?} in\n{text}");
        }
        let without = |site_failure: &str| {
            let site_failure = site_failure.to_owned();
            View::new(TrunksReply { site_failure, ..TrunksReply::default() }).text()
        };
        assert_eq!(without(""), "this node has no trunks\n");
        assert_eq!(
            without("gone"),
            "this node has no trunks\nthis node's gateway doesn't tell of its trunks: gone\n"
        );
    }
}
