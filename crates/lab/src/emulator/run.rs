//! The emulator's loop: reads packets from one end of a link, hands them to
//! its state machine, and writes them to the other end when they are due.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use fastrand::Rng;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::{TimeSpec, TimeValLike};

use super::control::{Conversation, Listener, Reply, Request};
use super::device::{Device, DeviceKind, LARGEST_READ};
use super::fidelity::{
    FEWEST_FRAMES, HEARTBEAT, LONGEST_PAUSE, Lapse, Lapses, LinkDirection, WINDOW, What, latest,
};
use super::gaps::Gaps;
use super::link::Direction;
use super::punctual::Punctual;
use super::statistics::{DirectionReport, Lateness, LinkReport, Report};
use crate::grid::{Link, LinkShape, Slow};

/// How many packets are read from one device at a time. Then the other devices have their turn, and
/// packets that are due leave.
const BATCH: usize = 32;

/// Why the emulator can't go on.
#[derive(Debug, thiserror::Error)]
pub enum EmulatorError {
    /// The kernel failed to wait for packets.
    #[error("waiting for packets: {0}")]
    Wait(nix::Error),
    /// The histogram of a link's lateness can't be made.
    #[error("cannot make statistics")]
    Statistics(#[from] hdrhistogram::CreationError),
}

/// The emulator of all links of a lab.
#[derive(Debug)]
pub struct Emulator {
    links: Vec<RunningLink>,
    control: Listener,
    conversations: Vec<Conversation>,
    punctual: Punctual,
    gaps: Gaps,
    started: Instant,
    devices: DeviceKind,
    slow: Slow,
    seed: u64,
    /// Source of each direction's own seed.
    seeds: Rng,
    lapses: Lapses,
    /// When the links were last checked for lapses.
    looked: Instant,
    /// When the loop last stopped waiting.
    awake: Instant,
}

/// A link that the emulator carries packets over.
#[derive(Debug)]
struct RunningLink {
    name: String,
    /// The end at the host or site router, then the internet's end.
    ends: [LinkEnd; 2],
}

/// An end of a link, and the direction that starts at it.
#[derive(Debug)]
struct LinkEnd {
    device: Device,
    direction: Direction,
    lateness: Lateness,
    /// How late frames left since the last check for lapses.
    window: Lateness,
    write_errors: u64,
    /// How many frames were refused since the last check for lapses, and the last one's error.
    /// `None`: no frame was.
    refused: Option<(u64, nix::Error)>,
    unread: u64,
    readable: bool,
}

impl Emulator {
    /// Makes an emulator without links that answers at `control`. Its links will end at `devices`,
    /// in a network that is `slow`. Their random losses and delays follow from `seed` and the order
    /// in which they are added.
    pub fn new(control: Listener, devices: DeviceKind, slow: Slow, seed: u64) -> Self {
        let started = Instant::now();
        let punctual = Punctual::new(started);
        let (links, conversations) = (Vec::new(), Vec::new());
        Self {
            links,
            control,
            conversations,
            punctual,
            gaps: Gaps::default(),
            started,
            devices,
            slow,
            seed,
            seeds: Rng::with_seed(seed),
            lapses: Lapses::default(),
            looked: started,
            awake: started,
        }
    }

    /// Adds a link between two devices: `near` is that of a host or site, `far` that of the
    /// internet.
    pub(crate) fn add_link(
        &mut self,
        name: String,
        shapes: &Link,
        near: Device,
        far: Device,
    ) -> Result<(), EmulatorError> {
        let mut end = |device, shape: &LinkShape| -> Result<LinkEnd, EmulatorError> {
            Ok(LinkEnd {
                device,
                direction: Direction::new(shape, self.slow, self.seeds.u64(..)),
                lateness: Lateness::new()?,
                window: Lateness::new()?,
                write_errors: 0,
                refused: None,
                unread: 0,
                readable: true,
            })
        };
        let ends = [end(near, &shapes.up)?, end(far, &shapes.down)?];
        self.links.push(RunningLink { name, ends });
        Ok(())
    }

