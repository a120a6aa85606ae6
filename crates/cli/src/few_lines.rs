//! Holds each other party to so many lines of a service's log: whatever it sends, and however
//! often it is refused, it can't fill the disk.

use std::fmt::{self, Debug};
use std::io::Write as _;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use isthmus_service::few_lines::FewLines;
use isthmus_service::{lock, log};
use tracing::callsite::Identifier;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Most lines of one kind that are written for one party within [`WINDOW`].
const LINES: u32 = 200;
/// The time over which a party's lines are counted.
const WINDOW: Duration = Duration::from_secs(60);
/// Most pairs of a kind and a party that are counted apart.
const COUNTED: usize = 4096;
/// The fields of an event that name a party, by its certificate.
const PARTIES: [&str; 2] = ["caller", "identity"];
/// How many bytes of a party's name count.
const NAME: usize = 128;

/// A layer that bounds the lines of a log for each party. Lines of debugging have no bound: a user
/// who asks for them wants all.
pub(crate) struct Bound(Mutex<FewLines<(Identifier, String)>>);

impl Default for Bound {
    fn default() -> Self {
        Self(Mutex::new(FewLines::new(LINES, WINDOW, COUNTED)))
    }
}

impl<S: Subscriber> Layer<S> for Bound {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO {
            return true;
        }
        let mut party = Party::default();
        event.record(&mut party);
        let (passed, left_out) = lock(&self.0).pass((metadata.callsite(), party.0), Instant::now());
        if left_out > 0 {
            let time = humantime::format_rfc3339_micros(SystemTime::now());
            let text = format!(
                "{time}  WARN {}: {left_out} lines as the next one were left out: of one kind {LINES} a minute are \
                 written for each party\n",
                metadata.target()
            );
            // A line for which the log has no room is counted there.
            let _ = log::Lines.write_all(text.as_bytes());
        }
        passed
    }
}

/// The name of the party that an event names; empty if it names none.
#[derive(Default)]
struct Party(String);

impl Visit for Party {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if PARTIES.contains(&field.name()) && self.0.is_empty() {
            // Formatting fails where the name has no more room.
            let _ = fmt::Write::write_fmt(&mut Cut(&mut self.0), format_args!("{value:?}"));
        }
    }
}

/// A writer that takes the first [`NAME`] bytes of a text, and then fails.
struct Cut<'a>(&'a mut String);

impl fmt::Write for Cut<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        for character in text.chars() {
            if self.0.len() >= NAME {
                return Err(fmt::Error);
            }
            self.0.push(character);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    /// A layer that counts the lines that are written.
    struct Count(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Count {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, Relaxed);
        }
    }

    #[test]
    fn one_party_fills_no_log() {
        let written = Arc::new(AtomicUsize::new(0));
        let subscriber = tracing_subscriber::registry().with(Bound::default()).with(Count(written.clone()));
        let count = || written.swap(0, Relaxed);
        tracing::subscriber::with_default(subscriber, || {
            let refuse = |caller: &str, reason: usize| {
                tracing::warn!(caller, %reason, "a job's report dropped");
            };
            (0..1000).for_each(|reason| refuse("gateway.alpha", reason));
            assert_eq!(count(), LINES as usize);
            refuse("gateway.beta", 0);
            assert_eq!(count(), 1, "another party's");
            let identity = "agent n1.alpha";
            (0..1000).for_each(|_| tracing::info!(%identity, "attached"));
            assert_eq!(count(), LINES as usize, "another kind");
            (0..1000).for_each(|_| tracing::info!("of nobody"));
            assert_eq!(count(), LINES as usize);
            (0..1000).for_each(|_| tracing::debug!(%identity, "a call"));
            assert_eq!(count(), 1000);
        });
    }

    #[test]
    fn a_long_name_is_cut() {
        let mut name = String::new();
        let long = "é".repeat(NAME);
        assert!(fmt::Write::write_str(&mut Cut(&mut name), &long).is_err());
        assert_eq!(name, "é".repeat(NAME / 2));
    }
}
