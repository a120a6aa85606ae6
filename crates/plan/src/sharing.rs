//! Whether the connections of two nodes share a trunk of their agents, or each has a
//! socket of its own. How many carriers a trunk has, by busy connections and the sizes of
//! messages, is the trunk's own decision (docs/trunk.md).

use std::fmt;
use std::time::Duration;

use crate::PairFacts;

/// What the grid's configuration says of trunks between two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Pin {
    /// Connections share trunks, also where data needn't be encrypted.
    Always,
    /// Each connection has a socket of its own where data needn't be encrypted.
    Never,
}

/// What was measured between two sites.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Path {
    /// The round trip between the sites; `None` if it wasn't measured.
    pub rtt: Option<Duration>,
    /// How many of a million segments TCP sent again; `None` if that wasn't measured.
    pub loss_ppm: Option<u32>,
}

/// The loss, in segments per million, from which on a trunk is much faster than connections with
/// sockets of their own. With CUBIC, a trunk is twice as fast at 1,000 per million, and as fast at
/// 100 (docs/papers.md).
const LOSS_PPM: u32 = 500;
/// The shortest round trip over which losses count. Over a shorter way TCP makes up for losses by
/// itself.
const RTT: Duration = Duration::from_millis(1);

impl Path {
    /// Loss and round trip of a way over which a trunk is much faster than connections with sockets
    /// of their own. `None` for any other way.
    pub fn lossy(&self) -> Option<(u32, Duration)> {
        self.loss_ppm.zip(self.rtt).filter(|(loss, rtt)| *loss >= LOSS_PPM && *rtt >= RTT)
    }
}

/// Whether the connections of two nodes share a trunk, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sharing {
    /// Whether the connections share a trunk.
    pub trunk: bool,
    /// Why they share a trunk, or why each has a socket.
    pub reason: Why,
}

/// Why connections share a trunk or don't.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// No trunk: both nodes are in one site, with nothing between them.
    SameSite,
    /// The grid's configuration says so.
    Pinned(Pin),
    /// A trunk, because data between the sites is encrypted: a trunk encrypts once, and outlives
    /// cuts.
    Encrypted,
    /// A trunk, because of the loss between the sites, per million segments, over this round trip.
    Lossy(u32, Duration),
    /// No trunk: data isn't encrypted, and the way loses little, or is short, or wasn't measured.
    Plain(Path),
    /// The text of a reason that another party sent.
    Received(String),
}

impl Sharing {
    /// The decision for two nodes of one site.
    pub(crate) const SAME_SITE: Self = Self { trunk: false, reason: Why::SameSite };
}

/// Decides whether connections share a trunk, for two nodes of different sites.
pub(crate) fn sharing(pair: &PairFacts) -> Sharing {
    let decide = |trunk, reason| Sharing { trunk, reason };
    match (pair.pin, pair.path) {
        (Some(Pin::Always), _) => decide(true, Why::Pinned(Pin::Always)),
        _ if !pair.trusted => decide(true, Why::Encrypted),
        (Some(Pin::Never), _) => decide(false, Why::Pinned(Pin::Never)),
        (None, path) => match path.lossy() {
            Some((loss, rtt)) => decide(true, Why::Lossy(loss, rtt)),
            None => decide(false, Why::Plain(path)),
        },
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = |loss: u32| f64::from(loss) / 1e4;
        match self {
            Self::SameSite => f.write_str("both nodes are in one site"),
            Self::Pinned(Pin::Always) => f.write_str("the broker's configuration says so for the two sites"),
            Self::Pinned(Pin::Never) => {
                f.write_str("the broker's configuration forbids trunks between the two sites")
            }
            Self::Encrypted => f.write_str("data is encrypted: a trunk does that once, and outlives cuts"),
            Self::Lossy(loss, rtt) => {
                write!(f, "{} % of segments are lost over {rtt:.1?}: a trunk is faster", percent(*loss))
            }
            Self::Plain(Path { loss_ppm: Some(loss), rtt: Some(rtt) }) => write!(
                f,
                "data isn't encrypted, and {} % of segments are lost over {rtt:.1?}: sockets are as fast",
                percent(*loss)
            ),
            Self::Received(text) => f.write_str(text),
            Self::Plain(_) => f.write_str("data isn't encrypted, and loss between the sites isn't measured"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Forbidden, RoundTrips};

    #[test]
    fn when_connections_share_a_trunk() {
        let ms = |ms| Some(Duration::from_millis(ms));
        for (trusted, pin, rtt, loss_ppm, trunk, reason) in [
            (false, None, None, None, true, "data is encrypted: a trunk does that once, and outlives cuts"),
            (
                false,
                Some(Pin::Never),
                ms(10),
                Some(9_000),
                true,
                "data is encrypted: a trunk does that once, and outlives cuts",
            ),
            (true, Some(Pin::Never), ms(10), Some(9_000), false, "the broker's configuration forbids trunks"),
            (true, Some(Pin::Always), None, None, true, "the broker's configuration says so"),
            (
                true,
                None,
                None,
                None,
                false,
                "data isn't encrypted, and loss between the sites isn't measured",
            ),
            (true, None, ms(10), None, false, "data isn't encrypted, and loss"),
            (true, None, ms(10), Some(499), false, "data isn't encrypted, and 0.0499 % of segments are lost"),
            (
                true,
                None,
                ms(10),
                Some(500),
                true,
                "0.05 % of segments are lost over 10.0ms: a trunk is faster",
            ),
            (
                true,
                None,
                Some(Duration::from_micros(999)),
                Some(500),
                false,
                "data isn't encrypted, and 0.05 %",
            ),
        ] {
            let (forbidden, round_trips) = (Forbidden::NOTHING, RoundTrips::default());
            let path = Path { rtt, loss_ppm };
            let pair = PairFacts { trusted, relays: 1, forbidden, round_trips, pin, path };
            let found = sharing(&pair);
            assert_eq!(found.trunk, trunk, "{pair:?}");
            assert!(found.reason.to_string().starts_with(reason), "{}", found.reason);
        }
    }
}
