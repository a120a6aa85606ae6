//! `isthmus status --watch`: shows the status again and again, on a screen of its own.

use std::io::{self, IsTerminal as _, Write as _};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use isthmus_wire::text;
use tokio::signal::unix::{SignalKind, signal};

/// Time between two questions to the grid.
const EVERY: Duration = Duration::from_secs(2);
/// Has the terminal show its other screen, without a cursor.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
/// Has the terminal show its usual screen again, as it was before.
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Moves the terminal's cursor to the upper left.
const HOME: &str = "\x1b[H";
/// Clears the rest of a line, and goes to the next one.
const REST_OF_LINE: &str = "\x1b[K\r\n";
/// Clears the rest of the screen.
const REST: &str = "\x1b[J";

/// Shows what `ask` gives until ctrl-C, or another signal that ends programs: the screen is
/// left in any case.
///
/// # Errors
/// If stdout is no terminal, or can't be written.
pub(super) async fn watch(ask: impl AsyncFn() -> anyhow::Result<String>) -> anyhow::Result<()> {
    ensure!(io::stdout().is_terminal(), "--watch is for a terminal; scripts use --json");
    // Before the screen is taken: what is wrong at once is told as without --watch.
    let first = ask().await?;
    let mut ended = std::pin::pin!(end()?);
    let _screen = Screen::enter()?;
    let mut seen = first;
    loop {
        show(&seen)?;
        tokio::select! {
            _ = &mut ended => return Ok(()),
            () = tokio::time::sleep(EVERY) => {}
        }
        tokio::select! {
            _ = &mut ended => return Ok(()),
            next = ask() => match next {
                Ok(text) => seen = text,
                // What was seen last stays, under the reason.
                Err(error) => show(&format!("isthmus status: {error:#}\n\n{seen}"))?,
            },
        }
    }
}

/// A future that ends with the first signal that would end this process.
fn end() -> anyhow::Result<impl Future<Output = ()>> {
    let take = |kind| signal(kind).context("cannot take signals");
    let (mut interrupt, mut terminate) = (take(SignalKind::interrupt())?, take(SignalKind::terminate())?);
    let (mut hangup, mut quit) = (take(SignalKind::hangup())?, take(SignalKind::quit())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
            _ = quit.recv() => {}
        }
    })
}

/// The terminal's other screen. When this is dropped, the former screen comes back.
struct Screen;

impl Screen {
    fn enter() -> anyhow::Result<Self> {
        put(ENTER)?;
        Ok(Self)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        let _ = put(LEAVE);
    }
}

fn show(seen: &str) -> anyhow::Result<()> {
    let (rows, columns) = console::Term::stdout().size();
    put(&frame(seen, usize::from(rows), usize::from(columns)))
}

/// What fills a screen of so many lines: the first lines of the text, and how many more there are.
fn frame(seen: &str, rows: usize, columns: usize) -> String {
    // Texts of other parties: a terminal would obey their control characters.
    let escaped = text::lines(seen);
    let lines: Vec<&str> = escaped.lines().collect();
    let room = rows.saturating_sub(1);
    let shown = lines.len().min(room);
    let mut out = HOME.to_owned();
    for line in &lines[..shown] {
        out.extend(line.chars().take(columns));
        out += REST_OF_LINE;
    }
    let more = lines.len() - shown;
    let rest = if more > 0 { format!("{more} more lines; ") } else { String::new() };
    let last = format!("{rest}every {} s, ctrl-C ends", EVERY.as_secs());
    out.extend(last.chars().take(columns));
    out + REST
}

fn put(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()).context("cannot write to the terminal")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_frame_has_as_many_lines_as_the_screen() {
        let text = "one\ntwo long\nthree\n\u{1b}[2Jfour\n";
        assert_eq!(frame(text, 3, 5), "\x1b[Hone\x1b[K\r\ntwo l\x1b[K\r\n2 mor\x1b[J");
        let all = frame(text, 24, 80);
        assert!(all.ends_with("every 2 s, ctrl-C ends\x1b[J"), "{all:?}");
        assert!(!all.contains("\x1b[2J"), "{all:?}");
        assert_eq!(frame("", 0, 0), "\x1b[H\x1b[J");
    }
}
