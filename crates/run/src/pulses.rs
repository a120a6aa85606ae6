//! Signs of life of this node's agent, and whether this node is cut off.

use std::time::{Duration, Instant};

use isthmus_front::format::site;
use isthmus_service::silence::Silence;
use isthmus_wire::proto::NodeCutOff;
use isthmus_wire::text::first;

/// Most nodes that are named one by one.
const NAMED: usize = 8;

/// What is known of the life of this node's agent, by its pulses.
#[derive(Debug)]
pub(super) struct Pulses {
    patience: Duration,
    /// How silent the agent is; `None` before its first pulse, and after its news have ended.
    silence: Option<Silence>,
    /// When [`passed`](Self::passed) was last called.
    last: Instant,
    is_lost: bool,
}

impl Pulses {
    pub(super) fn new(patience: Duration, now: Instant) -> Self {
        Self { patience, silence: None, last: now, is_lost: false }
    }

    /// Notes a pulse of the agent, which came so many milliseconds late.
    pub(super) fn heard(&mut self, late_ms: u32) {
        let late = Duration::from_millis(late_ms.into());
        self.silence.get_or_insert_with(|| Silence::new(self.patience)).received(late);
    }

    /// Notes the time that has passed. If the agent has been silent for too long, returns for how
    /// long, and why it is lost; only once.
    pub(super) fn passed(&mut self, now: Instant) -> Option<(Duration, String)> {
        let time = now.saturating_duration_since(self.last);
        self.last = now;
        let silence = self.silence.as_mut()?;
        silence.passed(time);
        let silent = silence.lost().filter(|_| !self.is_lost)?;
        self.is_lost = true;
        let seconds = silent.as_secs_f64();
        Some((silent, format!("this node's agent gives no sign of life for {seconds:.1} s: it is frozen")))
    }

    /// Notes that the agent's news have ended: it needn't give any more pulses.
    pub(super) fn end(&mut self) {
        self.silence = None;
    }

    /// Whether the agent has been silent for too long.
    pub(super) fn is_lost(&self) -> bool {
        self.is_lost
    }
}

/// Why a job ends when a node is cut off, in words. `head` is the node of `isthmus run`.
pub(super) fn cut_off(cut: &NodeCutOff, head: &str) -> String {
    let from = first(cut.from.iter(), 0, NAMED);
    let seconds = Duration::from_millis(cut.silent_ms).as_secs_f64();
    if cut.whole_site {
        let own = site(&cut.node);
        return format!("site {own} is cut off from {from}, and from the broker, for {seconds:.1} s");
    }
    let who = if cut.node == head { "this node" } else { cut.node.as_str() };
    format!("{who} is cut off from {from}: no sign of life of any of them for {seconds:.1} s")
}

#[cfg(test)]
mod tests {
    use super::*;

    const TICK: Duration = Duration::from_millis(500);

    #[test]
    fn a_silent_agent_is_lost_once() {
        let mut now = Instant::now();
        let mut pulses = Pulses::new(Duration::from_secs(5), now);
        let mut pass = |pulses: &mut Pulses| {
            now += TICK;
            pulses.passed(now)
        };
        for _ in 0..100 {
            assert_eq!(pass(&mut pulses), None, "it has given none yet");
        }
        pulses.heard(0);
        for _ in 0..11 {
            assert_eq!(pass(&mut pulses), None);
        }
        assert!(!pulses.is_lost());
        let (silent, reason) = pass(&mut pulses).unwrap();
        assert_eq!(silent, Duration::from_secs(6));
        assert_eq!(reason, "this node's agent gives no sign of life for 6.0 s: it is frozen");
        assert!(pulses.is_lost());
        assert_eq!(pass(&mut pulses), None, "said before");
        pulses.end();
        assert_eq!(pass(&mut pulses), None);
    }

    fn cut(node: &str, from: Vec<String>) -> NodeCutOff {
        NodeCutOff { node: node.to_owned(), from, silent_ms: 6040, whole_site: false }
    }

    #[test]
    fn who_is_cut_off_is_named() {
        let text = |count: u32| {
            let from = (1..=count).map(|number| format!("n{number}.a")).collect();
            cut_off(&cut("n9.b", from), "n1.b")
        };
        assert_eq!(text(2), "n9.b is cut off from n1.a, n2.a: no sign of life of any of them for 6.0 s");
        assert!(text(10).contains("n8.a and 2 more: "), "{}", text(10));
        let own = cut("n1.b", vec!["n2.b".to_owned()]);
        assert!(cut_off(&own, "n1.b").starts_with("this node is cut off from n2.b: "));
        let of_site = NodeCutOff { whole_site: true, ..cut("n1.b", vec!["n1.a".to_owned()]) };
        let want = "site b is cut off from n1.a, and from the broker, for 6.0 s";
        assert_eq!(cut_off(&of_site, "n1.b"), want);
    }
}
