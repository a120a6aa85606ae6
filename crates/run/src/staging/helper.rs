//! The command that `isthmus run` starts on nodes to send or receive files: `isthmus stage`. It reads
//! its task from its input, and is a process of a job like any other, so that what it sends takes the
//! same way as the program's data.

use std::io::{self, BufRead as _, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use isthmus_front::format::causes;
use isthmus_front::output::message;

use super::keys::Keys;
use super::manifest::{MANIFEST_MAX, Manifest};
use super::serve::{self, Offer};
use super::take::{self, Taken};
use super::task::{LINE_MAX, Offers, Said, Task, Work};

/// How often it says how far it is.
const PACE: Duration = Duration::from_millis(500);

/// Runs `isthmus stage`, and returns the exit status of this process.
pub fn main() -> ExitCode {
    match work() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            message(&causes(&error));
            ExitCode::FAILURE
        }
    }
}

fn work() -> anyhow::Result<()> {
    let mut line = String::new();
    let mut input = io::stdin().lock();
    (&mut input).take(LINE_MAX as u64).read_line(&mut line).context("cannot read the task")?;
    ensure!(!line.is_empty(), "`isthmus run --stage` and --fetch start this command; it is not for users");
    let Task { secret, work } = serde_json::from_str(&line).context("the task has another form")?;
    let keys = Keys::new(secret);
    let mut told = Instant::now();
    let mut tell = |said: Said| {
        if told.elapsed() >= PACE {
            told = Instant::now();
            say(&said);
        }
    };
    let (taken, suffix) = match work {
        Work::Offer { paths, may_lack } => {
            let read = &mut |bytes| tell(Said::Read { bytes });
            let manifest = Manifest::of(&paths, may_lack, &keys.blocks, read)?;
            (Taken { manifest, written: 0, received: 0 }, String::new())
        }
        Work::Take { from, paths, suffix } => {
            (take::take(from, (&paths, &suffix), &keys, &mut tell)?, suffix)
        }
    };
    let Taken { manifest, written, received } = taken;
    let encoded = serde_json::to_vec(&manifest)?;
    ensure!(encoded.len() <= MANIFEST_MAX, "there are too many bytes to be staged: 2 TB are possible");
    let digest = keys.manifest.sign(&encoded);
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot listen")?;
    say(&Said::Offers(Offers {
        port: listener.local_addr()?.port(),
        digest,
        entries: manifest.entries.len() as u64,
        files: manifest.files().count() as u64,
        bytes: manifest.bytes(),
        written,
        received,
    }));
    let offer = Arc::new(Offer { manifest, encoded, digest, suffix, keys });
    thread::spawn(move || serve::serve(&listener, &offer));
    io::copy(&mut input, &mut io::sink())?;
    Ok(())
}

/// Writes a line. If nobody reads it, the input ends as well.
pub(super) fn say(said: &Said) {
    if let Ok(line) = serde_json::to_string(said) {
        let mut output = io::stdout().lock();
        let _ = writeln!(output, "{line}").and_then(|()| output.flush());
    }
}