    /// Carries packets until an error.
    pub fn run(mut self) -> Result<std::convert::Infallible, EmulatorError> {
        let mut buffer = vec![0; LARGEST_READ];
        self.awake = Instant::now();
        loop {
            for link in &mut self.links {
                for end in &mut link.ends {
                    end.read(&mut buffer);
                }
            }
            let mut next_due: Option<Instant> = None;
            for link in &mut self.links {
                for from in 0..2 {
                    let due = link.write(from);
                    next_due = [next_due, due].into_iter().flatten().min();
                }
            }
            self.wait(next_due)?;
            self.look_for_lapses();
        }
    }

    fn wait(&mut self, next_due: Option<Instant>) -> Result<(), EmulatorError> {
        let now = Instant::now();
        // One turn of the loop is short: what takes longer is a pause, too.
        let worked = now.saturating_duration_since(self.awake);
        self.note_pause(worked);
        let mut waited: Vec<BorrowedFd<'_>> = Vec::with_capacity(2 * self.links.len() + 1);
        waited.extend(self.links.iter().flat_map(|link| &link.ends).map(|end| end.device.as_fd()));
        waited.push(self.control.as_fd());
        waited.extend(self.conversations.iter().map(AsFd::as_fd));
        let mut polled: Vec<PollFd<'_>> =
            waited.iter().map(|fd| PollFd::new(*fd, PollFlags::POLLIN)).collect();
        let sleep = match next_due {
            Some(due) => self.punctual.sleep(due, now),
            None => {
                self.punctual.rest();
                HEARTBEAT
            }
        };
        let sleep = sleep.min(HEARTBEAT);
        let timeout = Some(TimeSpec::nanoseconds(sleep.as_nanos() as i64));
        match ppoll(&mut polled, timeout, None) {
            Ok(_) | Err(nix::Error::EINTR) => {}
            Err(error) => return Err(EmulatorError::Wait(error)),
        }
        let slept = now.elapsed();
        let ready: Vec<bool> = polled.iter().map(|fd| fd.any().unwrap_or(true)).collect();
        let mut ready = ready.into_iter();
        for end in self.links.iter_mut().flat_map(|link| &mut link.ends) {
            end.readable = ready.next().unwrap_or(true);
        }
        if let Some(gap) = self.gaps.after(worked, slept) {
            std::thread::sleep(gap);
        }
        self.awake = Instant::now();
        if ready.any(|ready| ready) {
            self.converse();
        }
        self.note_pause(slept.saturating_sub(sleep));
        Ok(())
    }

    fn note_pause(&mut self, pause: Duration) {
        if pause > self.slow.time(LONGEST_PAUSE) {
            self.note(What::Paused { pause_ms: pause.as_secs_f64() * 1e3 });
        }
    }

    fn converse(&mut self) {
        while let Some(conversation) = self.control.accept() {
            self.conversations.push(conversation);
        }
        let mut conversations = std::mem::take(&mut self.conversations);
        conversations.retain(|conversation| !conversation.answer(|request| self.handle(request)));
        self.conversations = conversations;
    }

    fn handle(&mut self, request: Request) -> Reply {
        match request {
            Request::Report => Reply::Report(Box::new(self.report())),
            Request::Set { link: name, shapes } => match self.links.iter_mut().find(|link| link.name == name)
            {
                Some(link) => {
                    link.ends[0].direction.set_shape(&shapes.up);
                    link.ends[1].direction.set_shape(&shapes.down);
                    Reply::Done
                }
                None => {
                    Reply::UnknownLink { known: self.links.iter().map(|link| link.name.clone()).collect() }
                }
            },
        }
    }

    fn look_for_lapses(&mut self) {
        if self.looked.elapsed() < WINDOW {
            return;
        }
        self.looked = Instant::now();
        let mut found = Vec::new();
        for link in &mut self.links {
            for (end, direction) in link.ends.iter_mut().zip([LinkDirection::Up, LinkDirection::Down]) {
                end.look_for_lapses((&link.name, direction), self.slow, &mut found);
            }
        }
        for what in found {
            self.note(what);
        }
    }

