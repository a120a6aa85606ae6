//! TCP's counters, which papers took from Web100.

use anyhow::Context as _;
use isthmus_lab::Machine;
use serde::{Deserialize, Serialize};

/// TCP's counters of a network namespace since it was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Tcp {
    /// Counter `TcpExtTCPFastRetrans`: segments sent again because later segments arrived.
    pub fast_retransmits: u64,
    /// Counter `TcpExtTCPTimeouts`: how often a segment was sent again because nothing was heard
    /// for long.
    pub timeouts: u64,
    /// Counter `TcpExtTCPLossProbes`: probes for a lost end.
    pub loss_probes: u64,
    /// Counter `TcpRetransSegs`: all segments sent again.
    pub retransmitted: u64,
}

impl Tcp {
    /// The present counters of a machine.
    ///
    /// # Errors
    /// The kernel doesn't tell them.
    pub(crate) fn of(machine: Machine<'_>) -> anyhow::Result<Self> {
        let read = || -> std::io::Result<String> {
            let of = |name: &str| std::fs::read_to_string(format!("/proc/thread-self/net/{name}"));
            Ok(of("netstat")? + &of("snmp")?)
        };
        Self::parse(&machine.in_network(read)??)
    }

    /// Reads the counters from the text of /proc/net/netstat and /proc/net/snmp.
    fn parse(text: &str) -> anyhow::Result<Self> {
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

    pub(crate) fn since(self, before: Self) -> Self {
        Self {
            fast_retransmits: self.fast_retransmits - before.fast_retransmits,
            timeouts: self.timeouts - before.timeouts,
            loss_probes: self.loss_probes - before.loss_probes,
            retransmitted: self.retransmitted - before.retransmitted,
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.fast_retransmits += other.fast_retransmits;
        self.timeouts += other.timeouts;
        self.loss_probes += other.loss_probes;
        self.retransmitted += other.retransmitted;
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
