//! Replaces the program of a gateway or relay in place. The spliced pairs go on in the new program.

use std::convert::Infallible;
use std::io;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::plane::Plane;
use isthmus_service::upgrade::{CheckError, Hangups, Upgrades, replace};
use isthmus_wire::upgrade::State;
use tokio::sync::mpsc;

/// Why a program wasn't replaced. In each case it goes on as it was.
#[derive(Debug, thiserror::Error)]
enum NotUpgraded {
    #[error("{0}")]
    Check(#[from] CheckError),
    #[error("its pairs can't be handed over: {0}")]
    Release(io::Error),
    #[error("it can't be put in this one's place: {0}")]
    Replace(io::Error),
    #[error("the task that hands over has ended: {0}")]
    Task(#[from] tokio::task::JoinError),
}

/// How long a program that has taken over waits for the broker's key before it admits anybody. The
/// tickets of the former program stay good. Clients that show them wait in the listener's queue.
const PATIENCE: Duration = Duration::from_secs(5);

/// The [`Intake::patience`](crate::admission::Intake::patience) of this process: `None` if it
/// hasn't taken over.
pub fn patience(upgrades: &Upgrades) -> Option<Duration> {
    upgrades.took_over().then_some(PATIENCE)
}

/// Starts the data plane of a service. It carries on what a former program of the process spliced.
///
/// # Errors
/// If descriptors or threads run out, or what was handed over can't be used.
pub fn start_plane(
    workers: Option<NonZeroUsize>,
    upgrades: &Upgrades,
) -> io::Result<(Arc<Plane>, mpsc::Receiver<io::Error>)> {
    let workers = workers.or_else(|| std::thread::available_parallelism().ok());
    let (plane, failure_rx) = Plane::start(workers.unwrap_or(NonZeroUsize::MIN))?;
    if let Some(carried) = upgrades.take_carried() {
        let pairs = carried.pairs.len();
        plane.adopt(carried.pairs, carried.connections, carried.bytes)?;
        tracing::info!(pairs, "upgraded in place: carries on what the former program spliced");
    }
    Ok((Arc::new(plane), failure_rx))
}

/// Replaces the program whenever SIGHUP comes; never returns. If the program can't be replaced, it
/// goes on as before.
pub async fn serve(upgrades: Arc<Upgrades>, plane: Arc<Plane>) -> Infallible {
    let Some((_, program, _)) = upgrades.replaceable() else { return std::future::pending().await };
    let path = program.path().display();
    let hangups = match Hangups::new() {
        Ok(hangups) => hangups,
        Err(error) => {
            tracing::error!(%error, "cannot take SIGHUP: this process can't be upgraded in place");
            return std::future::pending().await;
        }
    };
    loop {
        if let Err(error) = hangups.next().await {
            tracing::error!(%error, "cannot take SIGHUP: this process can't be upgraded in place any more");
            return std::future::pending().await;
        }
        let Err(error) = upgrade(&upgrades, &plane).await;
        tracing::error!(
            program = %path, %error,
            "not upgraded, and all goes on as before: repair the program or its configuration, and send SIGHUP again"
        );
    }
}

/// Checks the new program and puts it in this one's place.
///
/// # Errors
/// If the program can't be replaced. It returns in no other case.
async fn upgrade(upgrades: &Arc<Upgrades>, plane: &Arc<Plane>) -> Result<Infallible, NotUpgraded> {
    if let Some((_, program, listeners)) = upgrades.replaceable() {
        tracing::info!(program = %program.path().display(), "asked by SIGHUP to upgrade in place");
        program.check(&listeners.addresses()).await?;
    }
    // Tasks that want to splice wait meanwhile, on threads of the runtime.
    let (upgrades, plane) = (upgrades.clone(), plane.clone());
    Err(tokio::task::spawn_blocking(move || hand_over(&upgrades, &plane)).await?)
}

/// Hands the pairs and listeners over to the new program, which takes this one's place. Returns
/// only if that fails; then all goes on as before.
fn hand_over(upgrades: &Upgrades, plane: &Plane) -> NotUpgraded {
    let Some((service, program, listeners)) = upgrades.replaceable() else {
        return NotUpgraded::Replace(io::ErrorKind::Unsupported.into());
    };
    let released = match plane.release() {
        Ok(released) => released,
        Err(error) => return NotUpgraded::Release(error),
    };
    let error = listeners.with_used(|listening, of_listeners| {
        let descriptors: Vec<_> = of_listeners.into_iter().chain(released.descriptors()).collect();
        let (totals, pairs) = (released.totals(), released.pairs());
        tracing::info!(pairs = pairs.len(), listeners = listening.len(), "hands over");
        let state = State {
            service,
            connections: totals.connections,
            bytes: totals.bytes,
            listeners: listening,
            pairs,
        };
        replace(program, &state, &descriptors)
    });
    released.resume();
    NotUpgraded::Replace(error)
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::path::Path;

    use isthmus_service::upgrade::Program;
    use isthmus_wire::upgrade::{Service, answer};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connected = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (connected, listener.accept().unwrap().0)
    }

    fn upgrades(directory: &Path, script: &str) -> Arc<Upgrades> {
        let path = directory.join("isthmus");
        // The program is a copy of the file that was written. While another test forks, its child
        // has the written file open, and nobody can run that.
        std::fs::write(directory.join("text"), format!("#!/bin/sh\n{script}\n")).unwrap();
        let install = ["-m", "755", "text", "isthmus"];
        let installed = std::process::Command::new("install").args(install).current_dir(directory).status();
        assert!(installed.unwrap().success());
        let program = Program::new(path, vec!["isthmus".into()]);
        Arc::new(Upgrades::new(Service::Relay, program, None, &[]))
    }

    /// The new program can't take over, or is gone when it is to. A spliced pair and the listener
    /// go on.
    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn all_goes_on_if_the_program_is_not_replaced() {
        let directory = tempfile::tempdir().unwrap();
        for (script, want) in [
            ("exit 1", "it ended with exit status: 1"),
            (&format!("echo {}; rm \"$0\"", answer()), "it can't be put in this one's place: No such file"),
        ] {
            let upgrades = upgrades(directory.path(), script);
            let (plane, _failure_rx) = start_plane(NonZeroUsize::new(2), &upgrades).unwrap();
            let listener = upgrades.listen("127.0.0.1:0".parse().unwrap()).unwrap();
            let ((mut near, one), (mut far, other)) = (pair(), pair());
            plane.splice(one, other, None).unwrap();
            for round in 0..3u8 {
                let Err(error) = upgrade(&upgrades, &plane).await;
                // The second time the program is gone altogether.
                let gone = error.to_string().contains("it can't be started: No such file");
                assert!(error.to_string().contains(want) || round > 0 && gone, "{error}");
                near.write_all(&[round]).unwrap();
                let mut got = [0];
                far.read_exact(&mut got).unwrap();
                assert_eq!(got, [round]);
            }
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert_eq!(listener.accept().await.unwrap().1, client.local_addr().unwrap());
            assert_eq!(plane.totals().running, 1);
        }
    }
}
