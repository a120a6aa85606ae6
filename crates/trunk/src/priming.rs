//! PINGs with padding, by which the congestion window of a new carrier grows before it
//! is needed.
//!
//! As in TCP's slow start, each answer that is in time lets two more go; one that is late lets one go.
//! So what is under way is about as much as TCP's own window, and no more than about one frame waits in
//! the socket.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crate::frame::MAX_FRAME;

/// Most padding for one carrier, in bytes: 100 MB/s over 10 ms.
pub const MAX_PRIMING: usize = 1 << 20;

#[derive(Debug)]
pub(crate) struct Priming {
    left: usize,
    /// How many PINGs may be under way at once.
    window: usize,
    /// The PINGs that are under way. Each has the number of its answer, when it went out, and how
    /// many were under way with it.
    out: VecDeque<(u64, Instant, usize)>,
    /// The number of the last PING that had gone out when an answer came late; `None` once one is in
    /// time.
    late: Option<u64>,
}

impl Priming {
    pub(crate) fn new() -> Self {
        Self { left: MAX_PRIMING, window: 1, out: VecDeque::new(), late: None }
    }

    /// Whether another PING may go out.
    pub(crate) fn may_send(&self) -> bool {
        self.left >= MAX_FRAME && self.out.len() < self.window
    }

    /// Notes that a PING of [`MAX_FRAME`] bytes goes out.
    pub(crate) fn sent(&mut self, nonce: u64, now: Instant) {
        self.left = self.left.saturating_sub(MAX_FRAME);
        self.out.push_back((nonce, now, self.out.len() + 1));
    }

    /// Takes in an answer, which stands for all PINGs before it. It may be that of a PING without
    /// padding. `is_late` judges the time that it took.
    ///
    /// Returns how many bytes were under way with the last of them, and in which time it was
    /// answered. All of these bytes arrived in that time. A late answer may be due to TCP's window,
    /// which was shorter, or to a burst of others. So it only ends the growth. If a PING that went out
    /// after it is late, too, and none in between was in time, the pipe is full, and no more is sent.
    pub(crate) fn answered(
        &mut self,
        nonce: u64,
        now: Instant,
        is_late: impl FnOnce(Duration) -> bool,
    ) -> Option<(usize, Duration)> {
        let count = self.out.iter().take_while(|(sent, ..)| *sent <= nonce).count();
        let (answered, last, under_way) = self.out.drain(..count).next_back()?;
        let took = now.saturating_duration_since(last);
        if !is_late(took) {
            self.late = None;
            self.window += count;
        } else if let Some(newest) = self.late {
            self.left = if newest < answered { 0 } else { self.left };
        } else {
            self.late = Some(self.out.back().map_or(answered, |(sent, ..)| *sent));
        }
        Some((under_way * MAX_FRAME, took))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends all PINGs that may go; returns how many.
    fn send(priming: &mut Priming, nonce: &mut u64, now: Instant) -> usize {
        let before = *nonce;
        while priming.may_send() {
            *nonce += 1;
            priming.sent(*nonce, now);
        }
        (*nonce - before) as usize
    }

    #[test]
    fn each_answer_lets_two_more_go_up_to_the_bound() {
        let rtt = Duration::from_millis(10);
        let (mut priming, mut nonce, mut now) = (Priming::new(), 0, Instant::now());
        let mut flights = Vec::new();
        for _ in 0..9 {
            flights.push(send(&mut priming, &mut nonce, now));
            now += rtt;
            priming.answered(nonce, now, |_| false);
        }
        assert_eq!(flights, [1, 2, 4, 8, 16, 32, 1, 0, 0]);
        assert_eq!(nonce as usize * MAX_FRAME, MAX_PRIMING);
    }

    #[test]
    fn it_ends_when_the_pipe_is_full() {
        let rtt = Duration::from_millis(10);
        for (name, late, windows) in [
            ("in time", &[false, false, false][..], &[1, 2, 4, 8][..]),
            ("late once, as TCP's first window is shorter", &[true, false, false], &[1, 1, 2, 4]),
            ("late now and then", &[false, true, false, true], &[1, 2, 2, 4, 4]),
            ("late since", &[false, false, true, true], &[1, 2, 4, 4, 0]),
        ] {
            let (mut priming, mut nonce, mut now) = (Priming::new(), 0, Instant::now());
            for (late, window) in late.iter().zip(windows) {
                assert_eq!(send(&mut priming, &mut nonce, now), *window, "{name}");
                now += rtt;
                assert_eq!(priming.answered(0, now, |_| true), None, "an older answer");
                let answered = priming.answered(nonce, now, |took| *late && took == rtt);
                assert_eq!(answered, Some((window * MAX_FRAME, rtt)), "{name}");
            }
            assert_eq!(Some(&send(&mut priming, &mut nonce, now)), windows.last(), "{name}");
        }
    }

    #[test]
    fn those_that_had_gone_out_before_may_be_late() {
        let now = Instant::now();
        let mut priming = Priming::new();
        priming.window = 3;
        let mut nonce = 0;
        assert_eq!(send(&mut priming, &mut nonce, now), 3);
        let late = |priming: &mut Priming, nonce| priming.answered(nonce, now, |_| true).is_some();
        assert!(late(&mut priming, 1));
        // PING 4 has no padding. Its answer stands for 2 and 3.
        nonce += 1;
        assert!(late(&mut priming, nonce));
        assert_eq!(send(&mut priming, &mut nonce, now), 3);
        assert!(late(&mut priming, 5));
        assert_eq!(send(&mut priming, &mut nonce, now), 0);
    }
}
