//! What the user reads of nodes that can't take part: a line for each reason, with the first
//! nodes that it holds for.

use isthmus_front::format::count;
use isthmus_front::output::one_line;
use isthmus_wire::proto::{Unfit, Unready};
use isthmus_wire::text::first;

/// Most nodes that a line names.
const NAMED_MAX: usize = 3;

/// The lines for the user, without a line feed at the end.
pub(super) fn text(unready: &Unready) -> String {
    let mut lines: Vec<String> = unready.unfit.iter().map(line).collect();
    if unready.left_out > 0 {
        lines.push(format!("and {} for further reasons", count(unready.left_out.into(), "more node")));
    }
    lines.join("\n")
}

/// Whether another try may have another result for all nodes.
pub(super) fn may_pass(unready: &Unready) -> bool {
    unready.left_out == 0 && unready.unfit.iter().all(|unfit| unfit.may_pass)
}

fn line(unfit: &Unfit) -> String {
    let names = first(unfit.nodes.iter(), unfit.more.into(), NAMED_MAX);
    one_line(&format!("{names}: {}", unfit.reason))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let unfit = |nodes: &[&str], more, reason: &str| Unfit {
            nodes: nodes.iter().map(|node| (*node).to_owned()).collect(),
            more,
            reason: reason.to_owned(),
            may_pass: reason == "late",
        };
        for (name, unfit, left_out, want) in [
            ("one node", vec![unfit(&["n1.a"], 0, "late")], 0, "n1.a: late"),
            (
                "many",
                vec![unfit(&["n1.a", "n2.a", "n3.a", "n4.a"], 808, "late"), unfit(&["n1.b"], 0, "gone\nx")],
                0,
                "n1.a, n2.a, n3.a and 809 more: late\nn1.b: gone\\nx",
            ),
            (
                "too many reasons",
                vec![unfit(&["n1.a", "n2.a"], 0, "late")],
                936,
                "n1.a, n2.a: late\nand 936 more nodes for further reasons",
            ),
        ] {
            let passes = name == "one node";
            let unready = Unready { unfit, left_out };
            assert_eq!((text(&unready).as_str(), may_pass(&unready)), (want, passes), "{name}");
        }
    }
}
