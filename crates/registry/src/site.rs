//! A site and its gateways: what they declare together, and which gateway is next.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use isthmus_plan::{Inbound, Mapping};
use isthmus_rpc::enums::{inbound_to_wire, mapping_to_wire};
use isthmus_rpc::seen;
use isthmus_service::mac::Secret;
use isthmus_wire::{Label, proto};

use super::{Party, SessionId};

/// A site of the grid.
#[derive(Debug, Default)]
pub(super) struct SiteEntry {
    /// The attached and the former gateways of the site, by their names.
    pub(super) gateways: BTreeMap<Label, GatewayEntry>,
    /// The gateway that was chosen last.
    pub(super) last: Option<Label>,
}

/// A gateway of a site.
#[derive(Debug)]
pub(super) struct GatewayEntry {
    pub(super) session: Option<SessionId>,
    pub(super) inbound: Inbound,
    pub(super) version: String,
    /// The address at which other sites reach the gateway, `HOST:PORT`; empty if they don't.
    pub(super) outside_address: String,
    /// The address at which the site's nodes reach the gateway, `HOST:PORT`; empty as long as it is
    /// unknown.
    pub(super) inside_address: String,
    /// The address at which the site's nodes may reach the gateway, by the gateway's way to the
    /// broker. It counts as long as `inside_address` is unknown; empty if there is none.
    pub(super) likely_address: String,
    /// Whether the gateway's port outside is reached, as the gateway reported last.
    pub(super) outside_reach: Option<proto::Reach>,
    /// How a NAT maps the ports that the gateway dials from.
    pub(super) mapping: Mapping,
    /// The key that signs tickets for the gateway.
    pub(super) key: Secret,
    /// Whether nothing is to be measured in the background between the gateway's site and others.
    pub(super) measure_off: bool,
    /// Whether the gateway keeps trunks with gateways of other sites.
    pub(super) site_trunk: bool,
}

impl GatewayEntry {
    /// Whether the gateway's port outside was tried and not reached.
    pub(super) fn outside_failed(&self) -> bool {
        seen::reach_from_wire(self.outside_reach.as_ref()).failed()
    }
}

/// What a site's gateways declare together, as far as plans depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Declared {
    /// What the site lets in.
    pub(super) inbound: Inbound,
    /// Whether a gateway of the site has a port outside.
    pub(super) let_in: bool,
    /// Whether no gateway is reached at its port outside.
    pub(super) outside_failed: bool,
    /// Whether all gateways of the site keep trunks with those of other sites.
    pub(super) site_trunk: bool,
    /// How a NAT maps the ports that the gateways dial from.
    pub(super) mapping: Mapping,
}

impl SiteEntry {
    /// The attached gateways of the site.
    pub(super) fn attached(&self) -> impl Iterator<Item = (&Label, &GatewayEntry)> {
        self.gateways.iter().filter(|(_, gateway)| gateway.session.is_some())
    }

    /// The attached gateways as parties. `site` is this site's name.
    pub(super) fn parties(&self, site: &Label) -> impl Iterator<Item = Party> {
        self.attached().map(move |(name, _)| Party::gateway(site, name))
    }

    /// Whether any gateway of the site is attached.
    pub(super) fn is_attached(&self) -> bool {
        self.attached().next().is_some()
    }

    /// The addresses at which the attached gateways serve the site's agents, as far as they are
    /// known.
    pub(super) fn inside_addresses(&self) -> Vec<String> {
        let address = |(_, gateway): (&Label, &GatewayEntry)| match gateway.inside_address.as_str() {
            "" => gateway.likely_address.clone(),
            known => known.to_owned(),
        };
        self.attached().map(address).filter(|address| !address.is_empty()).collect()
    }

    /// Whether the gateway with this name is attached.
    pub(super) fn has(&self, gateway: &Label) -> bool {
        self.gateways.get(gateway).is_some_and(|gateway| gateway.session.is_some())
    }

    /// The gateways whose declarations count: the attached gateways, or all former gateways if none
    /// is attached.
    fn counting(&self) -> impl Iterator<Item = (&Label, &GatewayEntry)> {
        let attached = self.is_attached();
        self.gateways.iter().filter(move |(_, gateway)| !attached || gateway.session.is_some())
    }

    /// What the gateways declare together: the strictest `inbound` holds.
    pub(super) fn declared(&self) -> Declared {
        let strictest = self.counting().map(|(_, gateway)| gateway.inbound).max_by_key(strictness);
        let let_in = self.counting().any(|(_, gateway)| !gateway.outside_address.is_empty());
        let outside_failed = seen::reach_from_wire(self.outside_reach().as_ref()).failed();
        let site_trunk = !self.gateways.is_empty() && self.counting().all(|(_, gateway)| gateway.site_trunk);
        let inbound = strictest.unwrap_or(Inbound::Closed);
        Declared { inbound, let_in, outside_failed, site_trunk, mapping: self.mapping() }
    }

