//! `isthmus plan`: the steps by which one node would reach another, with reasons.

use clap::Args;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use isthmus_front::ask::Grid;
use isthmus_front::format::count;
use isthmus_front::output::print;
use isthmus_front::state::StateArgs;
use isthmus_front::without_broker;
use isthmus_rpc::contact::plan_from_wire;
use isthmus_rpc::enums::inbound_from_wire;
use isthmus_rpc::enums::{dial_name, filtering_from_wire, mapping_from_wire, route_name};
use isthmus_rpc::seen;
use isthmus_wire::proto::{self, ExplainReply, ExplainRequest};
use serde::Serialize;

/// Show how one node would reach another: the steps in their order, each with its reason.
///
/// On the node that connects, it also has the steps that failed for that node not
/// long ago, which it tries last. Other nodes' agents don't know these failures.
#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// The node that connects, NODE.SITE.
    from: String,
    /// The node that is connected to, NODE.SITE.
    to: String,
    #[command(flatten)]
    state: StateArgs,
    /// Also show the steps that are left out, each with its reason.
    #[arg(long, short = 'v', visible_alias = "verbose")]
    all: bool,
    /// Print everything as JSON.
    #[arg(long)]
    json: bool,
}

/// The output of `isthmus plan --json`.
#[derive(Debug, Serialize)]
struct View {
    /// Whether data between the nodes' sites must be encrypted.
    encrypted: bool,
    /// What carries programs' connections, in the order in which it is tried.
    ways: Vec<WayView>,
    /// How a socket between the nodes is opened, in the order in which it is tried.
    steps: Vec<Step>,
    left_out: Vec<LeftOut>,
    from: NodeView,
    to: NodeView,
    /// How many relays are up.
    relays: u32,
    /// The relays that are known to be much farther than the nearest one. Trunks leave them.
    far_relays: Vec<String>,
    /// Set if a gateway answered by itself: steps that need the broker are left out.
    without_broker: Option<without_broker::View>,
}

#[derive(Debug, Serialize)]
struct WayView {
    /// "site trunk": the trunk of the sites' gateways; "trunk": that of the nodes' agents;
    /// "socket": a socket of its own.
    transport: String,
    /// Who encrypts the data: "agents" of the nodes, "gateways" of the sites, which see the
    /// plaintext, or "none".
    encryption: String,
    reason: String,
}

#[derive(Debug, Serialize)]
struct Step {
    dial: String,
    route: String,
    deadline_seconds: f64,
    reason: String,
}

#[derive(Debug, Serialize)]
struct LeftOut {
    dial: String,
    route: String,
    reason: String,
}

/// Facts about one of the two nodes.
#[derive(Debug, Serialize)]
struct NodeView {
    node: String,
    /// What the node's site lets in, declared by its gateway: "open", "closed" or "auto".
    inbound: &'static str,
    /// The address that is let in for the node's agent, if there is one.
    outside_address: Option<String>,
    /// How the node's ports are mapped on the way out, as relays have seen (RFC 4787 section 4.1).
    mapping: String,
    /// What the node's site lets in to a port that the node connects from (RFC 4787 section 5).
    filtering: String,
    /// Whether a relay reached the node's agent: at its address in the site, and at the address
    /// that is let in for it.
    reached: [String; 2],
    /// The node's address as relays see it, if known.
    seen_as: Option<String>,
    /// Whether the gateway of the node's site is attached to the broker.
    attached: bool,
    /// Whether the node's agent has the right to raw packets.
    can_traverse: bool,
    /// Whether the node itself reaches the outside; absent if not tried.
    way_out: Option<bool>,
    /// The address at which other sites reach the gateway of the node's site, if there is one.
    gateway_outside: Option<String>,
    /// Whether relays failed to reach the gateway at that address.
    gateway_failed: bool,
}

/// Runs `isthmus plan`.
///
/// # Errors
/// The message for the user.
pub(crate) async fn run(args: PlanArgs) -> anyhow::Result<()> {
    let request = ExplainRequest { from: args.from, to: args.to, ..ExplainRequest::default() };
    let reply = Grid::find(&args.state).await?.or_without_broker().explain(request).await?;
    let view = View::new(&reply);
    let head = reply.without_broker.as_ref().map(|answer| format!("{}\n", without_broker::line(answer)));
    print(&view, &(head.unwrap_or_default() + &view.text(args.all)), args.json)
}

impl View {
    fn new(reply: &ExplainReply) -> Self {
        let (plan, facts) = (reply.plan.clone().unwrap_or_default(), reply.facts.clone().unwrap_or_default());
        let steps = plan.steps.iter().map(|step| Step {
            dial: dial_name(step.dial()),
            route: route_name(step.route()),
            deadline_seconds: f64::from(step.deadline_ms) / 1000.0,
            reason: step.reason.clone(),
        });
        let ways = plan_from_wire(&plan).ways.into_iter().map(|way| WayView {
            transport: way.transport.to_string(),
            encryption: way.transport.encryption().to_string(),
            reason: way.reason.to_string(),
        });
        let left_out = plan.left_out.iter().map(|left| LeftOut {
            dial: dial_name(left.dial()),
            route: route_name(left.route()),
            reason: left.reason.clone(),
        });
        Self {
            encrypted: plan.encrypted,
            ways: ways.collect(),
            steps: steps.collect(),
            left_out: left_out.collect(),
            from: NodeView::new(&reply.initiator.clone().unwrap_or_default()),
            to: NodeView::new(&facts.acceptor.unwrap_or_default()),
            relays: facts.relays,
            far_relays: plan.far_relays,
            without_broker: reply.without_broker.as_ref().map(without_broker::View::new),
        }
    }

