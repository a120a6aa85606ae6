//! What `isthmus doctor` finds out is what the emulated networks are, and plans
//! go by it.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Shared, World, isthmus, root};
use serde_json::{Value, json};

static KINDS: Shared = Shared::new("ways");
static GRID: Shared = Shared::new("doctor");
static DOUBT: Shared = Shared::new("doubt");
static EGRESS: Shared = Shared::new("egress");

/// Time within which agents find everything out. It guards against hanging only.
const SOON: Duration = Duration::from_secs(150);
/// Deadline of a command that only asks. It guards against hanging only.
const SHORT: Duration = Duration::from_secs(60);
/// Milliseconds that a busy machine may add to the shortest of several round trips. The way by the
/// far relay takes several times as long.
const BUSY_MS: f64 = 90.0;

/// The status and the output of `isthmus doctor WORDS --json` in a node.
pub(crate) fn doctor(world: &World, node: &str, words: &[&str]) -> Result<(i32, Value)> {
    let binary = isthmus().display().to_string();
    let mut all = vec![binary.as_str(), "doctor"];
    all.extend(words);
    all.push("--json");
    let output = world.sh(node, SOON, &all)?;
    ensure!(output.status == 0 || output.status == 1, "{}", output.whole());
    Ok((output.status, serde_json::from_str(&output.stdout).with_context(|| output.whole())?))
}

/// Waits until the only node of a site has found out what its site lets in. Returns the doctor's
/// status and what it says about the site.
pub(crate) fn site(world: &World, name: &str) -> Result<(i32, Value)> {
    let mut found = (1, Value::Null);
    World::eventually("the node has found out what is let in", SOON, || {
        let (status, mut sites) = doctor(world, &format!("n1.{name}"), &["site", name])?;
        found = (status, sites[0].take());
        Ok(found.1["nodes"][0]["found_out_unix_ms"].as_u64().unwrap_or_default() > 0)
    })?;
    Ok(found)
}

/// The rows of the table of docs/connectivity.md, which says what is found of each kind of site.
fn expected() -> Result<Vec<Vec<String>>> {
    let page = std::fs::read_to_string(root().join("docs/connectivity.md"))?;
    let (_, table) = page.split_once("<!-- kinds -->\n").context("no table")?;
    let (table, _) = table.split_once("<!-- end -->").context("no end of the table")?;
    let cells = |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    Ok(table.lines().skip(2).map(cells).collect())
}

