//! A service's log is written by a thread of its own: a full pipe or a stuck journal that
//! takes no more lines must not stop what the service carries. Lines for which there is no
//! room are left out, and counted.

use std::io::{self, Write};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::lock;

/// Most lines that wait for the thread that writes them.
const WAITING: usize = 10_000;
/// How long the process waits at its end for the lines to be written.
const END: Duration = Duration::from_secs(1);
/// Pause before the process tries again, at its end, to have the lines written.
const PAUSE: Duration = Duration::from_millis(10);

static LOG: OnceLock<Log> = OnceLock::new();

enum Message {
    Line(Vec<u8>),
    /// All lines before this message are to be written. Dropping this tells the party that waits
    /// for them.
    Written(#[expect(dead_code, reason = "it is dropped")] SyncSender<()>),
}

struct Log {
    messages_tx: SyncSender<Message>,
    /// How many lines were left out of which the log itself doesn't tell yet.
    missing: Mutex<u64>,
}

impl Log {
    fn begin(out: impl Write + Send + 'static, room: usize) -> io::Result<Self> {
        let (messages_tx, messages_rx) = sync_channel(room);
        std::thread::Builder::new().name("log".to_owned()).spawn(move || write_all(out, &messages_rx))?;
        Ok(Self { messages_tx, missing: Mutex::default() })
    }

    fn take(&self, line: &[u8]) {
        let mut missing = lock(&self.missing);
        let send = |line: Vec<u8>| self.messages_tx.try_send(Message::Line(line)).is_ok();
        if *missing > 0 {
            let text = format!("WARN {missing} lines are missing here: the log was not read in time\n");
            if send(text.into_bytes()) {
                *missing = 0;
            }
        }
        if !send(line.to_vec()) {
            *missing += 1;
        }
    }

    /// Waits until the lines are written, at most for `limit`.
    fn flush(&self, limit: Duration) {
        let until = Instant::now() + limit;
        let (written_tx, written_rx) = sync_channel(0);
        let mut message = Message::Written(written_tx);
        while let Err(TrySendError::Full(again)) = self.messages_tx.try_send(message) {
            if Instant::now() >= until {
                return;
            }
            message = again;
            std::thread::sleep(PAUSE);
        }
        let _ = written_rx.recv_timeout(until.saturating_duration_since(Instant::now()));
    }
}

fn write_all(mut out: impl Write, messages_rx: &Receiver<Message>) {
    for message in messages_rx {
        if let Message::Line(line) = message {
            // If this fails, there is nobody to tell.
            let _ = out.write_all(&line);
        }
    }
}

/// Begins this process's log. When the result is dropped, the lines that wait are written.
///
/// # Errors
/// If the thread can't be started.
pub fn begin(out: impl Write + Send + 'static) -> io::Result<Flushed> {
    let log = Log::begin(out, WAITING)?;
    LOG.get_or_init(|| log);
    Ok(Flushed)
}

/// Writes the lines that wait when it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Flushed;

impl Drop for Flushed {
    fn drop(&mut self) {
        flush();
    }
}

/// Writes the lines that wait, for a second at most. To be called before anything that ends this
/// process's threads.
pub fn flush() {
    if let Some(log) = LOG.get() {
        log.flush(END);
    }
}

/// A writer that takes a line of the log at each write, and never waits.
#[derive(Debug)]
pub struct Lines;

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if let Some(log) = LOG.get() {
            log.take(line);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead as _, BufReader};

    use super::*;

    #[test]
    fn a_log_that_nobody_reads_stops_nobody_and_says_later_what_is_missing() {
        let (reader, writer) = io::pipe().unwrap();
        let log = Log::begin(writer, 4).unwrap();
        let long = [b"x".repeat(100_000).as_slice(), b"\n"].concat();
        // One line is more than a pipe holds; four lines wait.
        (0..10).for_each(|_| log.take(&long));
        log.flush(Duration::from_millis(30));
        assert!(*lock(&log.missing) >= 5);
        let mut lines = BufReader::new(reader).lines().map(Result::unwrap);
        let first = lines.by_ref().take(4);
        assert!(first.map(|line| line.len()).eq([100_000; 4]));
        // Once there is room again.
        let reading = std::thread::spawn(move || lines.find(|line| line.starts_with("WARN ")));
        while *lock(&log.missing) > 0 {
            log.take(b"short\n");
        }
        log.flush(END);
        let told = reading.join().unwrap().unwrap();
        assert!(told.ends_with(" lines are missing here: the log was not read in time"), "{told}");
    }
}
