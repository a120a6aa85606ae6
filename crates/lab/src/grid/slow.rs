//! Slow motion: a grid in which the network does the same in K times the time.
//!
//! Delays and the kernel's times grow, rates shrink, and a queue holds as many packets as before.
//! What processors do takes as long as ever, so it counts for a K-th beside the network. A
//! measurement of what a network decides is then undisturbed by a busy machine.
//!
//! These stay as they are: a link without a rate; the times that programs choose themselves; and
//! those of the kernel that can't be set, such as 40 ms until an acknowledgement that is held back,
//! 1 s until a first segment is sent again, and the times inside BBR.

use std::fmt;
use std::num::{NonZeroU16, NonZeroU32};
use std::str::FromStr;
use std::time::Duration;

use isthmus_common::quantity::{BitRate, Delay};
use serde::{Deserialize, Serialize};

use super::links::LEAST_RATE;
use super::model::{Grid, Link, LinkShape, Rail, Site};

/// Largest factor.
const MOST: u32 = 1000;

/// Longest round trip of a grid in slow motion. The kernel sends a connection's first segment again
/// after 1 s (RFC 6298), and no setting changes that.
const LONGEST_ROUND_TRIP: Duration = Duration::from_millis(900);

/// How many times slower than described a grid's network is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct Slow(NonZeroU32);

/// Why a grid can't be so slow.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SlowError {
    /// The number is no factor.
    #[error("slow motion takes a whole factor from 1 to {MOST}, not {0:?}")]
    Factor(String),
    /// A round trip would be so long that the kernel takes first segments for lost.
    #[error(
        "{slow} times slower, the longest round trip takes {round_trip:?}; the kernel sends a first segment \
         again after 1 s, so at most {longest:?} are of use: choose a factor of at most {most}",
        longest = LONGEST_ROUND_TRIP
    )]
    RoundTrip {
        /// The factor.
        slow: Slow,
        /// The longest round trip at this factor.
        round_trip: Duration,
        /// The largest factor that the grid may have.
        most: u128,
    },
    /// A rate would be below the smallest.
    #[error("{slow} times slower, {link} has less than {LEAST_RATE}: choose a smaller factor")]
    Rate {
        /// The factor.
        slow: Slow,
        /// The link, or the network of a site, whose rate is too small.
        link: String,
    },
}

impl Slow {
    /// As described.
    pub const NONE: Self = Self(NonZeroU32::MIN);

    /// The factor.
    #[inline]
    pub fn factor(self) -> u32 {
        self.0.get()
    }

    /// So many times less slow motion, rounded up: 1 is the least.
    #[inline]
    pub fn less(self, times: u32) -> Self {
        NonZeroU32::new(self.factor().div_ceil(times.max(1))).map_or(Self::NONE, Self)
    }

    /// This slow motion, or that of a factor if it is less.
    #[inline]
    pub fn at_most(self, factor: u32) -> Self {
        NonZeroU32::new(factor).map_or(Self::NONE, |factor| self.min(Self(factor)))
    }

    /// Whether the network is slower than described at all.
    #[inline]
    pub fn is_none(&self) -> bool {
        *self == Self::NONE
    }

    /// The time that something takes in slow motion, given the time that it takes as described.
    #[inline]
    pub fn time(self, described: Duration) -> Duration {
        described.saturating_mul(self.factor())
    }

    /// The time that something takes as described, given the time that it took in slow motion, in
    /// the same unit.
    #[inline]
    pub fn as_described(self, took: f64) -> f64 {
        took / f64::from(self.factor())
    }

    /// The rate in slow motion.
    #[inline]
    pub fn rate(self, described: BitRate) -> BitRate {
        let factor = u64::from(self.factor());
        BitRate((described.0 + factor / 2) / factor)
    }
}

impl Default for Slow {
    fn default() -> Self {
        Self::NONE
    }
}

impl TryFrom<u32> for Slow {
    type Error = SlowError;

    fn try_from(factor: u32) -> Result<Self, SlowError> {
        let found = NonZeroU32::new(factor).filter(|factor| factor.get() <= MOST);
        found.map(Self).ok_or_else(|| SlowError::Factor(factor.to_string()))
    }
}

impl From<Slow> for u32 {
    fn from(slow: Slow) -> Self {
        slow.factor()
    }
}

impl FromStr for Slow {
    type Err = SlowError;

    fn from_str(text: &str) -> Result<Self, SlowError> {
        let factor: u32 = text.trim().parse().map_err(|_| SlowError::Factor(text.to_owned()))?;
        Self::try_from(factor)
    }
}

impl fmt::Display for Slow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.factor().fmt(f)
    }
}

