//! How the sockets of carriers control congestion, and how much they may queue.

use std::os::fd::AsFd;
use std::sync::OnceLock;
use std::time::Duration;

use isthmus_trunk::{Congestion, Purpose};
use serde::Deserialize;
use socket2::{Domain, SockRef, Socket, Type};

use crate::tcp_info::TcpInfo;
use crate::tcp_rto;

/// The name of BBR for the kernel (`TCP_CONGESTION`, tcp(7)).
const BBR: &[u8] = b"bbr";
/// What carriers have that are to have no BBR where the system's own is BBR. Every kernel has Reno, and
/// lets every user have it. The kernel goes on to pace a connection that began with BBR, but by its window,
/// and not by a rate that was measured while less was sent.
const UNPACED: [&[u8]; 2] = [b"cubic", b"reno"];

/// Bounds of the bytes that a carrier's socket may queue unsent. Queued bytes wait in front of
/// small frames. But the link would be idle with less than it sends until a busy worker looks
/// again.
const UNSENT: std::ops::RangeInclusive<u64> = (128 << 10)..=(1 << 20);
/// Most bytes that the socket of a carrier for small frames alone may queue unsent.
const UNSENT_SMALL: u32 = 32 << 10;

/// Whether trunks use BBR for bulk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bbr {
    /// They do where the kernel lets them.
    #[default]
    Auto,
    /// They have the system's congestion control, or CUBIC if that is BBR.
    Off,
}

/// The congestion control that trunks have for bulk.
pub(super) fn congestion(bbr: Bbr) -> Congestion {
    match bbr {
        Bbr::Auto => allowed(),
        Bbr::Off => Congestion::Other,
    }
}

/// The congestion control that this process may have. The kernel refuses BBR to ordinary users,
/// unless `net.ipv4.tcp_allowed_congestion_control` lists it.
fn allowed() -> Congestion {
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

/// Who decided a carrier's congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedBy {
    /// This program: the carrier got BBR, or another one than the system's BBR.
    Isthmus,
    /// The system. Carriers for small frames keep its congestion control, unless that is BBR.
    SystemForSmall,
    /// The system, since the kernel lets this process have no BBR.
    SystemWithoutBbr,
    /// The system, since this end was told to use no BBR.
    SystemAsConfigured,
}

/// Sets a carrier's socket up for its purpose. A carrier for bulk gets the trunk's congestion
/// control. A carrier for small frames has no BBR, which would space out frames of many streams that
/// come at once, by a rate measured while there were few.
pub(super) fn set(socket: SockRef<'_>, purpose: Purpose, congestion: Congestion) -> DecidedBy {
    match purpose {
        Purpose::Small => {
            if let Err(error) = tcp_rto::set_least(&*socket, RETRANSMISSION) {
                tracing::debug!(%error, "a carrier sends lost segments again no sooner than others");
            }
            if take_bbr(&socket) { DecidedBy::Isthmus } else { DecidedBy::SystemForSmall }
        }
        Purpose::Bulk if congestion == Congestion::Bbr => match socket.set_tcp_congestion(BBR) {
            Ok(()) => DecidedBy::Isthmus,
            Err(error) => {
                tracing::warn!(%error, "a carrier has no BBR");
                DecidedBy::SystemWithoutBbr
            }
        },
        Purpose::Bulk if take_bbr(&socket) => DecidedBy::Isthmus,
        Purpose::Bulk => match allowed() {
            Congestion::Bbr => DecidedBy::SystemAsConfigured,
            Congestion::Other => DecidedBy::SystemWithoutBbr,
        },
    }
}

/// Takes BBR from a socket, if the system has given it that. Returns whether it has another one now.
fn take_bbr(socket: &SockRef<'_>) -> bool {
    if name(&**socket).as_bytes() != BBR {
        return false;
    }
    let is_taken = UNPACED.iter().any(|unpaced| socket.set_tcp_congestion(unpaced).is_ok());
    if !is_taken {
        tracing::debug!("a carrier keeps the system's BBR");
    }
    is_taken
}

/// The name of a socket's congestion control; empty if the kernel doesn't tell.
pub(super) fn name(socket: &impl AsFd) -> String {
    let name = SockRef::from(socket).tcp_congestion().unwrap_or_default();
    // The kernel fills up with zeros.
    let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

/// Whether a carrier's window has been small since a loss. That of BBR never is: it has a threshold of
/// slow start since the end of its start-up, which only says what was under way then.
pub(super) fn is_held_back(info: &TcpInfo, has_bbr: bool) -> bool {
    info.is_past_slow_start && !has_bbr
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

    /// A socket to which the system has given this congestion control.
    fn socket(system: &[u8]) -> Socket {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
        socket.set_tcp_congestion(system).unwrap();
        socket
    }

    #[test]
    fn only_carriers_for_bulk_get_bbr() {
        let allowed = congestion(Bbr::Auto);
        let (bulk, without) = match allowed {
            Congestion::Bbr => ((b"bbr".as_slice(), DecidedBy::Isthmus), DecidedBy::SystemAsConfigured),
            Congestion::Other => {
                ((b"reno".as_slice(), DecidedBy::SystemWithoutBbr), DecidedBy::SystemWithoutBbr)
            }
        };
        for (purpose, bbr, (want, by)) in [
            (Purpose::Bulk, Bbr::Auto, bulk),
            (Purpose::Bulk, Bbr::Off, (b"reno", without)),
            (Purpose::Small, Bbr::Auto, (b"reno", DecidedBy::SystemForSmall)),
            (Purpose::Small, Bbr::Off, (b"reno", DecidedBy::SystemForSmall)),
        ] {
            let socket = socket(b"reno");
            let found = set(SockRef::from(&socket), purpose, congestion(bbr));
            assert_eq!((name(&socket).as_bytes(), found), (want, by), "{purpose:?}, {bbr:?}");
        }
    }

    #[test]
    fn the_systems_bbr_is_taken_away() {
        if congestion(Bbr::Auto) == Congestion::Other {
            eprintln!("skipped: this process may not have BBR");
            return;
        }
        for (purpose, bbr) in
            [(Purpose::Small, Bbr::Auto), (Purpose::Small, Bbr::Off), (Purpose::Bulk, Bbr::Off)]
        {
            let socket = socket(BBR);
            let found = set(SockRef::from(&socket), purpose, congestion(bbr));
            assert_eq!(found, DecidedBy::Isthmus, "{purpose:?}, {bbr:?}");
            assert_ne!(name(&socket).as_bytes(), BBR, "{purpose:?}, {bbr:?}");
        }
    }

    #[test]
    fn a_loss_holds_back_what_has_no_bbr() {
        for (is_past_slow_start, has_bbr, want) in
            [(false, false, false), (true, false, true), (false, true, false), (true, true, false)]
        {
            let info = TcpInfo { is_past_slow_start, ..TcpInfo::default() };
            assert_eq!(is_held_back(&info, has_bbr), want, "{is_past_slow_start} {has_bbr}");
        }
    }

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
