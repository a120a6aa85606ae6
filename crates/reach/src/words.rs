//! Names of dials and routes in messages.

use isthmus_plan::{Dial, LeftOut, Reason, Route};

/// The dial's name, with the route's if it goes over a gateway.
pub(crate) fn way(route: Route, dial: Dial) -> String {
    match route {
        Route::EndToEnd => dial.to_string(),
        Route::OneGateway | Route::GatewayOut | Route::TwoGateway => format!("{dial} {route}"),
    }
}

/// The dials that were left out, grouped by reason.
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
    fn dials_left_out_for_one_reason_are_listed_together() {
        let left =
            |route, dial, reason: &str| LeftOut { route, dial, reason: Reason::Received(reason.to_owned()) };
        let lines = left_out(&[
            left(Route::EndToEnd, Dial::Direct, "nothing is let in"),
            left(Route::EndToEnd, Dial::Relay, "no relay"),
            left(Route::GatewayOut, Dial::Direct, "nothing is let in"),
        ]);
        assert_eq!(
            lines,
            ["direct, direct gateway-out left out: nothing is let in", "relay left out: no relay"]
        );
    }
}
