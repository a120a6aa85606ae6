//! A site and its gateways: what they say together, and which one joins two
//! nodes.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use isthmus_net::enums::inbound_to_wire;
use isthmus_net::mac::Secret;
use isthmus_net::seen;
use isthmus_plan::Inbound;
use isthmus_wire::{Label, proto};

use super::{Party, SessionId};

/// A site.
#[derive(Debug, Default)]
pub(super) struct SiteEntry {
    /// Those that have ever been there, by their names.
    pub(super) gateways: BTreeMap<Label, GatewayEntry>,
    /// The one that was chosen last.
    pub(super) last: Option<Label>,
}

/// One of a site's gateways.
#[derive(Debug)]
pub(super) struct GatewayEntry {
    pub(super) session: Option<SessionId>,
    pub(super) inbound: Inbound,
    pub(super) version: String,
    /// Where other sites reach it; empty for nowhere.
    pub(super) outside_address: String,
    /// Where its site's nodes reach it; empty as long as that isn't known.
    pub(super) inside_address: String,
    /// Whether it is reached there, as it found out last.
    pub(super) outside_reach: Option<proto::Reach>,
    /// Signs tickets for it.
    pub(super) key: Secret,
    /// Nothing is to be measured between its site and others unasked.
    pub(super) measure_off: bool,
}

impl GatewayEntry {
    /// Whether nobody outside reaches it who should.
    fn outside_failed(&self) -> bool {
        seen::reach_from_wire(self.outside_reach.as_ref()).failed()
    }
}

/// What a site's gateways say together, as far as plans go by it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Says {
    /// What the site lets in.
    pub(super) inbound: Inbound,
    /// Whether a gateway has a port outside.
    pub(super) let_in: bool,
    /// Whether none is reached there.
    pub(super) outside_failed: bool,
}

impl SiteEntry {
    /// Gateways that are attached.
    pub(super) fn attached(&self) -> impl Iterator<Item = (&Label, &GatewayEntry)> {
        self.gateways.iter().filter(|(_, gateway)| gateway.session.is_some())
    }

    /// The same, as `site` has them.
    pub(super) fn parties(&self, site: &Label) -> impl Iterator<Item = Party> {
        self.attached().map(move |(name, _)| Party::gateway(site, name))
    }

    /// Whether one is.
    pub(super) fn is_attached(&self) -> bool {
        self.attached().next().is_some()
    }

    /// Whether this one is.
    pub(super) fn has(&self, gateway: &Label) -> bool {
        self.gateways.get(gateway).is_some_and(|gateway| gateway.session.is_some())
    }

    /// Those whose word counts: the attached ones; where there is none, what was
    /// said last.
    fn counting(&self) -> impl Iterator<Item = (&Label, &GatewayEntry)> {
        let attached = self.is_attached();
        self.gateways.iter().filter(move |(_, gateway)| !attached || gateway.session.is_some())
    }

    /// What they say together: where they disagree, the strictest holds.
    pub(super) fn says(&self) -> Says {
        let strictest = self.counting().map(|(_, gateway)| gateway.inbound).max_by_key(strictness);
        let let_in = self.counting().any(|(_, gateway)| !gateway.outside_address.is_empty());
        let outside_failed = seen::reach_from_wire(self.outside_reach().as_ref()).failed();
        Says { inbound: strictest.unwrap_or(Inbound::Closed), let_in, outside_failed }
    }

    /// The same for a plan that is made elsewhere.
    pub(super) fn facts(&self) -> proto::SiteFacts {
        proto::SiteFacts {
            inbound: inbound_to_wire(self.says().inbound).into(),
            gateway_outside: self.outside_addresses(),
            gateway_reach: self.outside_reach(),
        }
    }

    /// Whether a gateway is reached at its port outside: one that is counts, and
    /// one of which it isn't known, before one that isn't.
    pub(super) fn outside_reach(&self) -> Option<proto::Reach> {
        let let_in = self.counting().filter(|(_, gateway)| !gateway.outside_address.is_empty());
        let best =
            let_in.min_by_key(|(_, gateway)| (gateway.outside_failed(), gateway.outside_reach.is_none()));
        best.and_then(|(_, gateway)| gateway.outside_reach.clone())
    }

    /// Whether one of its gateways wants nothing measured unasked.
    pub(super) fn measure_off(&self) -> bool {
        self.counting().any(|(_, gateway)| gateway.measure_off)
    }

