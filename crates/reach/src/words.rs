//! Names of dials and routes in messages, and the reasons why there is no connection.

use isthmus_plan::{Dial, LeftOut, Remedy, Route, Told};

/// Most ways that are named with the same reason.
const WAYS_MAX: usize = 4;
/// Most characters of a reason; a reason may come from another party.
const REASON_MAX: usize = 300;
/// Most characters of all reasons together: nobody reads more.
const TOTAL_MAX: usize = 800;

/// The dial's name; with the route's name if the way goes over a gateway.
pub(crate) fn way(route: Route, dial: Dial) -> String {
    match route {
        Route::EndToEnd => dial.to_string(),
        Route::OneGateway | Route::GatewayOut | Route::TwoGateway => format!("{dial} {route}"),
    }
}

/// A way that was tried, and why it failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tried {
    pub(crate) way: String,
    pub(crate) reason: Told,
}

/// A reason, with the ways that it holds for.
#[derive(Debug)]
struct Cause {
    reason: Told,
    tried: Vec<String>,
    left_out: Vec<String>,
}

/// Why there is no connection: each reason once, with its ways. What a person can mend comes first,
/// then what was met, then what the plan left out. The result is short; its last text says how many
/// reasons are missing.
pub(crate) fn reasons(tried: &[Tried], left_out: &[LeftOut]) -> Vec<Told> {
    let mut causes: Vec<Cause> = Vec::new();
    for Tried { way, reason } in tried {
        let ways = &mut cause(&mut causes, reason).tried;
        if !ways.contains(way) {
            ways.push(way.clone());
        }
    }
    for LeftOut { route, dial, reason } in left_out {
        cause(&mut causes, &reason.into()).left_out.push(way(*route, *dial));
    }
    // The sort is stable: the other causes stay in the order of the plan.
    causes.sort_by_key(|cause| (cause.reason.remedy.is_none(), cause.reason.remedy));
    let (mut texts, mut total) = (Vec::new(), 0);
    let count = causes.len();
    for told in causes.iter().map(Cause::told) {
        total += told.text.chars().count();
        if total > TOTAL_MAX && !texts.is_empty() {
            break;
        }
        texts.push(told);
    }
    match count - texts.len() {
        0 => {}
        1 => texts.push("one more reason, which `isthmus plan --all` has".into()),
        more => texts.push(format!("{more} more reasons, which `isthmus plan --all` has").into()),
    }
    texts
}

/// The cause with this reason; it is added if there is none yet.
fn cause<'a>(causes: &'a mut Vec<Cause>, reason: &Told) -> &'a mut Cause {
    let same = causes.iter().enumerate();
    let same = same.filter_map(|(index, cause)| Some((index, common(&cause.reason, reason)?))).next();
    let index = match same {
        Some((index, reason)) => {
            causes[index].reason = reason;
            index
        }
        None => {
            causes.push(Cause { reason: reason.clone(), tried: Vec::new(), left_out: Vec::new() });
            causes.len() - 1
        }
    };
    &mut causes[index]
}

/// What stands for both of two reasons; `None` if they differ. Two reasons count as the same if the
/// longer one only adds to the shorter.
fn common(one: &Told, other: &Told) -> Option<Told> {
    let (short, long) = if one.text.len() <= other.text.len() { (one, other) } else { (other, one) };
    // What follows from that differs from way to way.
    let of_relay = [short, long].iter().all(|told| told.remedy == Some(Remedy::StartRelay));
    let same = short.text.split_once(", so ").map_or(&*short.text, |(same, _)| same);
    if of_relay && long.text.contains(same) {
        return Some(short.clone());
    }
    let rest = long.text.strip_prefix(&short.text)?;
    let adds = matches!(rest.chars().next(), None | Some(':' | ';' | ','));
    adds.then(|| Told { text: long.text.clone(), remedy: long.remedy.or(short.remedy) })
}

impl Cause {
    fn told(&self) -> Told {
        let Told { text, remedy } = &self.reason;
        let reason = cut(text);
        let (tried, left_out) = (list(&self.tried), list(&self.left_out));
        let text = match (remedy, self.tried.is_empty(), self.left_out.is_empty()) {
            // What to mend is read before the ways that need it.
            (Some(_), false, true) => format!("{reason} ({tried})"),
            (Some(_), true, _) => format!("{reason} (left out: {left_out})"),
            (Some(_), false, false) => format!("{reason} ({tried}; left out: {left_out})"),
            (None, false, true) => format!("{tried}: {reason}"),
            (None, true, _) => format!("{left_out} left out: {reason}"),
            (None, false, false) => format!("{tried}: {reason} (for that left out: {left_out})"),
        };
        Told { text, remedy: *remedy }
    }
}