    fn text(&self, all: bool) -> String {
        let secrecy = if self.encrypted { "encrypted" } else { "not encrypted" };
        let mut text =
            format!("{} to {}, {secrecy}. A connection goes over:\n", self.from.node, self.to.node);
        let mut table = Table::new();
        table.load_preset(NOTHING);
        for (number, way) in self.ways.iter().enumerate() {
            let encryption = match way.encryption.as_str() {
                "none" => "not encrypted".to_owned(),
                by => format!("encrypted by the {by}"),
            };
            table.add_row([&format!("{}.", number + 1), &way.transport, &encryption, &way.reason]);
        }
        text.extend(table.lines().map(|line| format!(" {}\n", line.trim_end())));
        text.push_str("A socket to the other agent is opened by:\n");
        if self.steps.is_empty() {
            text.push_str("  there is no way\n");
        }
        let mut table = Table::new();
        table.load_preset(NOTHING);
        for (number, step) in self.steps.iter().enumerate() {
            let deadline = format!("up to {} s", step.deadline_seconds);
            table.add_row([&format!("{}.", number + 1), &step.dial, &step.route, &deadline, &step.reason]);
        }
        // Without a step, what is left out gives the reasons.
        let shown = if all || self.steps.is_empty() { &self.left_out[..] } else { &[] };
        for left in shown {
            table.add_row(["–", &left.dial, &left.route, "left out", &left.reason]);
        }
        text.extend(table.lines().map(|line| format!(" {}\n", line.trim_end())));
        match self.left_out.len() - shown.len() {
            0 => {}
            more => {
                let (steps, are) = (count(more as u64, "step"), if more == 1 { "is" } else { "are" });
                text.push_str(&format!("  {steps} {are} left out; --all has the reasons\n"));
            }
        }
        if !self.far_relays.is_empty() {
            text.push_str(&format!("much farther than the nearest relay: {}\n", self.far_relays.join(", ")));
        }
        for end in [&self.from, &self.to] {
            text.push_str(&format!("{}\n", end.text()));
        }
        text
    }
}

impl NodeView {
    fn new(end: &proto::End) -> Self {
        let found = end.seen.clone().unwrap_or_default();
        let given = |text: String| (!text.is_empty()).then_some(text);
        Self {
            node: end.node.clone(),
            inbound: inbound_from_wire(end.inbound()).name(),
            outside_address: given(end.outside_address.clone()),
            mapping: mapping_from_wire(found.mapping()).to_string(),
            filtering: filtering_from_wire(found.filtering()).to_string(),
            reached: [&found.own, &found.outside]
                .map(|reach| seen::reach_from_wire(reach.as_ref()).result.to_string()),
            seen_as: given(found.address.clone()),
            attached: end.attached,
            can_traverse: end.can_traverse,
            way_out: match found.way_out() {
                proto::WayOut::Unknown => None,
                proto::WayOut::Yes => Some(true),
                proto::WayOut::No => Some(false),
            },
            gateway_outside: given(end.gateway_outside.clone()),
            gateway_failed: seen::reach_from_wire(end.gateway_reach.as_ref()).failed(),
        }
    }

    fn text(&self) -> String {
        let mut text = format!(
            "{}: site {}, mapping {}, filtering {}",
            self.node, self.inbound, self.mapping, self.filtering
        );
        if let Some(seen_as) = &self.seen_as {
            text.push_str(&format!(", seen as {seen_as}"));
        }
        if let Some(outside) = &self.outside_address {
            text.push_str(&format!(", let in at {outside}"));
        }
        match self.way_out {
            Some(true) | None => {}
            Some(false) => text.push_str(", no way out but its gateway"),
        }
        if let Some(outside) = &self.gateway_outside {
            let reached = if self.gateway_failed { "not reached" } else { "reached" };
            text.push_str(&format!(", gateway {reached} at {outside}"));
        }
        if !self.attached {
            text.push_str(", its gateway is not attached");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use isthmus_wire::proto::{LeftOut, Plan, PlanStep};

    use super::*;

    #[test]
    fn steps_that_are_left_out_are_shown_on_demand() {
        let step = PlanStep { reason: "a relay".to_owned(), deadline_ms: 5000, ..PlanStep::default() };
        let left = |reason: &str| LeftOut { reason: reason.to_owned(), ..LeftOut::default() };
        let text = |steps: Vec<PlanStep>, left_out: &[&str], all| {
            let left_out = left_out.iter().map(|reason| left(reason)).collect();
            let plan = Plan { steps, left_out, ..Plan::default() };
            View::new(&ExplainReply { plan: Some(plan), ..ExplainReply::default() }).text(all)
        };
        let few = text(vec![step.clone()], &["no port", "no right"], false);
        assert!(few.contains("a relay") && few.contains("\n  2 steps are left out; --all has"), "{few}");
        assert!(!few.contains("no port"), "{few}");
        let all = text(vec![step.clone()], &["no port", "no right"], true);
        assert!(all.contains("no port") && all.contains("no right") && !all.contains("--all"), "{all}");
        let one = text(vec![step.clone()], &["no port"], false);
        assert!(one.contains("  1 step is left out;"), "{one}");
        assert!(!text(vec![step], &[], false).contains("left out"));
        let none = text(Vec::new(), &["no port"], false);
        assert!(none.contains("there is no way") && none.contains("no port"), "{none}");
    }
}
