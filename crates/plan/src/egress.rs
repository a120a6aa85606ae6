//! To which ports a site lets its nodes out. Nodes try ports at the hosts of
//! relays; a refused connection is an answer, too. A missing answer counts against
//! the site only if another site got one there: the relay's host may drop as well.

use std::fmt;

/// Ports that are tried at a relay's host: those of web servers, of agents and gateways, and
/// `OTHERS`. The ports of web servers are let out most often.
pub const TRIED: [u16; 5] = [80, 443, 7730, 7740, OTHERS];
/// Stands for all ports that aren't tried. The kernel's ephemeral ports are below this port.
pub(crate) const OTHERS: u16 = 61_001;

/// The ports that a node tried at the host of one relay.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers {
    /// The name of the relay.
    pub relay: String,
    /// Ports from which an answer came; a refusal is an answer.
    pub answered: Vec<u16>,
    /// Ports from which no answer came.
    pub silent: Vec<u16>,
}

/// Whether a node's site lets nothing out to a port. That is so if the node got no answer from the
/// port at any relay's host, and nodes of other sites got one from a host that it tried.
pub fn drops(own: &[Answers], others: &[Answers], port: u16) -> bool {
    let tried = if TRIED.contains(&port) || port < 1024 { port } else { OTHERS };
    let answered_others =
        |relay: &str| others.iter().any(|other| other.relay == relay && other.answered.contains(&tried));
    !own.iter().any(|at| at.answered.contains(&tried))
        && own.iter().any(|at| at.silent.contains(&tried) && answered_others(&at.relay))
}

/// The ports that a site lets its nodes connect to, as far as they were measured.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Egress {
    /// Ports of [`TRIED`] that answered.
    pub let_out: Vec<u16>,
    /// Ports of [`TRIED`] that answered only nodes of other sites.
    pub dropped: Vec<u16>,
}

impl Egress {
    /// Judges a node's answers by those of other sites.
    pub fn of(own: &[Answers], others: &[Answers]) -> Self {
        let ports = |wanted: &dyn Fn(u16) -> bool| TRIED.into_iter().filter(|port| wanted(*port)).collect();
        Self {
            let_out: ports(&|port| own.iter().any(|at| at.answered.contains(&port))),
            dropped: ports(&|port| drops(own, others, port)),
        }
    }
}

impl fmt::Display for Egress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let words = |ports: &[u16]| {
            let word = |port: &u16| if *port == OTHERS { "others".to_owned() } else { port.to_string() };
            ports.iter().map(word).collect::<Vec<_>>().join(", ")
        };
        match (self.let_out.is_empty(), self.dropped.is_empty()) {
            (false, true) => f.write_str(&words(&self.let_out)),
            (false, false) => write!(f, "{}; not {}", words(&self.let_out), words(&self.dropped)),
            (true, false) => write!(f, "not {}", words(&self.dropped)),
            (true, true) => f.write_str("unknown"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers from "RELAY ANSWERED… / SILENT…", separated by commas.
    fn answers(text: &str) -> Vec<Answers> {
        let ports = |text: &str| text.split_whitespace().map(|port| port.parse().unwrap()).collect();
        let one = |text: &str| {
            let (relay, rest) = text.trim().split_once(' ').unwrap();
            let (answered, silent) = rest.split_once('/').unwrap();
            Answers { relay: relay.to_owned(), answered: ports(answered), silent: ports(silent) }
        };
        text.split(',').filter(|text| !text.is_empty()).map(one).collect()
    }

    #[test]
    fn silence_counts_only_where_others_got_an_answer() {
        for (own, others, port, want) in [
            ("r 443 / 7730", "r 443 7730 /", 7730, true),
            ("r 443 / 7730", "r 443 7730 /", 443, false),
            ("r 443 / 7730", "r 443 / 7730", 7730, false),
            ("r 443 / 7730", "s 7730 /", 7730, false),
            ("r 443 / 7730, s 7730 /", "r 7730 /", 7730, false),
            ("r / 61001", "r 61001 /", 7731, true),
            ("r / 61001", "r 61001 /", 22, false),
            ("r 61001 /", "r 61001 /", 7731, false),
            ("", "r 7730 /", 7730, false),
            ("r / 7730", "", 7730, false),
        ] {
            assert_eq!(drops(&answers(own), &answers(others), port), want, "{own:?} {others:?} {port}");
        }
    }

    #[test]
    fn egress_is_printed_briefly() {
        for (own, others, want) in [
            ("", "r 443 /", "unknown"),
            ("r 80 443 7730 7740 61001 /", "", "80, 443, 7730, 7740, others"),
            ("r 443 / 80 7730 7740 61001", "r 80 443 7730 61001 / 7740", "443; not 80, 7730, others"),
            ("r / 80 443", "r 443 /", "not 443"),
            ("r / 80 443", "", "unknown"),
        ] {
            assert_eq!(Egress::of(&answers(own), &answers(others)).to_string(), want, "{own:?}");
        }
    }
}
