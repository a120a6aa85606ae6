//! Ends a worker's wait for events at a time.
//!
//! A wait with a timeout sets a timer of the kernel and takes it back, each time. That took some
//! 3 % of a small message's processor time. An alarm that is set stays set. If it rings
//! before anything is due, it is set again: some 50 times a second beside small messages.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use nix::sys::time::TimeSpec;
use nix::sys::timerfd::{ClockId, Expiration, TimerFd, TimerFlags, TimerSetTimeFlags};

/// An alarm, as a descriptor for epoll(7), edge-triggered.
#[derive(Debug)]
pub(crate) struct Alarm {
    timer: TimerFd,
    /// When the alarm rings; `None` if it isn't set.
    rings_at: Option<Instant>,
}

impl Alarm {
    pub(crate) fn new() -> io::Result<Self> {
        let timer = TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_CLOEXEC)?;
        Ok(Self { timer, rings_at: None })
    }

    /// Has the alarm ring at this time or earlier.
    pub(crate) fn ring_by(&mut self, time: Instant) -> io::Result<()> {
        if self.rings_at.is_some_and(|rings_at| rings_at <= time) {
            return Ok(());
        }
        // Zero would take the alarm back (timerfd_create(2)).
        let after = time.saturating_duration_since(Instant::now()).max(Duration::from_nanos(1));
        let expiration = Expiration::OneShot(TimeSpec::from_duration(after));
        self.timer.set(expiration, TimerSetTimeFlags::empty())?;
        self.rings_at = Some(time);
        Ok(())
    }

    /// Notes that the alarm has rung.
    pub(crate) fn rang(&mut self) {
        self.rings_at = None;
    }
}

impl AsFd for Alarm {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.timer.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

    use super::*;

    #[test]
    fn it_rings_once_at_the_earliest_time() {
        let ms = Duration::from_millis;
        let epoll = Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC).unwrap();
        let mut alarm = Alarm::new().unwrap();
        epoll.add(&alarm, EpollEvent::new(EpollFlags::EPOLLIN | EpollFlags::EPOLLET, 0)).unwrap();
        let rings = |within: u16| {
            let mut events = [EpollEvent::empty()];
            epoll.wait(&mut events, EpollTimeout::from(within)).unwrap() == 1
        };
        // The last one has passed already.
        for times in [&[30][..], &[10_000, 30], &[30, 10_000], &[0]] {
            let begun = Instant::now();
            for time in times {
                alarm.ring_by(begun + ms(*time)).unwrap();
            }
            assert!(rings(5_000), "{times:?}");
            let least = times.iter().min().copied().unwrap_or_default();
            assert!(begun.elapsed() >= ms(least) && begun.elapsed() < ms(5_000), "{times:?}");
            assert!(!rings(0), "{times:?}");
            alarm.rang();
        }
    }
}