#[test]
fn every_kind_of_site_is_found_to_be_what_it_is() -> Result<()> {
    let world = KINDS.take()?;
    let rows = expected()?;
    ensure!(rows.len() == 7, "{rows:?}");
    for row in rows {
        let [kind, mapping, filtering, unsolicited, own, outside] = row.as_slice() else {
            anyhow::bail!("{row:?} has not six cells")
        };
        let name = match kind.as_str() {
            "open" => "open-a",
            "port-range" => "port-a",
            "firewall" => "fire-a",
            "stateless-firewall" => "less-a",
            "nat" => "nat-a",
            "carrier-nat" => "cgn-a",
            "symmetric-nat" => "sym-a",
            other => anyhow::bail!("no site is {other}"),
        };
        let (status, found) = site(&world, name)?;
        let node = &found["nodes"][0];
        let got = [
            &node["mapping"],
            &node["filtering"],
            &node["unsolicited"],
            &node["own"]["result"],
            &node["outside"]["result"],
        ];
        ensure!(got == [mapping, filtering, unsolicited, own, outside], "{kind}: {node:#}");
        ensure!(node["way_out"] == "yes", "{kind}: {node:#}");
        ensure!((status, &found["healthy"]) == (0, &Value::Bool(true)), "{kind}: {found:#}");
    }
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn what_is_declared_open_and_is_not_is_found_and_not_used() -> Result<()> {
    // A grid of its own: its gateway ends with the test.
    let world = World::up("doctor")?;
    let binary = isthmus().display().to_string();
    world.stop("n1.gamma", "gateway")?;
    let config = world.directory.path().join("open.toml");
    std::fs::write(
        &config,
        "[gateway]\nlisten = \"203.0.113.2:7710\"\ninbound = \"open\"\nmeasure = \"off\"\n",
    )?;
    let config = config.display().to_string();
    let _gateway = world.serve("n1.gamma", "gateway", &[], &config)?;
    let mut plan = Value::Null;
    World::eventually("the broker knows that the site is declared open", SOON, || {
        let output = world.sh("n1.alpha", SHORT, &[&binary, "plan", "--json", "n1.alpha", "n1.gamma"])?;
        plan = serde_json::from_str(&output.stdout).unwrap_or_default();
        // The node's agent attaches again first.
        let known = plan["to"]["inbound"] == "open" && plan["to"]["reached"][0] == "filtered";
        Ok(known && plan["steps"][0].is_object())
    })?;
    let left_out = plan["left_out"].as_array().context("nothing is left out")?;
    let direct = left_out.iter().find(|left| left["dial"] == "direct").context("direct is planned")?;
    let reason = direct["reason"].as_str().unwrap_or_default();
    ensure!(
        reason.starts_with("site gamma is declared open, but relay ")
            && reason.contains(" could not reach 203.0.113.2:7730: no answer within 3 s"),
        "{reason}"
    );
    let (status, found) = site(&world, "gamma")?;
    ensure!((status, &found["healthy"]) == (1, &Value::Bool(false)), "{found:#}");
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn the_nearest_relay_is_taken_and_the_way_is_measured() -> Result<()> {
    let world = GRID.take_alone()?;
    for name in ["alpha", "beta"] {
        let mut found = Value::Null;
        // A relay may attach after the node has looked for relays.
        World::eventually("the node has measured both relays", SOON, || {
            found = site(&world, name)?.1;
            Ok(found["nodes"][0]["relays"].as_array().is_some_and(|relays| relays.len() == 2))
        })?;
        let relays = found["nodes"][0]["relays"].as_array().context("no relays")?;
        let round_trip = |name: &str| -> Result<f64> {
            let relay = relays.iter().find(|relay| relay["relay"] == name).context("no relay")?;
            relay["round_trip_ms"].as_f64().context("not reached")
        };
        let (hub, away) = (round_trip("hub")?, round_trip("away")?);
        // Twice the delays of both links.
        for (round_trip, least) in [(hub, 5.0), (away, 203.0)] {
            ensure!((least..least + BUSY_MS).contains(&round_trip), "{hub} and {away} ms");
        }
    }
    let (status, found) = doctor(&world, "n1.alpha", &["pair", "alpha", "beta"])?;
    ensure!(status == 0, "{found:#}");
    let directions = found["directions"].as_array().context("no directions")?;
    ensure!(directions.len() == 2, "{found:#}");
    for direction in directions {
        let path = &direction["measured"];
        ensure!(path["dial"] == "relay" && path["relay"] == "hub", "{direction:#}");
        let round_trip = path["round_trip_ms"].as_f64().context("no round trip")?;
        ensure!((10.0..10.0 + BUSY_MS).contains(&round_trip), "{direction:#}");
        for rate in ["sent_bytes_per_second", "received_bytes_per_second"] {
            ensure!(path[rate].as_u64().unwrap_or_default() > 100_000, "{direction:#}");
        }
    }
    let plan = world.plan("n1.alpha", "n1.beta")?;
    let reason = plan["steps"][0]["reason"].as_str().context("no step")?;
    let text = reason.strip_suffix(" ms there and back over the nearest relay by measurement");
    let round_trip: f64 = text.and_then(|text| text.rsplit(' ').next()).context("no time")?.parse()?;
    ensure!((10.0..10.0 + BUSY_MS).contains(&round_trip), "{reason}");
    Ok(())
}

/// Kills a service and waits until it has ended.
fn stop(world: &World, node: &str, role: &str) -> Result<()> {
    world.kill(node, "-KILL", &world.service(node, role)?)?;
    World::eventually("the service has ended", SOON, || Ok(world.service(node, role).is_err()))
}

/// A firewall lets in other sites, but not the relays.
#[test]
#[ignore = "test-all"]
fn what_the_other_site_sees_counts_for_more_than_what_a_relay_does() -> Result<()> {
    let world = DOUBT.take()?;
    let binary = isthmus().display().to_string();
    let rules = "nft add table ip norelay
                 nft add chain ip norelay pass '{ type filter hook forward priority -10; }'
                 nft add rule ip norelay pass ip saddr 198.51.100.10 tcp dport 7730 ct state new drop";
    let shut = world.sh("router.open", SHORT, &["sh", "-ec", rules])?;
    ensure!(shut.status == 0, "{}", shut.whole());
    // The node's agent finds out anew what is let in.
    stop(&world, "n1.open", "agent")?;
    let _agent = world.serve("n1.open", "agent", &[], &World::config("agent"))?;
    let mut plan = Value::Null;
    World::eventually("the node has been connected to, though the relay gets no answer", MEASURED, || {
        // The node's agent attaches again first.
        let output = world.sh("n1.nat", SHORT, &[&binary, "plan", "--json", "n1.nat", "n1.open"])?;
        plan = serde_json::from_str(&output.stdout).unwrap_or_default();
        let filtered = plan["to"]["reached"][0] == "filtered";
        Ok(filtered && plan["steps"][0]["dial"] == "direct")
    })?;
    let reason = plan["steps"][0]["reason"].as_str().unwrap_or_default();
    let want = "site open lets connections from the other site in, as an earlier connection has shown, though relay hub \
                could not reach";
    ensure!(reason.starts_with(want), "{reason}");
    World::eventually("that was tried on purpose", MEASURED, || {
        let status = world.status("n1.nat")?;
        let paths = status["site_paths"].as_array().context("no paths")?;
        let tried = |path: &Value| {
            path["from"] == "n1.nat" && path["to"] == "n1.open" && path["direct"] == "reachable"
        };
        Ok(paths.iter().any(tried))
    })?;
    let ways = world.hundred("n1.nat", "n1.open")?;
    ensure!(ways == std::collections::BTreeMap::from([("direct".to_owned(), 100)]), "{ways:?}");
    Ok(())
}

#[test]
#[ignore = "test-all"]
fn a_gateways_port_outside_that_is_not_reached_is_left_out() -> Result<()> {
    let world = DOUBT.take()?;
    stop(&world, "n1.front", "gateway")?;
    let config = world.directory.path().join("outside.toml");
    std::fs::write(
        &config,
        "[gateway]\nlisten = \"192.168.1.2:7710\"\noutside = \"192.168.1.2:7740\"\n\
         outside_address = \"198.51.100.21:7740\"\n",
    )?;
    let config = config.display().to_string();
    let _gateway = world.serve("n1.front", "gateway", &[], &config)?;
    let mut found = (0, Value::Null);
    World::eventually("a relay has tried the port outside", SOON, || {
        let (status, mut sites) = doctor(&world, "n1.nat", &["site", "front"])?;
        found = (status, sites[0].take());
        Ok(found.1["gateway_outside"]["result"] == "filtered" && found.1["nodes"][0].is_object())
    })?;
    let findings = found.1["findings"].as_array().context("no findings")?;
    let reported = findings.iter().any(|finding| {
        let text = finding["text"].as_str().unwrap_or_default();
        finding["problem"] == true
            && text.contains("could not reach 198.51.100.21:7740: no answer within 3 s")
    });
    ensure!((found.0, reported) == (1, true), "{:#}", found.1);
    let plan = world.plan("n1.nat", "n1.front")?;
    let left_out = plan["left_out"].as_array().context("nothing is left out")?;
    let way = left_out.iter().find(|left| left["dial"] == "direct" && left["route"] == "one-gateway");
    let reason = way.context("it is planned")?["reason"].as_str().unwrap_or_default();
    let want = "the gateway of site front is not reached at its port outside: relay hub could not reach";
    ensure!(reason.starts_with(want), "{reason}");
    Ok(())
}

#[test]
fn a_gateways_port_outside_that_is_forwarded_is_reached() -> Result<()> {
    let world = KINDS.take()?;
    World::eventually("a relay has reached the port outside", SOON, || {
        let (_, found) = doctor(&world, "n1.open-a", &["site", "front-a"])?;
        Ok(found[0]["gateway_outside"]["result"] == "reachable")
    })
}

#[test]
#[ignore = "test-all"]
fn what_a_site_lets_out_is_found_and_heeded() -> Result<()> {
    let world = EGRESS.take()?;
    World::eventually("both have found out which ports answer", SOON, || {
        let (_, sites) = doctor(&world, "n1.open", &["site"])?;
        let node = |name: &str| {
            let site = sites.as_array()?.iter().find(|site| site["site"] == name)?;
            site["nodes"].get(0).cloned()
        };
        let (strict, open) = (node("strict").unwrap_or_default(), node("open").unwrap_or_default());
        let all = open["let_out"] == json!([80, 443, 7730, 7740, 61001]) && open["dropped"] == json!([]);
        Ok(all && strict["let_out"] == json!([443]) && strict["dropped"] == json!([80, 7730, 7740, 61001]))
    })?;
    let plan = world.plan("n1.strict", "n1.open")?;
    let steps = plan["steps"].as_array().context("no steps")?;
    let last = steps.iter().find(|step| step["dial"] == "direct").context("direct is left out")?;
    let reason = last["reason"].as_str().unwrap_or_default();
    ensure!(steps[0]["dial"] == "relay", "{plan:#}");
    ensure!(reason.ends_with("but site strict seems to let nothing out to port 7730"), "{reason}");
    for (from, to, way) in [("n1.strict", "n1.open", "relay"), ("n1.open", "n1.strict", "relay")] {
        let ways = world.hundred(from, to)?;
        ensure!(ways == std::collections::BTreeMap::from([(way.to_owned(), 100)]), "{ways:?}");
    }
    Ok(())
}

/// Time within which each of three sites has been measured with both others. What they let in is
/// found out first, and a site has a pause of 10 s. It guards against hanging only.
const MEASURED: Duration = Duration::from_secs(300);

#[test]
#[ignore = "test-all"]
fn ways_between_sites_are_measured_without_anybody_asking_but_where_that_is_off() -> Result<()> {
    let world = GRID.take_alone()?;
    let mut paths = Vec::new();
    World::eventually("each two of the three sites are measured, bandwidth and all", MEASURED, || {
        let status = world.status("n1.alpha")?;
        paths = status["site_paths"].as_array().context("no paths")?.clone();
        Ok(paths.iter().filter(|path| path["sent_bytes_per_second"].is_u64()).count() >= 3)
    })?;
    let site =
        |node: &Value| node.as_str().and_then(|node| node.split_once('.')).map(|(_, site)| site.to_owned());
    for path in &paths {
        let mut ends = [site(&path["from"]), site(&path["to"])].map(Option::unwrap_or_default);
        ends.sort();
        // Twice the delays of the links.
        let (least, way) = match ends.each_ref().map(String::as_str) {
            ["alpha", "beta"] => (10.0, ["relay", "hub"]),
            ["alpha" | "beta", "delta"] => (15.0, ["relay", "hub"]),
            // Its gateway is free when alpha and beta are measured.
            other => anyhow::bail!("{other:?} wasn't to be measured: {path:#}"),
        };
        ensure!(
            path["dial"] == way[0] && path["relay"] == way[1] && path["route"] == "end-to-end",
            "{path:#}"
        );
        let round_trip = path["round_trip_ms"].as_f64().context("no round trip")?;
        ensure!((least..least + BUSY_MS).contains(&round_trip), "{path:#}");
        for rate in ["sent_bytes_per_second", "received_bytes_per_second"] {
            ensure!(path[rate].as_u64().unwrap_or_default() > 100_000, "{path:#}");
        }
        for when in ["measured_unix_ms", "transferred_unix_ms"] {
            ensure!(path[when].as_u64().unwrap_or_default() > 0, "{path:#}");
        }
    }
    for (name, measure, others) in [("alpha", "auto", 2), ("gamma", "off", 0)] {
        let (_, found) = doctor(&world, "n1.alpha", &["site", name])?;
        let to_sites = found[0]["to_sites"].as_array().context("no sites")?;
        ensure!((to_sites.len(), &found[0]["measure"]) == (others, &measure.into()), "{found:#}");
    }
    Ok(())
}

#[test]
fn what_is_not_in_the_grid_is_bad_usage() -> Result<()> {
    let world = GRID.take()?;
    let binary = isthmus().display().to_string();
    for (words, want) in [
        (&["site", "omega"][..], r#"no site "omega" is in the grid; there are alpha, beta, delta, gamma"#),
        (&["pair", "alpha", "omega"], r#"no site or node "omega""#),
        (&["pair", "alpha", "n1.alpha"], "both are n1.alpha"),
        (&["pair", "alpha"], "Usage: isthmus doctor pair"),
    ] {
        let mut all = vec![binary.as_str(), "doctor"];
        all.extend(words);
        let output = world.sh("n1.alpha", SHORT, &all)?;
        ensure!(output.status == 2 && output.stderr.contains(want), "{}", output.whole());
    }
    Ok(())
}
