//! A line that fails and heals repeatedly.

use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use super::FaultError;
use crate::lab::Running;

/// How a line fails and heals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Flap {
    /// How long the line carries nothing each time.
    pub down: Duration,
    /// How long the line carries packets in between.
    pub up: Duration,
    /// How often the line is cut. `None`: until it is stopped.
    pub count: Option<u32>,
}

/// Heals a target when dropped.
struct Healing<'a> {
    running: &'a Running,
    target: &'a str,
}

impl Drop for Healing<'_> {
    fn drop(&mut self) {
        // `flap` reports an error of healing where it can. Here another error is on its way.
        let _ = self.running.heal(self.target);
    }
}

impl Running {
    /// Cuts and heals a link or machine in turn. `pause` waits, and returns whether to go on.
    /// `changed` is called at each change, with whether the lines are up. The lines are healed at
    /// the end in any case. Returns the number of cuts.
    pub fn flap(
        &self,
        target: &str,
        flap: &Flap,
        mut pause: impl FnMut(Duration) -> bool,
        mut changed: impl FnMut(bool),
    ) -> Result<u32, FaultError> {
        let healing = Healing { running: self, target };
        let mut times = 0;
        while flap.count.is_none_or(|count| times < count) {
            self.cut(target)?;
            times += 1;
            changed(false);
            let go_on = pause(flap.down);
            self.heal(target)?;
            changed(true);
            let last = flap.count == Some(times);
            if !go_on || last || !pause(flap.up) {
                break;
            }
        }
        drop(healing);
        Ok(times)
    }

    /// Has a link or machine flap in the background until the value is
    /// stopped or dropped.
    pub fn flapping(&self, target: &str, flap: Flap) -> Result<Flapping, FaultError> {
        super::find(&self.record()?, target)?;
        let (stop, stopped) = mpsc::channel::<()>();
        let (running, target) = (self.clone(), target.to_owned());
        let thread = std::thread::spawn(move || {
            let pause = |time| stopped.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
            running.flap(&target, &flap, pause, |_| ())
        });
        Ok(Flapping { stop: Some(stop), thread: Some(thread) })
    }
}

/// A link or machine that flaps until this value is stopped or dropped. Then it is healed.
#[derive(Debug)]
pub struct Flapping {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<Result<u32, FaultError>>>,
}

impl Flapping {
    /// Ends the flapping. Returns how often the lines were cut.
    pub fn stop(mut self) -> Result<u32, FaultError> {
        self.end()
    }

    fn end(&mut self) -> Result<u32, FaultError> {
        drop(self.stop.take());
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(result)) => result,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Ok(0),
        }
    }
}

impl Drop for Flapping {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