    /// Where other sites reach its gateways, for people.
    pub(super) fn outside_addresses(&self) -> String {
        let addresses = self.counting().map(|(_, gateway)| gateway.outside_address.as_str());
        addresses.filter(|address| !address.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// Which of the attached ones says what, if they don't say the same.
    pub(super) fn disagreement(&self) -> Option<String> {
        let mut said = self.attached().map(|(_, gateway)| gateway.inbound);
        let first = said.next()?;
        if said.all(|inbound| inbound == first) {
            return None;
        }
        let each = self.attached().map(|(name, gateway)| format!("{name} says {:?}", gateway.inbound.name()));
        Some(format!(
            "the gateways do not agree on `inbound`: {}; the strictest, {:?}, holds. Set the same in section \
             [gateway] at each",
            each.collect::<Vec<_>>().join(", "),
            self.says().inbound.name()
        ))
    }

    /// The gateway that somebody outside is to come to for a node attached to
    /// `home`: those with a port outside take turns.
    pub(super) fn next_let_in(&self, home: &Label, avoid: &Avoid<'_>) -> Option<(&Label, &GatewayEntry)> {
        let mut let_in = self.usable(home);
        let_in.retain(|(_, gateway)| !gateway.outside_address.is_empty());
        if let_in.iter().any(|(_, gateway)| !gateway.outside_failed()) {
            let_in.retain(|(_, gateway)| !gateway.outside_failed());
        }
        self.in_turn(let_in, avoid)
    }

    /// The gateway that dials out for a node attached to `home`: that one, and
    /// in its place another.
    pub(super) fn next_way_out(&self, home: &Label, avoid: &Avoid<'_>) -> Option<(&Label, &GatewayEntry)> {
        let own = self.gateways.get_key_value(home).filter(|(_, gateway)| gateway.session.is_some());
        own.filter(|(name, _)| !avoid.has(name)).or_else(|| self.in_turn(self.usable(home), avoid))
    }

    /// Gateways that a node attached to `home` can be sent to.
    fn usable(&self, home: &Label) -> Vec<(&Label, &GatewayEntry)> {
        let usable =
            |name: &Label, gateway: &GatewayEntry| name == home || !gateway.inside_address.is_empty();
        self.attached().filter(|(name, gateway)| usable(name, gateway)).collect()
    }

    /// The next by name after the last one, those that have just failed last.
    fn in_turn<'a>(
        &self,
        mut gateways: Vec<(&'a Label, &'a GatewayEntry)>,
        avoid: &Avoid<'_>,
    ) -> Option<(&'a Label, &'a GatewayEntry)> {
        if gateways.iter().any(|(name, _)| !avoid.has(name)) {
            gateways.retain(|(name, _)| !avoid.has(name));
        }
        let next = gateways.iter().find(|(name, _)| self.last.as_ref().is_none_or(|last| *name > last));
        next.or_else(|| gateways.first()).copied()
    }

    /// As it is told to others; `nodes` says how many are attached to a gateway.
    pub(super) fn gateways_to_wire(&self, nodes: impl Fn(&Label) -> u32) -> Vec<proto::SiteGateway> {
        let gateway = |(name, gateway): (&Label, &GatewayEntry)| proto::SiteGateway {
            name: name.to_string(),
            up: gateway.session.is_some(),
            version: gateway.version.clone(),
            inbound: inbound_to_wire(gateway.inbound).into(),
            outside_address: gateway.outside_address.clone(),
            nodes: nodes(name),
            outside_reach: gateway.outside_reach.clone(),
        };
        self.gateways.iter().map(gateway).collect()
    }

    /// The version that those have who count, for people.
    pub(super) fn versions(&self) -> String {
        let mut versions: Vec<&str> = self.counting().map(|(_, gateway)| gateway.version.as_str()).collect();
        versions.sort_unstable();
        versions.dedup();
        versions.join(", ")
    }
}

/// Gateways of one site that have just failed.
pub(super) struct Avoid<'a> {
    /// Grid names of gateways, and names of relays.
    pub(super) names: &'a [String],
    /// The site.
    pub(super) site: &'a Label,
}

impl Avoid<'_> {
    pub(super) fn has(&self, gateway: &Label) -> bool {
        let name = grid_name(gateway, self.site);
        self.names.contains(&name)
    }
}

/// What a gateway is called among those of all sites; relays have no dot.
pub(super) fn grid_name(gateway: &Label, site: &Label) -> String {
    format!("{gateway}.{site}")
}

/// Where other nodes can go to, if that is what the text says.
pub(super) fn specific(address: &str) -> &str {
    let nowhere = |address: SocketAddr| {
        let ip = address.ip().to_canonical();
        ip.is_unspecified() || ip.is_loopback()
    };
    if address.parse().is_ok_and(nowhere) { "" } else { address }
}