impl Grid {
    /// The grid in slow motion, this many times slower than it is now.
    ///
    /// # Errors
    /// A round trip would be too long, or a rate too small.
    pub fn slowed(mut self, slow: Slow) -> Result<Self, SlowError> {
        let whole = self.slow.factor().saturating_mul(slow.factor());
        let whole = Slow::try_from(whole)?;
        let round_trip = slow.time(self.longest_round_trip());
        if !slow.is_none() && round_trip > LONGEST_ROUND_TRIP {
            let most = LONGEST_ROUND_TRIP.as_nanos() / self.longest_round_trip().as_nanos().max(1);
            return Err(SlowError::RoundTrip { slow, round_trip, most });
        }
        for host in &mut self.hosts {
            host.link = slow.link(host.link, &host.name)?;
        }
        for site in &mut self.sites {
            slow.site(site)?;
        }
        self.return_seconds = self.return_seconds.map(|seconds| slow.seconds(seconds));
        self.slow = whole;
        Ok(self)
    }

    /// The longest round trip between any two ends of links, without waits in queues.
    fn longest_round_trip(&self) -> Duration {
        let mut round_trips: Vec<Duration> = self
            .links()
            .map(|(_, Link { up, down })| {
                [up, down].map(|shape| shape.delay.duration() + shape.jitter.duration()).iter().sum()
            })
            .collect();
        round_trips.sort();
        round_trips.iter().rev().take(2).sum()
    }
}

impl Slow {
    fn site(self, site: &mut Site) -> Result<(), SlowError> {
        let name = site.name.clone();
        site.link = self.link(site.link, &name)?;
        site.lan_rate = self.some_rate(site.lan_rate, &name)?;
        for Rail { name: rail, rate, uplink, .. } in &mut site.rails {
            let name = format!("{name}/{rail}");
            *rate = self.some_rate(*rate, &name)?;
            if let Some(uplink) = uplink {
                uplink.link = self.link(uplink.link, &name)?;
            }
        }
        Ok(())
    }

    fn link(self, Link { up, down }: Link, name: &str) -> Result<Link, SlowError> {
        Ok(Link { up: self.shape(up, name)?, down: self.shape(down, name)? })
    }

    /// The queue is in bytes, so it holds as many packets as ever.
    fn shape(self, shape: LinkShape, name: &str) -> Result<LinkShape, SlowError> {
        let delay = |delay: Delay| Delay(delay.0.saturating_mul(self.factor().into()));
        Ok(LinkShape {
            delay: delay(shape.delay),
            jitter: delay(shape.jitter),
            rate: self.some_rate(shape.rate, name)?,
            ..shape
        })
    }

    fn some_rate(self, described: Option<BitRate>, name: &str) -> Result<Option<BitRate>, SlowError> {
        let slower = described.map(|rate| self.rate(rate));
        match slower {
            Some(rate) if rate < LEAST_RATE && !self.is_none() => {
                Err(SlowError::Rate { slow: self, link: name.to_owned() })
            }
            slower => Ok(slower),
        }
    }

    fn seconds(self, described: NonZeroU16) -> NonZeroU16 {
        let seconds = u32::from(described.get()).saturating_mul(self.factor());
        u16::try_from(seconds).ok().and_then(NonZeroU16::new).unwrap_or(NonZeroU16::MAX)
    }
}

/// A time of the kernel that each machine may set for itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct KernelTime {
    /// Path of the setting, relative to `/proc/sys`.
    pub setting: &'static str,
    /// Largest value that the kernel takes.
    most: u64,
}

/// All of them. Kernels before 6.11 lack the first.
pub(crate) const KERNEL_TIMES: [KernelTime; 7] = [
    KernelTime { setting: "net/ipv4/tcp_rto_min_us", most: i32::MAX as u64 },
    KernelTime { setting: "net/ipv4/tcp_comp_sack_delay_ns", most: i32::MAX as u64 },
    KernelTime { setting: "net/ipv4/tcp_comp_sack_slack_ns", most: i32::MAX as u64 },
    KernelTime { setting: "net/ipv4/tcp_keepalive_time", most: i32::MAX as u64 },
    KernelTime { setting: "net/ipv4/tcp_keepalive_intvl", most: i32::MAX as u64 },
    KernelTime { setting: "net/ipv4/tcp_probe_interval", most: i32::MAX as u64 },
    KernelTime { setting: "net/ipv4/tcp_min_rtt_wlen", most: 86_400 },
];

impl KernelTime {
    /// The setting's text in slow motion, given the text as described. `None` if that is no number.
    pub(crate) fn slowed(self, described: &str, slow: Slow) -> Option<String> {
        let described: u64 = described.trim().parse().ok()?;
        Some(described.saturating_mul(slow.factor().into()).min(self.most).to_string())
    }
}

#[cfg(test)]
#[path = "slow/tests.rs"]
mod tests;