/// The names of the first ways, and how many more there are.
fn list(ways: &[String]) -> String {
    let named = ways.iter().take(WAYS_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    match ways.len().saturating_sub(WAYS_MAX) {
        0 => named,
        more => format!("{named} and {more} more"),
    }
}

fn cut(reason: &str) -> String {
    match reason.char_indices().nth(REASON_MAX) {
        Some((end, _)) => format!("{}…", reason.get(..end).unwrap_or_default()),
        None => reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use isthmus_plan::Reason;

    use super::*;

    fn left(route: Route, dial: Dial, reason: impl Into<Told>) -> LeftOut {
        LeftOut { route, dial, reason: Reason::Received(reason.into()) }
    }

    fn met(way: &str, reason: impl Into<Told>) -> Tried {
        Tried { way: way.to_owned(), reason: reason.into() }
    }

    fn mended(text: &str, remedy: Remedy) -> Told {
        Told { text: text.to_owned(), remedy: Some(remedy) }
    }

    fn texts(told: Vec<Told>) -> Vec<String> {
        told.into_iter().map(|told| told.text).collect()
    }

    #[test]
    fn what_a_person_can_mend_comes_first_and_nothing_twice() {
        let no_relay = || Told::from(&Reason::NoRelay);
        let unarranged = || no_relay().within(|reason| format!("no rendezvous arranged: {reason}"));
        for (name, tried, left_out, want) in [
            ("nothing at all", vec![], vec![], vec![]),
            (
                "dials that were left out for one reason are listed together",
                vec![],
                vec![
                    left(Route::EndToEnd, Dial::Direct, "nothing is let in"),
                    left(Route::EndToEnd, Dial::Traverse, "no raw packets"),
                    left(Route::GatewayOut, Dial::Direct, "nothing is let in"),
                ],
                vec![
                    "direct, direct gateway-out left out: nothing is let in",
                    "traverse left out: no raw packets",
                ],
            ),
            (
                "no relay, after much else, and for two ways",
                vec![met("direct", "no answer within 3 s")],
                vec![
                    left(Route::EndToEnd, Dial::Reverse, "site alpha lets nothing in"),
                    left(Route::EndToEnd, Dial::Punch, &Reason::NoRelayForBoth),
                    left(Route::EndToEnd, Dial::Relay, &Reason::NoRelay),
                ],
                vec![
                    "no relay is attached to the broker (left out: punch, relay)",
                    "direct: no answer within 3 s",
                    "reverse left out: site alpha lets nothing in",
                ],
            ),
            (
                "met by one way, known of another",
                vec![met("relay", unarranged()), met("relay", unarranged())],
                vec![left(Route::TwoGateway, Dial::Relay, &Reason::NoRelay)],
                vec!["no relay is attached to the broker (relay; left out: relay two-gateway)"],
            ),
            (
                "more to mend: in a fixed order",
                vec![
                    met(
                        "direct",
                        mended("site b is declared open, but relay r could not reach it", Remedy::OpenSite),
                    ),
                    met("relay", &Reason::Detached { site: "b".to_owned() }),
                ],
                vec![],
                vec![
                    "the gateway of site b is not attached to the broker (relay)",
                    "site b is declared open, but relay r could not reach it (direct)",
                ],
            ),
            (
                "the same, met as what can't be mended and as what can",
                vec![met("direct", "no way in"), met("punch", mended("no way in", Remedy::OpenSite))],
                vec![],
                vec!["no way in (direct, punch)"],
            ),
            (
                "one that only tells more",
                vec![
                    met("direct", "site b lets nothing in"),
                    met("reverse", "site b lets nothing in: no answer"),
                ],
                vec![],
                vec!["direct, reverse: site b lets nothing in: no answer"],
            ),
            (
                "names that begin alike are two",
                vec![met("direct", "no way to n1"), met("reverse", "no way to n12")],
                vec![],
                vec!["direct: no way to n1", "reverse: no way to n12"],
            ),
        ] {
            assert_eq!(texts(reasons(&tried, &left_out)), want, "{name}");
        }
    }

    #[test]
    fn the_whole_is_short() {
        let long = |index: usize| met(&format!("way{index}"), format!("{index}{}", "x".repeat(1000)));
        let tried: Vec<_> = (0..20).map(long).collect();
        let found = texts(reasons(&tried, &[]));
        assert_eq!(found.len(), 3, "{found:?}");
        assert_eq!(found[2], "18 more reasons, which `isthmus plan --all` has");
        assert!(found.join("; ").chars().count() < TOTAL_MAX, "{found:?}");
        let many: Vec<_> = (0..9).map(|index| met(&format!("w{index}"), "no answer")).collect();
        assert_eq!(texts(reasons(&many, &[])), ["w0, w1, w2, w3 and 5 more: no answer"]);
    }
}