    /// What the gateways declare together, for a plan that a gateway makes.
    pub(super) fn facts(&self) -> proto::SiteFacts {
        proto::SiteFacts {
            inbound: inbound_to_wire(self.declared().inbound).into(),
            gateway_outside: self.outside_addresses(),
            gateway_reach: self.outside_reach(),
            site_trunk: self.declared().site_trunk,
            gateway_mapping: mapping_to_wire(self.mapping()).into(),
        }
    }

    /// How a NAT maps the ports of the site's gateways, at the gateway that can punch best.
    pub(super) fn mapping(&self) -> Mapping {
        let mappings = self.counting().map(|(_, gateway)| gateway.mapping);
        let best = mappings.min_by_key(|mapping| match mapping {
            Mapping::Untranslated | Mapping::EndpointIndependent => 0,
            Mapping::PortDependent => 1,
            Mapping::Unknown => 2,
        });
        best.unwrap_or_default()
    }

    /// The best result of a reach test of a gateway's port outside: reached, then
    /// untested, then not reached.
    pub(super) fn outside_reach(&self) -> Option<proto::Reach> {
        let let_in = self.counting().filter(|(_, gateway)| !gateway.outside_address.is_empty());
        let best =
            let_in.min_by_key(|(_, gateway)| (gateway.outside_failed(), gateway.outside_reach.is_none()));
        best.and_then(|(_, gateway)| gateway.outside_reach.clone())
    }

    /// Whether a gateway of the site declares `measure = "off"`.
    pub(super) fn measure_off(&self) -> bool {
        self.counting().any(|(_, gateway)| gateway.measure_off)
    }

    /// The addresses at which other sites reach the site's gateways, joined by `, `, for users.
    pub(super) fn outside_addresses(&self) -> String {
        let addresses = self.counting().map(|(_, gateway)| gateway.outside_address.as_str());
        addresses.filter(|address| !address.is_empty()).collect::<Vec<_>>().join(", ")
    }

    /// Which attached gateway declares which `inbound`; `None` if they agree.
    pub(super) fn disagreement(&self) -> Option<String> {
        let mut declared = self.attached().map(|(_, gateway)| gateway.inbound);
        let first = declared.next()?;
        if declared.all(|inbound| inbound == first) {
            return None;
        }
        let each =
            self.attached().map(|(name, gateway)| format!("{name} declares {:?}", gateway.inbound.name()));
        Some(format!(
            "the gateways do not agree on `inbound`: {}; the strictest, {:?}, holds. Set the same in section \
             [gateway] at each",
            each.collect::<Vec<_>>().join(", "),
            self.declared().inbound.name()
        ))
    }

    /// Which attached gateways keep trunks with those of other sites; `None` if all do, or none
    /// does.
    pub(super) fn site_trunk_disagreement(&self) -> Option<String> {
        let (on, off): (Vec<_>, Vec<_>) = self.attached().partition(|(_, gateway)| gateway.site_trunk);
        if on.is_empty() || off.is_empty() {
            return None;
        }
        let names = |gateways: Vec<(&Label, _)>| {
            gateways.into_iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>().join(", ")
        };
        Some(format!(
            "the gateways do not agree on `site_trunk`: it is on at {}, and off at {}; off holds. Set the same in \
             section [gateway] at each",
            names(on),
            names(off)
        ))
    }

    /// The gateway that other sites connect to for a node attached to `home`. The gateways with a
    /// port outside take turns.
    pub(super) fn next_let_in(&self, home: &Label, avoid: &Avoid<'_>) -> Option<(&Label, &GatewayEntry)> {
        let mut let_in = self.usable(home);
        let_in.retain(|(_, gateway)| !gateway.outside_address.is_empty());
        if let_in.iter().any(|(_, gateway)| !gateway.outside_failed()) {
            let_in.retain(|(_, gateway)| !gateway.outside_failed());
        }
        self.in_turn(let_in, avoid)
    }

    /// The gateway that dials out for a node attached to `home`. That is `home`, or another gateway
    /// if `home` is detached or has just failed.
    pub(super) fn next_way_out(&self, home: &Label, avoid: &Avoid<'_>) -> Option<(&Label, &GatewayEntry)> {
        let own = self.gateways.get_key_value(home).filter(|(_, gateway)| gateway.session.is_some());
        own.filter(|(name, _)| !avoid.has(name)).or_else(|| self.in_turn(self.usable(home), avoid))
    }

    /// The attached gateways that a node attached to `home` can connect to.
    fn usable(&self, home: &Label) -> Vec<(&Label, &GatewayEntry)> {
        let usable =
            |name: &Label, gateway: &GatewayEntry| name == home || !gateway.inside_address.is_empty();
        self.attached().filter(|(name, gateway)| usable(name, gateway)).collect()
    }

    /// The next gateway by name after the gateway that was chosen last. A gateway that has just
    /// failed is taken only if all have.
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

    /// The gateways as a list shows them. `nodes` counts the nodes of a gateway.
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

    /// The versions of the gateways that count, for users.
    pub(super) fn versions(&self) -> String {
        let mut versions: Vec<&str> = self.counting().map(|(_, gateway)| gateway.version.as_str()).collect();
        versions.sort_unstable();
        versions.dedup();
        versions.join(", ")
    }
}

