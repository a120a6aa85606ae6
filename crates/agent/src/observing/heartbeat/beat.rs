//! One heartbeat connection, and the thread for all of them.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_carry::unacknowledged_bytes;
use isthmus_service::lock;
use isthmus_service::silence::{INTERVAL, Silence};
use tokio::net::TcpStream;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

/// The port in a heartbeat connection's preamble; no program can listen there.
pub(crate) const PORT: u16 = 0;
/// Length of a heartbeat in bytes.
const HEARTBEAT_LEN: usize = 4;

/// The thread that serves all heartbeat connections of an agent.
#[derive(Debug)]
pub(crate) struct Heartbeats {
    runtime: Handle,
    /// The thread ends when this is dropped.
    _alive_tx: oneshot::Sender<()>,
}

/// How a heartbeat connection ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// The other side has been silent for too long, for this time.
    Silent(Duration),
    /// The connection broke; the other side may be well.
    Broken,
}

impl Heartbeats {
    /// Starts the thread.
    ///
    /// # Errors
    /// If the kernel refuses the thread.
    pub(crate) fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (alive_tx, alive_rx) = oneshot::channel::<()>();
        let beat = move || {
            // The channel's sender is never used, only dropped.
            let _ = runtime.block_on(alive_rx);
        };
        std::thread::Builder::new().name("isthmus-heartbeat".to_owned()).spawn(beat)?;
        Ok(Self { runtime: handle, _alive_tx: alive_tx })
    }

    /// Exchanges heartbeats over a connection until it ends, or `stop` is cancelled. `silence`
    /// belongs to the other side, and lasts over all connections with it.
    pub(crate) async fn beat(
        &self,
        stream: TcpStream,
        silence: Arc<Mutex<Silence>>,
        stop: CancellationToken,
    ) -> Ended {
        let Ok(stream) = stream.into_std() else { return Ended::Broken };
        let beating = self.runtime.spawn(async move {
            tokio::select! {
                ended = exchange(stream, &silence) => ended,
                () = stop.cancelled() => Ended::Broken,
            }
        });
        beating.await.unwrap_or(Ended::Broken)
    }
}

async fn exchange(stream: std::net::TcpStream, silence: &Mutex<Silence>) -> Ended {
    let Ok(stream) = TcpStream::from_std(stream) else { return Ended::Broken };
    let mut received = Vec::new();
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last = Instant::now();
    loop {
        tokio::select! {
            // Heartbeats that have arrived count before the silence is judged.
            biased;
            readable = stream.readable() => {
                if readable.is_err() || read_heartbeats(&stream, &mut received, silence).is_err() {
                    return Ended::Broken;
                }
            }
            _ = ticks.tick() => {
                let since = last.elapsed();
                last = Instant::now();
                if let Some(quiet) = pass(silence, since) {
                    return Ended::Silent(quiet);
                }
                lock(silence).unheard(unacknowledged_bytes(&stream).unwrap_or_default());
                let late = u32::try_from(since.saturating_sub(INTERVAL).as_millis()).unwrap_or(u32::MAX);
                match stream.try_write(&late.to_be_bytes()) {
                    Ok(HEARTBEAT_LEN) => {}
                    // The other end doesn't read, so leaving out a heartbeat loses nothing.
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    // After half a heartbeat the receiver would misread all others.
                    Ok(_) | Err(_) => return Ended::Broken,
                }
            }
        }
    }
}

/// Notes that `time` has passed. Returns how long the other side has been silent, if that is too
/// long.
fn pass(silence: &Mutex<Silence>, time: Duration) -> Option<Duration> {
    let mut silence = lock(silence);
    silence.passed(time);
    silence.lost()
}

/// Reads the heartbeats that have arrived.
fn read_heartbeats(stream: &TcpStream, received: &mut Vec<u8>, silence: &Mutex<Silence>) -> io::Result<()> {
    let mut chunk = [0; 64 * HEARTBEAT_LEN];
    match stream.try_read(&mut chunk) {
        Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
        Ok(count) => received.extend_from_slice(&chunk[..count]),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        Err(error) => return Err(error),
    }
    let (heartbeats, rest) = received.as_chunks::<HEARTBEAT_LEN>();
    for heartbeat in heartbeats {
        lock(silence).received(Duration::from_millis(u32::from_be_bytes(*heartbeat).into()));
    }
    *received = rest.to_vec();
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    fn silence() -> Arc<Mutex<Silence>> {
        Arc::new(Mutex::new(Silence::new(Duration::from_secs(5))))
    }

    async fn pair() -> (TcpStream, TcpStream) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        (near, listener.accept().await.unwrap().0)
    }

    #[tokio::test]
    async fn the_end_of_a_connection_is_not_silence() {
        let heartbeats = Heartbeats::start().unwrap();
        let (near, mut far) = pair().await;
        let beating = heartbeats.beat(near, silence(), CancellationToken::new());
        let peer = async {
            let mut heartbeat = [0; HEARTBEAT_LEN];
            far.read_exact(&mut heartbeat).await.unwrap();
            far.write_all(&[0, 0]).await.unwrap();
            drop(far);
        };
        let (ended, ()) = tokio::join!(beating, peer);
        assert!(matches!(ended, Ended::Broken));
    }

    #[tokio::test]
    async fn heartbeats_may_come_in_pieces() {
        let (near, mut far) = pair().await;
        let (mut received, silence) = (Vec::new(), silence());
        for _ in 0..11 {
            assert_eq!(pass(&silence, INTERVAL), None);
        }
        for bytes in [&[0, 0][..], &[0, 9, 0]] {
            far.write_all(bytes).await.unwrap();
            near.readable().await.unwrap();
            read_heartbeats(&near, &mut received, &silence).unwrap();
        }
        assert_eq!(received, [0]);
        assert_eq!(pass(&silence, INTERVAL), None);
    }
}
