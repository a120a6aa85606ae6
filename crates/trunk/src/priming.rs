//! PINGs with padding, by which the congestion window of a new carrier grows before it
//! is needed.
//!
//! As in TCP's slow start, each answer lets two more go. So what is under way is about
//! as much as TCP's own window, and no more than about one frame waits in the socket.

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
}

impl Priming {
    pub(crate) fn new() -> Self {
        Self { left: MAX_PRIMING, window: 1, out: VecDeque::new() }
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

    /// Takes in an answer, which stands for all PINGs before it.
    ///
    /// Returns how many bytes were under way with the last of them, and in which time it was
    /// answered. All of these bytes arrived in that time. If it is more than two round trips
    /// without queues, `least` each, the pipe is full, and no more is sent.
    pub(crate) fn answered(
        &mut self,
        nonce: u64,
        least: Option<Duration>,
        now: Instant,
    ) -> Option<(usize, Duration)> {
        let count = self.out.iter().take_while(|(sent, ..)| *sent <= nonce).count();
        let (_, last, under_way) = self.out.drain(..count).next_back()?;
        let took = now.saturating_duration_since(last);
        self.window += count;
        if least.is_some_and(|least| took > 2 * least) {
            self.left = 0;
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
            priming.answered(nonce, Some(rtt), now);
        }
        assert_eq!(flights, [1, 2, 4, 8, 16, 32, 1, 0, 0]);
        assert_eq!(nonce as usize * MAX_FRAME, MAX_PRIMING);
    }

    #[test]
    fn it_ends_when_the_pipe_is_full() {
        let rtt = Duration::from_millis(10);
        for (name, took, more) in [("at once", rtt, 2), ("queued", 2 * rtt, 2), ("full", 3 * rtt, 0)] {
            let (mut priming, mut nonce, now) = (Priming::new(), 0, Instant::now());
            send(&mut priming, &mut nonce, now);
            assert_eq!(priming.answered(0, Some(rtt), now + took), None, "an older answer");
            assert_eq!(priming.answered(nonce, Some(rtt), now + took), Some((MAX_FRAME, took)));
            assert_eq!(send(&mut priming, &mut nonce, now + took), more, "{name}");
        }
    }
}