/// The gateways of a site that have just failed.
pub(super) struct Avoid<'a> {
    /// Grid names of gateways that have just failed; names of relays among them have no effect.
    pub(super) names: &'a [String],
    /// The site of the gateways.
    pub(super) site: &'a Label,
}

impl Avoid<'_> {
    pub(super) fn has(&self, gateway: &Label) -> bool {
        let name = grid_name(gateway, self.site);
        self.names.contains(&name)
    }
}

/// The grid name of a gateway. Names of relays have no dot.
pub(super) fn grid_name(gateway: &Label, site: &Label) -> String {
    format!("{gateway}.{site}")
}

/// The address, or an empty text if it is unspecified or loopback, because other nodes can't
/// connect to it.
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
    use crate::SessionId;

    /// Gateways in a few words each: "name open attached outside shut inside trunk".
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
                likely_address: if has("likely") { format!("{name}.likely:7710") } else { String::new() },
                outside_reach: has("shut").then(|| proto::Reach {
                    result: proto::Reachability::Filtered.into(),
                    ..proto::Reach::default()
                }),
                mapping: Mapping::Unknown,
                key: Secret::new([0; 32]),
                measure_off: false,
                site_trunk: has("trunk"),
            };
            site.gateways.insert(name.parse().unwrap(), gateway);
        }
        site
    }

    #[test]
    fn agents_are_told_of_attached_gateways_whose_place_is_known() {
        let site = site(&["a attached inside likely", "b attached likely", "c inside", "d attached"]);
        assert_eq!(site.inside_addresses(), ["a:7710", "b.likely:7710"]);
    }

    #[test]
    fn the_strictest_inbound_holds_and_a_disagreement_is_named() {
        for (gateways, inbound, outside, disagreement) in [
            (&["a open attached outside"][..], Inbound::Open, "a:7740", None),
            (&["a open attached outside", "b open attached"], Inbound::Open, "a:7740", None),
            (
                &["a open attached outside", "b auto attached outside"],
                Inbound::Auto,
                "a:7740, b:7740",
                Some("a declares \"open\", b declares \"auto\"; the strictest, \"auto\", holds"),
            ),
            (
                &["a auto attached", "b closed attached outside"],
                Inbound::Closed,
                "b:7740",
                Some("a declares \"auto\", b declares \"closed\"; the strictest, \"closed\", holds"),
            ),
            // A detached gateway counts only if none is attached.
            (&["a auto attached", "b closed outside"], Inbound::Auto, "", None),
            (&["a auto", "b closed outside"], Inbound::Closed, "b:7740", None),
        ] {
            let site = site(gateways);
            assert_eq!(site.declared().inbound, inbound, "{gateways:?}");
            assert_eq!(site.outside_addresses(), outside, "{gateways:?}");
            assert_eq!(site.declared().let_in, !outside.is_empty(), "{gateways:?}");
            match disagreement {
                None => assert_eq!(site.disagreement(), None, "{gateways:?}"),
                Some(want) => assert!(site.disagreement().unwrap().contains(want), "{gateways:?}"),
            }
        }
    }

    #[test]
    fn all_gateways_of_a_site_must_keep_trunks() {
        for (gateways, want, disagreement) in [
            (&["a attached trunk"][..], true, None),
            (&["a attached trunk", "b attached trunk"], true, None),
            (&["a attached trunk", "b attached"], false, Some("it is on at a, and off at b; off holds")),
            (&["a attached", "b attached"], false, None),
            // A detached gateway counts only if none is attached.
            (&["a attached trunk", "b inside"], true, None),
            (&["a trunk", "b inside"], false, None),
        ] {
            let site = site(gateways);
            assert_eq!((site.declared().site_trunk, site.facts().site_trunk), (want, want), "{gateways:?}");
            let found = site.site_trunk_disagreement();
            assert_eq!(found.is_some(), disagreement.is_some(), "{gateways:?}");
            assert!(found.unwrap_or_default().contains(disagreement.unwrap_or_default()), "{gateways:?}");
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
    fn connections_from_outside_go_to_each_gateway_in_turn() {
        for (gateways, home, avoid, want) in [
            (&ALL[..], "c", &[][..], "a b a b"),
            (&ALL, "a", &[], "a b a b"),
            (&ALL, "c", &["a"], "b b b b"),
            // All have just failed.
            (&ALL, "c", &["a", "b"], "a b a b"),
            (&["c attached inside"], "c", &[], "- - - -"),
            // b is not reached from outside.
            (&["a attached outside inside", "b attached outside inside shut"], "a", &[], "a a a a"),
            (&["b attached outside inside shut"], "b", &[], "b b b b"),
            // The address of b within the site is unknown.
            (&["a attached outside", "b attached outside"], "a", &[], "a a a a"),
        ] {
            assert_eq!(turns(gateways, home, avoid, true), want, "{gateways:?} {home} {avoid:?}");
        }
    }

    #[test]
    fn a_node_goes_out_over_its_own_gateway_or_another_one_if_that_failed() {
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
    fn unspecified_and_loopback_addresses_are_left_out() {
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
