//! What the kernel counted while gathers ran: what the paper takes from Web100.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde::{Deserialize, Serialize};

use crate::report::write_json;

/// TCP's counters of one network namespace, since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Tcp {
    /// `TcpExtTCPFastRetrans`: segments sent again because later ones arrived.
    pub fast_retransmits: u64,
    /// `TcpExtTCPTimeouts`: nothing was heard for so long that it was sent again.
    pub timeouts: u64,
    /// `TcpExtTCPLossProbes`: probes for a lost end.
    pub loss_probes: u64,
    /// `TcpRetransSegs`: all segments sent again.
    pub retransmitted: u64,
}

impl Tcp {
    /// From the text of /proc/net/netstat and /proc/net/snmp.
    pub(super) fn parse(text: &str) -> anyhow::Result<Self> {
        let find = |kind: &str, name: &str| {
            let mut lines = text.lines().filter_map(|line| line.strip_prefix(kind)?.strip_prefix(": "));
            let found = lines.next().zip(lines.next()).and_then(|(names, values)| {
                let at = names.split(' ').position(|one| one == name)?;
                values.split(' ').nth(at)?.parse().ok()
            });
            found.with_context(|| format!("the kernel has no counter {kind}{name}"))
        };
        Ok(Self {
            fast_retransmits: find("TcpExt", "TCPFastRetrans")?,
            timeouts: find("TcpExt", "TCPTimeouts")?,
            loss_probes: find("TcpExt", "TCPLossProbes")?,
            retransmitted: find("Tcp", "RetransSegs")?,
        })
    }

    pub(super) fn since(self, before: Self) -> Self {
        Self {
            fast_retransmits: self.fast_retransmits - before.fast_retransmits,
            timeouts: self.timeouts - before.timeouts,
            loss_probes: self.loss_probes - before.loss_probes,
            retransmitted: self.retransmitted - before.retransmitted,
        }
    }

    fn add(&mut self, other: Self) {
        self.fast_retransmits += other.fast_retransmits;
        self.timeouts += other.timeouts;
        self.loss_probes += other.loss_probes;
        self.retransmitted += other.retransmitted;
    }
}

/// What one way took in one round.
#[derive(Debug, Clone, Default)]
pub(super) struct Turn {
    /// Mean of its gathers, seconds.
    pub seconds: f64,
    pub gathers: u64,
    /// At the senders' machine and at the root's.
    pub tcp: [Tcp; 2],
    /// Processor seconds of the near end and the far end.
    pub ends_seconds: [f64; 2],
}

/// All rounds of one way in one case.
#[derive(Debug, Serialize)]
struct Sum {
    what: String,
    way: String,
    /// Mean of a gather in each round, seconds.
    seconds: Vec<f64>,
    /// Gathers in all rounds, to which the counters belong.
    gathers: u64,
    bytes: u64,
    senders: Tcp,
    root: Tcp,
    /// Processor seconds of the near end and the far end.
    ends_seconds: [f64; 2],
}

/// All of it, for `trunk-counts.json`.
#[derive(Debug)]
pub(super) struct Counts {
    path: PathBuf,
    sums: Vec<Sum>,
}

impl Counts {
    pub(super) fn new(directory: &Path) -> Self {
        Self { path: directory.join("trunk-counts.json"), sums: Vec::new() }
    }

    /// Adds a round of a way.
    pub(super) fn add(&mut self, what: &str, way: &str, bytes_each: u64, turn: &Turn) {
        let found = self.sums.iter().position(|sum| sum.what == what && sum.way == way);
        let at = found.unwrap_or_else(|| {
            self.sums.push(Sum {
                what: what.to_owned(),
                way: way.to_owned(),
                seconds: Vec::new(),
                gathers: 0,
                bytes: 0,
                senders: Tcp::default(),
                root: Tcp::default(),
                ends_seconds: [0.0; 2],
            });
            self.sums.len() - 1
        });
        let sum = &mut self.sums[at];
        sum.seconds.push(turn.seconds);
        sum.gathers += turn.gathers;
        sum.bytes += turn.gathers * bytes_each;
        sum.senders.add(turn.tcp[0]);
        sum.root.add(turn.tcp[1]);
        sum.ends_seconds[0] += turn.ends_seconds[0];
        sum.ends_seconds[1] += turn.ends_seconds[1];
    }

    pub(super) fn write(&self) -> anyhow::Result<()> {
        write_json(&self.path, &self.sums)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_found_by_name() {
        let text = "TcpExt: SyncookiesSent TCPFastRetrans TCPTimeouts TCPLossProbes\nTcpExt: 9 1 2 3\n\
                    Ip: Forwarding\nIp: 1\nTcp: RtoAlgorithm RetransSegs\nTcp: 8 4\n";
        let found = Tcp::parse(text).unwrap();
        assert_eq!(found, Tcp { fast_retransmits: 1, timeouts: 2, loss_probes: 3, retransmitted: 4 });
        assert_eq!(found.since(Tcp::default()), found);
        let error = Tcp::parse("TcpExt: TCPFastRetrans\nTcpExt: 1\n").unwrap_err().to_string();
        assert!(error.contains("TCPTimeouts"), "{error}");
    }

    #[test]
    fn this_kernel_has_them() {
        let read = |name: &str| std::fs::read_to_string(format!("/proc/net/{name}")).unwrap();
        Tcp::parse(&(read("netstat") + &read("snmp"))).unwrap();
    }
}