fn strictness(inbound: &Inbound) -> u8 {
    match inbound {
        Inbound::Open => 0,
        Inbound::Auto => 1,
        Inbound::Closed => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::SessionId;

    /// Gateways in a few words each: "name open attached outside shut inside".
    fn site(gateways: &[&str]) -> SiteEntry {
        let mut site = SiteEntry::default();
        for words in gateways {
            let (name, _) = words.split_once(' ').unwrap();
            let has = |word| words.split(' ').any(|other| other == word);
            let gateway = GatewayEntry {
                session: has("attached").then_some(SessionId(1)),
                inbound: match words {
                    _ if has("open") => Inbound::Open,
                    _ if has("closed") => Inbound::Closed,
                    _ => Inbound::Auto,
                },
                version: String::new(),
                outside_address: if has("outside") { format!("{name}:7740") } else { String::new() },
                inside_address: if has("inside") { format!("{name}:7710") } else { String::new() },
                outside_reach: has("shut").then(|| proto::Reach {
                    result: proto::Reachability::Filtered.into(),
                    ..proto::Reach::default()
                }),
                key: Secret::new([0; 32]),
                measure_off: false,
            };
            site.gateways.insert(name.parse().unwrap(), gateway);
        }
        site
    }

    #[test]
    fn the_strictest_holds_and_who_says_what_is_told() {
        for (gateways, inbound, outside, told) in [
            (&["a open attached outside"][..], Inbound::Open, "a:7740", None),
            (&["a open attached outside", "b open attached"], Inbound::Open, "a:7740", None),
            (
                &["a open attached outside", "b auto attached outside"],
                Inbound::Auto,
                "a:7740, b:7740",
                Some("a says \"open\", b says \"auto\"; the strictest, \"auto\", holds"),
            ),
            (
                &["a auto attached", "b closed attached outside"],
                Inbound::Closed,
                "b:7740",
                Some("a says \"auto\", b says \"closed\"; the strictest, \"closed\", holds"),
            ),
            // One that isn't there has no say, unless nobody is.
            (&["a auto attached", "b closed outside"], Inbound::Auto, "", None),
            (&["a auto", "b closed outside"], Inbound::Closed, "b:7740", None),
        ] {
            let site = site(gateways);
            assert_eq!(site.says().inbound, inbound, "{gateways:?}");
            assert_eq!(site.outside_addresses(), outside, "{gateways:?}");
            assert_eq!(site.says().let_in, !outside.is_empty(), "{gateways:?}");
            let disagreement = site.disagreement();
            match told {
                None => assert_eq!(disagreement, None, "{gateways:?}"),
                Some(want) => assert!(disagreement.unwrap().contains(want), "{gateways:?}"),
            }
        }
    }

    const ALL: [&str; 4] =
        ["a attached outside inside", "b attached outside inside", "c attached inside", "d outside inside"];

    fn turns(gateways: &[&str], home: &str, avoid: &[&str], let_in: bool) -> String {
        let (mut site, home) = (site(gateways), home.parse().unwrap());
        let names: Vec<_> = avoid.iter().map(|name| format!("{name}.alpha")).collect();
        let alpha = "alpha".parse().unwrap();
        let avoid = Avoid { names: &names, site: &alpha };
        let mut chosen = Vec::new();
        for _ in 0..4 {
            let next =
                if let_in { site.next_let_in(&home, &avoid) } else { site.next_way_out(&home, &avoid) };
            site.last = next.map(|(name, _)| name.clone());
            chosen.push(site.last.as_ref().map_or("-", |name| name.as_str()).to_owned());
        }
        chosen.join(" ")
    }

    #[test]
    fn those_outside_come_to_each_in_turn() {
        for (gateways, home, avoid, want) in [
            (&ALL[..], "c", &[][..], "a b a b"),
            (&ALL, "a", &[], "a b a b"),
            (&ALL, "c", &["a"], "b b b b"),
            // What has just failed is better than nothing.
            (&ALL, "c", &["a", "b"], "a b a b"),
            (&["c attached inside"], "c", &[], "- - - -"),
            // Nobody outside reaches b.
            (&["a attached outside inside", "b attached outside inside shut"], "a", &[], "a a a a"),
            (&["b attached outside inside shut"], "b", &[], "b b b b"),
            // Nobody knows where the nodes would find b.
            (&["a attached outside", "b attached outside"], "a", &[], "a a a a"),
        ] {
            assert_eq!(turns(gateways, home, avoid, true), want, "{gateways:?} {home} {avoid:?}");
        }
    }

    #[test]
    fn a_node_goes_out_through_its_own_gateway_and_in_its_place_through_another() {
        for (home, avoid, want) in [
            ("c", &[][..], "c c c c"),
            ("c", &["c"], "a b a b"),
            ("d", &[], "a b c a"),
            ("c", &["a", "b", "c"], "a b c a"),
        ] {
            assert_eq!(turns(&ALL, home, avoid, false), want, "{home} {avoid:?}");
        }
    }

    #[test]
    fn nodes_are_sent_to_an_address_not_everywhere() {
        for (address, want) in [
            ("10.0.0.1:7710", "10.0.0.1:7710"),
            ("login1:7710", "login1:7710"),
            ("0.0.0.0:7710", ""),
            ("[::]:7710", ""),
            ("[::ffff:0.0.0.0]:7710", ""),
            ("127.0.0.1:7710", ""),
            ("", ""),
        ] {
            assert_eq!(specific(address), want, "{address}");
        }
    }
}
