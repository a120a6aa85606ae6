//! What dials, routes and ways are called in messages.

use isthmus_plan::{Dial, LeftOut, Reason, Route};

/// A way in words: the dial, and the route unless nobody stands between.
pub(crate) fn way(route: Route, dial: Dial) -> String {
    match route {
        Route::EndToEnd => dial.to_string(),
        Route::OneGateway | Route::GatewayOut | Route::TwoGateway => format!("{dial} {route}"),
    }
}

/// What was left out, those of one reason together.
pub(crate) fn left_out(left_out: &[LeftOut]) -> Vec<String> {
    let mut by_reason: Vec<(&Reason, Vec<String>)> = Vec::new();
    for LeftOut { route, dial, reason } in left_out {
        let way = way(*route, *dial);
        match by_reason.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, ways)) => ways.push(way),
            None => by_reason.push((reason, vec![way])),
        }
    }
    by_reason.into_iter().map(|(reason, ways)| format!("{} left out: {reason}", ways.join(", "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_for_one_reason_is_said_once() {
        let left =
            |route, dial, reason: &str| LeftOut { route, dial, reason: Reason::Received(reason.to_owned()) };
        let told = left_out(&[
            left(Route::EndToEnd, Dial::Direct, "nothing is let in"),
            left(Route::EndToEnd, Dial::Relay, "no relay"),
            left(Route::GatewayOut, Dial::Direct, "nothing is let in"),
        ]);
        assert_eq!(
            told,
            ["direct, direct gateway-out left out: nothing is let in", "relay left out: no relay"]
        );
    }
}
