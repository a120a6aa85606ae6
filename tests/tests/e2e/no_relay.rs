//! A grid without any relay: a site that lets connections in, and doesn't say so, is found open.

use std::time::Duration;

use anyhow::{Result, ensure};
use isthmus_e2e::{Mpi, World};

/// Deadline that guards against hanging only.
const SOON: Duration = Duration::from_secs(90);

#[test]
#[ignore = "test-all"]
fn an_open_site_is_found_open() -> Result<()> {
    let world = World::up("no-relay")?;
    // The lab declares what it knows of the site.
    let (declared, silent) = (World::config("gateway"), "/run/isthmus-machine/silent.toml");
    let edit = format!("grep -v -e ^inbound -e ^outside {declared} > {silent}");
    let edited = world.sh("n1.beta", SOON, &["sh", "-c", &edit])?;
    ensure!(edited.status == 0, "{}", edited.whole());
    world.stop("n1.beta", "gateway")?;
    let _gateway = world.serve("n1.beta", "gateway", &[], silent)?;
    let (alpha, beta) = ("n1.alpha", "n1.beta");
    for (from, to, dial) in [(alpha, beta, "direct"), (beta, alpha, "reverse")] {
        let mut plan = serde_json::Value::Null;
        let found = World::eventually("the plan has the one dial that works", SOON, || {
            // While the gateway comes back there may be no plan.
            plan = world.plan(from, to).unwrap_or_default();
            let steps = plan["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
            Ok(plan["to"]["inbound"] == "auto" && steps.iter().any(|step| step["dial"] == dial))
        });
        found.map_err(|error| error.context(format!("{plan:#}")))?;
    }
    let mpi = Mpi::OpenMpi;
    let (launcher, ring) = (mpi.launcher(), mpi.program("ring"));
    for head in [alpha, beta] {
        let output = world.run(head, &["--nodes", "n1.alpha,n1.beta"], &[&launcher, "-n", "4", &ring])?;
        ensure!(output.status == 0 && output.stdout.contains(" No Errors"), "{}", output.whole());
    }
    world.expect_clean()
}
