//! Random loss, of single packets or in bursts.

use fastrand::Rng;

use crate::grid::{Loss, Share};

/// Decides for each packet whether it is lost.
///
/// Loss of single packets is independent (Bernoulli). Loss in bursts is the Gilbert model: a chain
/// of two states, a good and a bad one. In the bad state every packet is lost. The chain leaves the
/// bad state with probability 1/b, so that bursts have b packets in the mean (geometrically
/// distributed). It enters the bad state with the probability that makes the share of lost packets
/// in the long run the requested one.
#[derive(Debug)]
pub(super) struct Losses {
    loss: Loss,
    bad: bool,
}

impl Losses {
    /// Makes a chain as if it had been running for long: the first packet is as likely to be lost
    /// as any other.
    pub(super) fn new(loss: Loss, random: &mut Rng) -> Self {
        Self { loss, bad: random.f64() < loss.share.probability() }
    }

    /// Changes the loss. If `loss` is the present loss, the chain goes on in its state.
    pub(super) fn set(&mut self, loss: Loss, random: &mut Rng) {
        if loss != self.loss {
            *self = Self::new(loss, random);
        }
    }

    /// Whether the next packet is lost.
    pub(super) fn loses(&mut self, random: &mut Rng) -> bool {
        let Loss { share, burst } = self.loss;
        if share == Share(0) {
            return false;
        }
        let share = share.probability();
        if burst <= 1 {
            return random.f64() < share;
        }
        let lost = self.bad;
        let leaving = 1.0 / f64::from(burst);
        let entering = leaving * share / (1.0 - share);
        self.bad = if lost { random.f64() >= leaving } else { random.f64() < entering };
        lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of so many packets are lost, and in how many bursts.
    fn count(loss: Loss, packets: u32, seed: u64) -> (f64, f64) {
        let mut random = Rng::with_seed(seed);
        let mut losses = Losses::new(loss, &mut random);
        let (mut lost, mut bursts, mut before) = (0u32, 0u32, false);
        for _ in 0..packets {
            let this = losses.loses(&mut random);
            lost += u32::from(this);
            bursts += u32::from(this && !before);
            before = this;
        }
        (f64::from(lost), f64::from(bursts))
    }

    #[test]
    fn share_and_mean_burst_are_as_asked() {
        // Seeds are fixed, so a bound of five standard errors never fails by
        // chance, and a wrong model misses it by far.
        const PACKETS: u32 = 2_000_000;
        for (parts_per_billion, burst) in [
            (1_000_000, 1),
            (10_000_000, 1),
            (500_000_000, 1),
            (1_000_000, 5),
            (10_000_000, 3),
            (500_000_000, 2),
        ] {
            for seed in 1..4 {
                let loss = Loss { share: Share(parts_per_billion), burst };
                let (packets, share) = (f64::from(PACKETS), loss.share.probability());
                let (lost, bursts) = count(loss, PACKETS, seed);
                // A two-state chain's correlation from packet to packet makes
                // the variance of the number lost grow by (1 + c) / (1 - c).
                let leaving = if burst == 1 { 1.0 - share } else { 1.0 / f64::from(burst) };
                let entering = leaving * share / (1.0 - share);
                let correlation = 1.0 - leaving - entering;
                let variance = packets * share * (1.0 - share) * (1.0 + correlation) / (1.0 - correlation);
                let error = (lost - packets * share).abs() / variance.sqrt();
                assert!(error < 5.0, "{loss:?}: lost {lost}, {error} standard errors off");
                // Lengths of bursts are geometric with this mean.
                let mean = 1.0 / leaving;
                let deviation = (mean * (mean - 1.0) / bursts).sqrt();
                let found = lost / bursts;
                assert!((found - mean).abs() <= 5.0 * deviation, "{loss:?}: bursts of {found}, not {mean}");
            }
        }
    }

    #[test]
    fn nothing_and_all_are_exact() {
        for burst in [1, 4] {
            assert_eq!(count(Loss { share: Share(0), burst }, 10_000, 1).0, 0.0);
        }
        assert_eq!(count(Loss { share: Share(1_000_000_000), burst: 1 }, 10_000, 1).0, 10_000.0);
    }
}
