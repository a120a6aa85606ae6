//! Sites of which nothing is heard, and nodes at which nothing arrives, while a job waits.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use isthmus_front::format::site;
use isthmus_front::output::one_line;
use isthmus_wire::proto::{SiteBack, SiteSilent};

/// What the user reads if no other reason is known.
const CUT: &str = "the network between is cut, or it is frozen";

/// The nodes of which nothing is heard at the moment, and since when. The key has the node, and the
/// node whose connections don't arrive there. The second is empty for the job's own calls.
#[derive(Debug, Default)]
pub(super) struct Silent(HashMap<(String, String), Instant>);

impl Silent {
    /// Notes that a silence begins. Returns what the user reads of it: nothing if a silence of the
    /// node's site is known.
    pub(super) fn begun(&mut self, silent: &SiteSilent, now: Instant) -> Option<String> {
        let SiteSilent { node, outlive_seconds, broken, reason, from } = silent;
        let known = |(other, _): &(String, String)| site(other) == site(node);
        if !from.is_empty() && self.0.keys().any(known) {
            return None;
        }
        self.0.insert((node.clone(), from.clone()), now);
        let sent = match from.as_str() {
            "" => format!("what is sent to {node} doesn't arrive"),
            from => format!("what {from} sends to {node} doesn't arrive"),
        };
        let connection = match from.as_str() {
            "" => format!("the connection to {node}"),
            from => format!("the connection of {from} to {node}"),
        };
        let what = match (reason.as_str(), broken.as_str()) {
            ("", "") if from.is_empty() => format!("nothing is heard of {node}: {CUT}"),
            ("", "") => format!("{sent}: {CUT}"),
            ("", broken) => format!("{connection} broke ({broken}), and there is no other yet"),
            (reason, _) => format!("{sent}: {reason}"),
        };
        let longest = humantime::format_duration(Duration::from_secs((*outlive_seconds).into()));
        Some(one_line(&format!("{what}; the job outlives a cut of up to {longest} (Ctrl-C ends it)")))
    }

    /// Notes that a silence is over. Returns whether the user has read of it.
    pub(super) fn over(&mut self, back: &SiteBack) -> bool {
        let was_told = self.0.remove(&(back.node.clone(), back.from.clone())).is_some();
        was_told || back.from.is_empty()
    }

    /// The nodes of which nothing is heard, each once.
    pub(super) fn nodes(&self) -> Vec<String> {
        let mut nodes: Vec<_> = self.0.keys().map(|(node, _)| node.clone()).collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    /// When each silence that lasts began.
    pub(super) fn since(&self) -> impl Iterator<Item = &Instant> {
        self.0.values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_arrive_is_told_once_of_a_site() {
        let mut all = Silent::default();
        let waits = "the job outlives a cut of up to 15m (Ctrl-C ends it)";
        let mut begun = |node: &str, from: &str, (reason, broken): (&str, &str)| {
            let [node, from, reason, broken] = [node, from, reason, broken].map(str::to_owned);
            all.begun(&SiteSilent { node, outlive_seconds: 900, broken, reason, from }, Instant::now())
        };
        for (node, from, reason, want) in [
            (
                "n1.beta",
                "",
                ("", ""),
                Some("nothing is heard of n1.beta: the network between is cut, or it is frozen"),
            ),
            ("n2.beta", "n2.alpha", ("", ""), None),
            (
                "n1.gamma",
                "",
                ("large packets vanish", "relay hub: reset"),
                Some("what is sent to n1.gamma doesn't arrive: large packets vanish"),
            ),
            (
                "n2.delta",
                "n2.alpha",
                ("large packets vanish", "relay hub: reset"),
                Some("what n2.alpha sends to n2.delta doesn't arrive: large packets vanish"),
            ),
            ("n3.delta", "n1.alpha", ("", ""), None),
            (
                "n1.zeta",
                "",
                ("", "relay hub: reset"),
                Some("the connection to n1.zeta broke (relay hub: reset), and there is no other yet"),
            ),
            (
                "n1.eta",
                "n2.alpha",
                ("", "punch: reset"),
                Some("the connection of n2.alpha to n1.eta broke (punch: reset), and there is no other yet"),
            ),
            // The whole site is told all the same.
            (
                "n1.delta",
                "",
                ("", ""),
                Some("nothing is heard of n1.delta: the network between is cut, or it is frozen"),
            ),
        ] {
            let want = want.map(|what| format!("{what}; {waits}"));
            assert_eq!(begun(node, from, reason), want, "{node} from {from}");
        }
        assert_eq!(all.nodes(), ["n1.beta", "n1.delta", "n1.eta", "n1.gamma", "n1.zeta", "n2.delta"]);
        let mut over = |node: &str, from: &str| {
            all.over(&SiteBack { node: node.to_owned(), silent_ms: 1, from: from.to_owned() })
        };
        assert!(over("n1.beta", "") && over("n2.delta", "n2.alpha"));
        assert!(!over("n3.delta", "n1.alpha"));
        assert_eq!((all.nodes().len(), all.since().count()), (4, 4));
    }
}
