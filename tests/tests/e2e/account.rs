//! What a run says at its end of its time.

use anyhow::{Context as _, Result, ensure};
use isthmus_e2e::{Shared, World, root};

static GRID: Shared = Shared::new("four-sites");

/// Runs a program between two sites that asks for so many seconds, and then is silent for so many. Returns
/// for what share of the time data was under way, as the run says; and the share in which the program has
/// asked. Both are in percent.
fn shares(world: &World, asks: &str, silent: &str) -> Result<(f64, f64)> {
    let program = root().join("tests/programs/asks.py").display().to_string();
    let options = ["--nodes", "n1.alpha,n1.beta", "--each", "--no-prefix"];
    let words = ["/usr/bin/python3", &program, asks, silent];
    let (output, account) = world.run_reported("n1.alpha", &options, &words)?;
    ensure!(output.status == 0, "{}", output.whole());
    let number = |text: &str, before: &str, after: &str| {
        let found = text.lines().find_map(|line| line.strip_prefix(before)?.strip_suffix(after));
        found.with_context(|| output.whole())?.parse::<f64>().with_context(|| output.whole())
    };
    let before = "  data was under way between alpha and beta for ";
    let told = number(&output.stderr, before, " % of the time")?;
    let asked = number(&output.stdout, "asked for ", " s")?;
    let seconds = account["seconds"].as_f64().context("no time")?;
    Ok((told, 100.0 * asked / seconds))
}

#[test]
fn a_run_says_for_what_share_of_its_time_data_was_under_way() -> Result<()> {
    let world = GRID.take_alone()?;
    for (asks, silent) in [("6", "0"), ("1", "6")] {
        let (told, asked) = shares(&world, asks, silent)?;
        // Of each question's time a part is the programs', the more the busier the machine is.
        ensure!((asked / 3.0..asked + 10.0).contains(&told), "{told} % are told, {asked} % were asked");
    }
    world.expect_clean()
}
