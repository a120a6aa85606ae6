//! What was measured between two sites, and whether that asks for a trunk.

use std::time::Duration;

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

    /// Why sockets are as fast as a trunk, as a clause.
    pub(crate) fn as_fast(&self) -> String {
        match (self.loss_ppm, self.rtt) {
            (Some(loss), Some(rtt)) => {
                let percent = f64::from(loss) / 1e4;
                format!("{percent} % of segments are lost over {rtt:.1?}: sockets are as fast")
            }
            _ => "loss between the sites isn't measured".to_owned(),
        }
    }
}
