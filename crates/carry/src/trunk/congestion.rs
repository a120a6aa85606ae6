//! How the sockets of carriers control congestion, and how much they may queue.

use std::sync::OnceLock;
use std::time::Duration;

use isthmus_trunk::{Congestion, Purpose};
use socket2::{Domain, SockRef, Socket, Type};

use crate::tcp_info::TcpInfo;
use crate::tcp_rto;

/// The name of BBR for the kernel (`TCP_CONGESTION`, tcp(7)).
const BBR: &[u8] = b"bbr";

/// Bounds of the bytes that a carrier's socket may queue unsent. Queued bytes wait in front of
/// small frames. But the link would be idle with less than it sends until a busy worker looks
/// again.
const UNSENT: std::ops::RangeInclusive<u64> = (128 << 10)..=(1 << 20);
/// Most bytes that the socket of a carrier for small frames alone may queue unsent.
const UNSENT_SMALL: u32 = 32 << 10;

/// The congestion control that this process may have. The kernel refuses BBR to ordinary users,
/// unless `net.ipv4.tcp_allowed_congestion_control` lists it.
pub(super) fn congestion() -> Congestion {
    static FOUND: OnceLock<Congestion> = OnceLock::new();
    *FOUND.get_or_init(|| {
        let tried =
            Socket::new(Domain::IPV4, Type::STREAM, None).and_then(|socket| socket.set_tcp_congestion(BBR));
        match tried {
            Ok(()) => Congestion::Bbr,
            Err(error) => {
                tracing::info!(
                    %error,
                    "the kernel lets this process have no BBR (net.ipv4.tcp_allowed_congestion_control): \
                     over links that lose packets, trunks use more connections instead, and are slower"
                );
                Congestion::Other
            }
        }
    })
}

/// The least time before a lost segment of a carrier for small frames is sent again. One segment is
/// under way at a time, so no later one tells of its loss. The kernel's default of 200 ms is made
/// for peers that acknowledge as late as that.
const RETRANSMISSION: Duration = Duration::from_millis(20);

/// Sets a carrier's socket up for its purpose. A carrier for bulk gets the trunk's congestion
/// control. A carrier for small frames isn't paced. BBR would space out frames of many streams that
/// come at once, by a rate measured while there were few.
pub(super) fn set(socket: SockRef<'_>, purpose: Purpose, congestion: Congestion) {
    match purpose {
        Purpose::Small => {
            if let Err(error) = tcp_rto::set_least(&*socket, RETRANSMISSION) {
                tracing::debug!(%error, "a carrier sends lost segments again no sooner than others");
            }
        }
        Purpose::Bulk if congestion == Congestion::Bbr => {
            if let Err(error) = socket.set_tcp_congestion(BBR) {
                tracing::warn!(%error, "a carrier has no BBR");
            }
        }
        Purpose::Bulk => {}
    }
}

/// How many bytes a carrier's socket may queue unsent: half of what is under way at its full rate.
pub(super) fn unsent_bytes(purpose: Purpose, info: &TcpInfo) -> u32 {
    match purpose {
        Purpose::Small => UNSENT_SMALL,
        Purpose::Bulk => {
            let half = info.congestion_window_bytes / 2;
            half.clamp(*UNSENT.start(), *UNSENT.end()) as u32
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_queued_grows_with_the_window() {
        for (purpose, window, unsent) in [
            (Purpose::Bulk, 14_480, 128 << 10),
            (Purpose::Bulk, 1_300_000, 650_000),
            (Purpose::Bulk, u64::MAX, 1 << 20),
            (Purpose::Small, 1_300_000, 32 << 10),
        ] {
            let info = TcpInfo { congestion_window_bytes: window, ..TcpInfo::default() };
            assert_eq!(unsent_bytes(purpose, &info), unsent, "{purpose:?} {window}");
        }
    }
}
