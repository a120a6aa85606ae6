//! The demo prints what it should, and takes everything down.

use std::process::Command;

use anyhow::{Result, ensure};
use isthmus_e2e::{Places, isthmus, root};

#[test]
fn the_demo_runs_and_leaves_nothing() -> Result<()> {
    let _place = Places::one();
    let mut command = Command::new("timeout");
    // The timeout guards against hanging only.
    command.arg("600").arg(root().join("scripts/demo")).env("ISTHMUS_BIN", isthmus());
    let output = command.output()?;
    let printed =
        String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{}\n{printed}", output.status);
    for words in [
        "dropped by the firewall",
        "Loop time of",
        "6 ranks on 6 nodes at 3 sites",
        "end-to-end, encrypted",
        "n1.beta – n1.gamma",
    ] {
        ensure!(printed.contains(words), "{words:?} is not in\n{printed}");
    }
    let labs = Command::new(isthmus()).args(["lab", "status", "--lab", "demo"]).output()?;
    ensure!(!labs.status.success());
    let listed = String::from_utf8_lossy(&labs.stderr).into_owned();
    ensure!(!listed.contains("demo-"), "{listed}");
    Ok(())
}