    fn note(&mut self, what: What) {
        let lapse = Lapse { running_seconds: self.started.elapsed().as_secs_f64(), what };
        if let Some(message) = self.lapses.note(lapse, Instant::now()) {
            eprintln!("emulator: {message}");
        }
    }

    fn report(&self) -> Report {
        let direction =
            |end: &LinkEnd| DirectionReport::new(&end.direction, end.write_errors, end.unread, &end.lateness);
        let link = |link: &RunningLink| LinkReport {
            name: link.name.clone(),
            up: direction(&link.ends[0]),
            down: direction(&link.ends[1]),
        };
        Report {
            devices: self.devices,
            seed: self.seed,
            processor_seconds: processor_seconds(),
            running_seconds: self.started.elapsed().as_secs_f64(),
            links: self.links.iter().map(link).collect(),
            lapses: self.lapses.total(),
            recent_lapses: self.lapses.recent(),
        }
    }
}

impl RunningLink {
    /// Writes the frames that are due from end `from` to the other end. Returns when the next frame
    /// is due, `None` if no frame is under way.
    fn write(&mut self, from: usize) -> Option<Instant> {
        let [near, far] = &mut self.ends;
        let (from, to) = if from == 0 { (near, far) } else { (far, near) };
        loop {
            let due = from.direction.next_due()?;
            let now = Instant::now();
            let Some(transmit) = from.direction.poll_transmit(now) else { return Some(due) };
            let late = now.saturating_duration_since(transmit.due);
            from.lateness.record(late);
            from.window.record(late);
            if let Err(error) = to.device.send(&transmit.frame) {
                from.refuse(&error);
            }
        }
    }
}

impl LinkEnd {
    fn refuse(&mut self, error: &io::Error) {
        self.write_errors += 1;
        match error.raw_os_error().map(nix::Error::from_raw) {
            // The interface is down, because somebody wants it so: a TUN device
            // says EIO, a packet socket ENETDOWN.
            Some(nix::Error::EIO | nix::Error::ENETDOWN) => {}
            error => {
                let count = self.refused.map_or(0, |(count, _)| count);
                self.refused = Some((count + 1, error.unwrap_or(nix::Error::UnknownErrno)));
            }
        }
    }

    fn look_for_lapses(
        &mut self,
        (name, direction): (&str, LinkDirection),
        slow: Slow,
        found: &mut Vec<What>,
    ) {
        let link = || name.to_owned();
        if self.window.frames() >= FEWEST_FRAMES {
            let (p99, bound) = (self.window.p99(), latest(self.direction.shape().delay.duration(), slow));
            if p99 > bound {
                let [p99_us, bound_us] = [p99, bound].map(|time| time.as_secs_f64() * 1e6);
                found.push(What::Late { link: link(), direction, p99_us, bound_us });
            }
            self.window.clear();
        }
        // A device that can't be asked has gone, and its link with it.
        match self.device.take_unread().unwrap_or(0) {
            0 => {}
            packets => {
                self.unread += packets;
                found.push(What::Unread { link: link(), direction, packets });
            }
        }
        if let Some((packets, error)) = self.refused.take() {
            let error = error.desc().to_owned();
            found.push(What::Refused { link: link(), direction, packets, error });
        }
    }

    fn read(&mut self, buffer: &mut [u8]) {
        if !self.readable {
            return;
        }
        for _ in 0..BATCH {
            match self.device.receive(buffer) {
                Ok(Some(frame)) => self.direction.handle_frame(frame, Instant::now()),
                // An interface that is down (EIO) gives nothing; poll
                // returns when that changes.
                Ok(None) | Err(io::Error { .. }) => break,
            }
        }
    }
}

fn processor_seconds() -> f64 {
    let Ok(usage) = getrusage(UsageWho::RUSAGE_SELF) else { return 0.0 };
    (usage.user_time().num_microseconds() + usage.system_time().num_microseconds()) as f64 / 1e6
}
