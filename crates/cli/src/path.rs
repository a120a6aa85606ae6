//! A measured path between two nodes, for people and for programs.

use isthmus_front::format::{ago, bytes, milliseconds, site};
use isthmus_rpc::enums::{dial_name, route_name};
use isthmus_rpc::seen;
use isthmus_wire::proto;
use serde::Serialize;

#[derive(Debug, Serialize)]
pub(crate) struct Path {
    from: String,
    to: String,
    route: String,
    dial: String,
    relay: String,
    failure: String,
    round_trip_ms: f64,
    /// Bandwidth from `from` to `to`; absent if no transfer was measured.
    sent_bytes_per_second: Option<u64>,
    /// Bandwidth from `to` to `from`; absent if no transfer was measured.
    received_bytes_per_second: Option<u64>,
    /// The result of a direct connection to an address that a relay could not
    /// reach: "reachable", "filtered", or "unknown" for private addresses. Absent
    /// if none was tried.
    direct: Option<String>,
    /// When the bandwidths were measured; 0 if never.
    transferred_unix_ms: u64,
    measured_unix_ms: u64,
}

impl Path {
    pub(crate) fn new(report: &proto::PathReport) -> Self {
        let transferred = report.transferred_unix_ms > 0;
        Self {
            from: report.from.clone(),
            to: report.to.clone(),
            route: route_name(report.route()),
            dial: dial_name(report.dial()),
            relay: report.relay.clone(),
            failure: report.failure.clone(),
            round_trip_ms: milliseconds(report.round_trip_us),
            sent_bytes_per_second: transferred.then_some(report.sent_bytes_per_second),
            received_bytes_per_second: transferred.then_some(report.received_bytes_per_second),
            direct: report.direct.as_ref().map(|reach| seen::reach_from_wire(Some(reach)).result.to_string()),
            transferred_unix_ms: report.transferred_unix_ms,
            measured_unix_ms: report.measured_unix_ms,
        }
    }

    /// The sites of the path's two ends.
    pub(crate) fn sites(&self) -> [&str; 2] {
        [site(&self.from), site(&self.to)]
    }

    /// The relay that joins the two ends; `None` if none does.
    pub(crate) fn relay(&self) -> Option<&str> {
        (self.failure.is_empty() && !self.relay.is_empty()).then_some(self.relay.as_str())
    }

    /// Lines for a picture: the way, the round trip and the rates.
    pub(crate) fn summary(&self) -> Vec<String> {
        if !self.failure.is_empty() {
            return vec!["no way".to_owned()];
        }
        let relay = if self.relay.is_empty() { String::new() } else { format!(" {}", self.relay) };
        let mut lines = vec![format!("{}{relay}, {:.1} ms", self.dial, self.round_trip_ms)];
        if let (Some(sent), Some(received)) = (self.sent_bytes_per_second, self.received_bytes_per_second) {
            lines.push(format!("{}/s there, {}/s back", bytes(sent), bytes(received)));
        }
        lines
    }

    /// The measured path in one line.
    pub(crate) fn text(&self) -> String {
        let Self { from, to, failure, .. } = self;
        if !failure.is_empty() {
            return format!("{from} to {to}: no way, {}: {failure}", ago(self.measured_unix_ms));
        }
        let bandwidth = match (self.sent_bytes_per_second, self.received_bytes_per_second) {
            (Some(sent), Some(received)) => {
                format!(", {}/s there, {}/s back", bytes(sent), bytes(received))
            }
            _ => String::new(),
        };
        let (way, round_trip) = (self.way(), self.round_trip_ms);
        format!(
            "{from} to {to} by {way}: round trip {round_trip:.1} ms{bandwidth}, {}",
            ago(self.measured_unix_ms)
        )
    }

    /// The dial, the relay and the route in words: "relay hub", "direct one-gateway".
    fn way(&self) -> String {
        let mut words = vec![self.dial.as_str(), self.relay.as_str()];
        if self.route != "end-to-end" {
            words.push(&self.route);
        }
        words.retain(|word| !word.is_empty());
        words.join(" ")
    }

    /// Cells of a table: the two sites, the way, round trip, bandwidths, age.
    pub(crate) fn row(&self) -> Vec<String> {
        let rate = |rate: Option<u64>| rate.map_or_else(|| "-".to_owned(), |rate| bytes(rate) + "/s");
        let ends = format!("{} – {}", site(&self.from), site(&self.to));
        let when = ago(self.measured_unix_ms);
        if !self.failure.is_empty() {
            let none = || "-".to_owned();
            return vec![ends, "no way".to_owned(), none(), none(), none(), when];
        }
        let round_trip = format!("{:.1} ms", self.round_trip_ms);
        let (sent, received) = (rate(self.sent_bytes_per_second), rate(self.received_bytes_per_second));
        vec![ends, self.way(), round_trip, sent, received, when]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_for_people() {
        let report = |words: &str| {
            let mut report = proto::PathReport {
                from: "n1.alpha".to_owned(),
                to: "n2.beta".to_owned(),
                route: proto::Route::EndToEnd.into(),
                dial: proto::Dial::Punch.into(),
                round_trip_us: 12_340,
                ..proto::PathReport::default()
            };
            for word in words.split_whitespace() {
                match word {
                    "relay" => {
                        (report.dial, report.relay) = (proto::Dial::Relay.into(), "hub".to_owned());
                    }
                    "gateway" => report.route = proto::Route::OneGateway.into(),
                    "transferred" => {
                        report.sent_bytes_per_second = 2_000_000;
                        report.received_bytes_per_second = 3_000_000;
                        report.transferred_unix_ms = 1;
                    }
                    "failed" => report.failure = "nothing answers".to_owned(),
                    other => panic!("{other}"),
                }
            }
            Path::new(&report)
        };
        for (words, text, row) in [
            ("", "by punch: round trip 12.3 ms, -", "alpha – beta | punch | 12.3 ms | - | - | -"),
            (
                "relay gateway transferred",
                "by relay hub one-gateway: round trip 12.3 ms, 2.0 MB/s there, 3.0 MB/s back, -",
                "alpha – beta | relay hub one-gateway | 12.3 ms | 2.0 MB/s | 3.0 MB/s | -",
            ),
            ("failed", ": no way, -: nothing answers", "alpha – beta | no way | - | - | - | -"),
        ] {
            let path = report(words);
            assert!(path.text().ends_with(text), "{words}: {}", path.text());
            assert_eq!(path.row().join(" | "), row, "{words}");
        }
        let json = serde_json::to_value(report("")).unwrap();
        assert_eq!(
            (&json["round_trip_ms"], &json["sent_bytes_per_second"]),
            (&12.34.into(), &serde_json::Value::Null)
        );
    }
}
