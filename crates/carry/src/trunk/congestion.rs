//! How the sockets of carriers control congestion, and how much they may queue.

use std::sync::OnceLock;
use std::time::Duration;

use isthmus_trunk::{Congestion, Purpose};
use socket2::{Domain, SockRef, Socket, Type};

use crate::tcp_info::TcpInfo;
use crate::tcp_rto;

/// Its name (`TCP_CONGESTION`, tcp(7)).
const BBR: &[u8] = b"bbr";

/// What a carrier's socket may queue that isn't sent yet, in bytes: what is queued there
/// waits in front of small frames. Less than the link sends until a busy worker looks
/// again would leave the link idle.
const UNSENT: std::ops::RangeInclusive<u64> = (128 << 10)..=(1 << 20);
/// The same for a carrier of small frames alone.
const UNSENT_SMALL: u32 = 32 << 10;

/// What this process may have. The kernel refuses BBR to ordinary users, unless
/// `net.ipv4.tcp_allowed_congestion_control` lists it.
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

/// The least time before a lost segment of a carrier for small frames is sent again: one
/// is under way at a time, so no later one tells of the loss. The kernel's default of 200
/// ms is made for peers that acknowledge as late as that.
const RETRANSMISSION: Duration = Duration::from_millis(20);

/// Has a carrier's socket be such as its purpose needs. For bulk it uses what the trunk
/// has. For small frames it isn't paced: BBR would space out frames of many streams that
/// come at once, by a rate that it has measured while there were few.
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

/// How much a carrier's socket may queue: half of what is under way at its full rate.
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
