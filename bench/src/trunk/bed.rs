//! The lab: two machines and the link between them, both ends of the trunks, and turns.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use anyhow::Context as _;
use isthmus_lab::emulator::fidelity::{Lapse, WINDOW, What};
use isthmus_lab::emulator::statistics::Report;
use isthmus_lab::grid::{BitRate, Slow};
use isthmus_lab::lab::Options as LabOptions;
use isthmus_lab::{Grid, Lab, Machine};

use super::counts::Turn;
use super::ends::{self, Carrying, NAMES};
use super::gather::{self, Connected, ROOT_PORT, SenderOptions};
use super::{Gather, GatherWay, MeasuredLink, NEAR};
use crate::account::cpu_time;
use crate::confine::{Running, wait_for};
use crate::grid::{root, target};
use crate::rounds::Void;
use crate::tcp::Tcp;
use crate::tunnel::{itself, start};

/// The lab with the link and all programs at its ends.
pub(super) struct Bed {
    lab: Lab,
    slow: Slow,
    listener: TcpListener,
    /// The link's present shape, and both ends of the trunks that were made over it.
    shaped: Option<(MeasuredLink, [Running; 2])>,
    /// Directories with the credentials of the near end and the far end.
    states: [PathBuf; 2],
    late_ms: f64,
    _files: tempfile::TempDir,
}

impl Bed {
    /// Brings the lab up, in slow motion, without ends of trunks.
    pub(super) fn up(late_ms: f64, slow: Slow) -> anyhow::Result<Self> {
        let text = format!(
            "[[host]]\nname = 'near'\nlink = {{ delay = '{} us', rate = '{} bit/s' }}\n\
             [[host]]\nname = 'far'\n",
            NEAR.rtt.as_micros() / 2,
            NEAR.bits_per_second,
        );
        // Several may be up side by side.
        static BEDS: AtomicU32 = AtomicU32::new(0);
        let name = format!("bench-trunk-{}-{}", std::process::id(), BEDS.fetch_add(1, Relaxed));
        let mut grid = Grid::parse(&text, "the benchmark's grid", &name)?.slowed(slow)?;
        grid.share.extend([root(), target()]);
        let scratch = target().join("tmp");
        fs::create_dir_all(&scratch)?;
        let files = tempfile::Builder::new().prefix("bench-").tempdir_in(scratch)?;
        let states = ends::credentials(files.path())?;
        let program = std::env::current_exe().context("cannot find this program")?;
        let options = LabOptions { services: false, program, devices: None };
        let lab = Lab::up_with(&grid, &options)?;
        let listener = gather::listen(lab.machine(NAMES[1])?)?;
        Ok(Self { listener, shaped: None, slow, states, late_ms, _files: files, lab })
    }

    /// Starts the near end and the far end of the trunks.
    fn start_ends(&self, only: &[Carrying]) -> anyhow::Result<[Running; 2]> {
        let [near, far] = self.machines()?;
        let itself = itself()?;
        let mut far_end = far.command(&itself);
        far_end.args(["trunk-end", "far", "--program", &format!("127.0.0.1:{ROOT_PORT}"), "--state"]);
        far_end.arg(&self.states[1]);
        let far_end = start(far_end)?;
        wait_for_port(far, ends::CARRIERS_PORT)?;
        let mut near_end = near.command(&itself);
        near_end.args(["trunk-end", "near", "--peer", &far.address().to_string(), "--state"]);
        near_end.arg(&self.states[0]);
        for carrying in only {
            near_end.args(["--carry", carrying.name()]);
        }
        let near_end = start(near_end)?;
        for carrying in only {
            wait_for_port(near, carrying.port())?;
        }
        Ok([near_end, far_end])
    }

    fn machines(&self) -> anyhow::Result<[Machine<'_>; 2]> {
        Ok([self.lab.machine(NAMES[0])?, self.lab.machine(NAMES[1])?])
    }

    /// Gives the link this shape. If it had another one, trunks are made anew. Otherwise what TCP
    /// learned of the old shape would be held against trunks. Connections of their own are new in
    /// each turn.
    pub(super) fn shape(&mut self, link: MeasuredLink) -> anyhow::Result<()> {
        if self.shaped.as_ref().is_some_and(|(shaped, _)| *shaped == link) {
            return Ok(());
        }
        drop(self.shaped.take());
        self.link(link)?;
        self.shaped = Some((link, self.start_ends(&Carrying::ALL)?));
        Ok(())
    }

    /// Ends the ends of trunks.
    pub(super) fn forget(&mut self) -> anyhow::Result<()> {
        drop(self.shaped.take());
        let [near, far] = self.machines()?;
        wait_for_end(far, ends::CARRIERS_PORT)?;
        Carrying::ALL.into_iter().try_for_each(|carrying| wait_for_end(near, carrying.port()))
    }

    /// Gives the link this shape.
    pub(super) fn link(&mut self, link: MeasuredLink) -> anyhow::Result<()> {
        // What the link shall really do, in slow motion as well.
        let delay = self.slow.time(link.path.rtt / 2).as_micros();
        let rate = self.slow.rate(BitRate(link.path.bits_per_second)).0;
        let changes = [
            format!("delay={delay} us"),
            format!("rate={rate} bit/s"),
            format!("queue={} B", link.queue.0),
            format!("loss={}", link.loss.0),
        ];
        self.lab.set_link(NAMES[0], &changes)?;
        Ok(())
    }

    /// Starts ends that carry in one way alone.
    pub(super) fn start_only(&mut self, link: MeasuredLink, only: Carrying) -> anyhow::Result<()> {
        self.shaped = Some((link, self.start_ends(&[only])?));
        Ok(())
    }

    /// TCP's counters at the senders' machine.
    pub(super) fn tcp(&self) -> anyhow::Result<Tcp> {
        Tcp::of(self.machines()?[0])
    }

    /// Connects senders to the root by a way.
    pub(super) fn connect(&self, way: GatherWay, senders: usize) -> anyhow::Result<Connected> {
        let [near, far] = self.machines()?;
        Connected::new(near, &self.listener, Self::options(far, way), senders)
    }

    fn options(far: Machine<'_>, way: GatherWay) -> SenderOptions {
        let carried = |carrying: Carrying| (Ipv4Addr::LOCALHOST, carrying.port(), None);
        let (address, port, congestion) = match way {
            GatherWay::Cubic => (far.address(), ROOT_PORT, Some("cubic")),
            GatherWay::Reno => (far.address(), ROOT_PORT, Some("reno")),
            GatherWay::Bbr => (far.address(), ROOT_PORT, Some("bbr")),
            GatherWay::TrunkBbr => carried(Carrying::TrunkBbr),
            GatherWay::TrunkPlain => carried(Carrying::TrunkPlain),
            GatherWay::Sealed => carried(Carrying::Sealed),
        };
        SenderOptions { address: SocketAddr::from((address, port)), congestion }
    }

    pub(super) fn emulation(&self) -> anyhow::Result<Report> {
        self.lab.emulation()?.context("no link is emulated")
    }

    /// Fails with [`Void`] if the emulator was too late, or otherwise not faithful, since `before`.
    pub(super) fn check_since(&self, before: &Report) -> anyhow::Result<()> {
        // Lapses are looked for once a second.
        std::thread::sleep(WINDOW);
        let after = self.emulation()?;
        let count = usize::try_from(after.lapses - before.lapses)?;
        let mut recent = after.recent_lapses.iter().rev().take(count);
        match recent.find(|lapse| !is_allowed(lapse, self.late_ms * f64::from(self.slow.factor()))) {
            None if count <= after.recent_lapses.len() => Ok(()),
            None => Err(Void(format!("{count} lapses of the emulator")).into()),
            Some(lapse) => Err(Void(format!("{count} lapses of the emulator: {lapse}")).into()),
        }
    }

    /// Measures a way for `duration`, in slow motion for longer.
    pub(super) fn turn(&self, way: GatherWay, gather: &Gather, duration: Duration) -> anyhow::Result<Turn> {
        let [near, far] = self.machines()?;
        let options = Self::options(far, way);
        let senders = usize::try_from(gather.senders)?;
        let turn = || -> anyhow::Result<Turn> {
            if gather.pings {
                let what = (options, senders, gather.size);
                let mut took = gather::pings(near, &self.listener, what, duration, self.slow)?;
                took.sort_unstable();
                let at = (took.len() * 99).div_ceil(100).saturating_sub(1);
                let seconds = took.get(at).context("no pings")?.as_secs_f64();
                let seconds = self.slow.as_described(seconds);
                return Ok(Turn { seconds, ..Turn::default() });
            }
            let connected = Connected::new(near, &self.listener, options, senders)?;
            let (took, (before, idle)) = connected.gathers(gather.size, duration, self.slow, || {
                Ok((self.counters()?, connected.processor_time()?))
            })?;
            let busy = connected.processor_time()?;
            let after = self.counters()?;
            let ends = |at: usize| (after.1[at].saturating_sub(before.1[at])).as_secs_f64();
            let programs = |at: usize| (busy[at].saturating_sub(idle[at])).as_secs_f64();
            let seconds = took.iter().sum::<Duration>().as_secs_f64() / took.len() as f64;
            Ok(Turn {
                seconds: self.slow.as_described(seconds),
                gathers: took.len() as u64,
                tcp: [after.0[0].since(before.0[0]), after.0[1].since(before.0[1])],
                ends_seconds: [ends(0), ends(1)],
                programs_seconds: [programs(0), programs(1)],
            })
        };
        turn().with_context(|| way.name())
    }

    /// TCP's counters of both machines, and the processor time of both ends.
    fn counters(&self) -> anyhow::Result<([Tcp; 2], [Duration; 2])> {
        let mut tcp = [Tcp::default(); 2];
        for (machine, tcp) in self.machines()?.into_iter().zip(&mut tcp) {
            *tcp = Tcp::of(machine)?;
        }
        let (_, [near, far]) = self.shaped.as_ref().context("the link has no shape")?;
        Ok((tcp, [cpu_time(near.0.id())?, cpu_time(far.0.id())?]))
    }
}

/// Whether a lapse of the emulator is only that it was late, and not by more than `late_ms`.
fn is_allowed(lapse: &Lapse, late_ms: f64) -> bool {
    match &lapse.what {
        What::Late { p99_us, .. } => *p99_us <= late_ms * 1e3,
        _ => false,
    }
}

/// Waits until a program listens at a port. It doesn't connect, as the connection would be taken
/// for a program's.
fn wait_for_port(machine: Machine<'_>, port: u16) -> anyhow::Result<()> {
    let what = format!("the end in {} to listen at port {port}", machine.name());
    let listens = || fs::read_to_string("/proc/thread-self/net/tcp").is_ok_and(|text| listens(&text, port));
    machine.in_network(|| wait_for(&what, listens))?
}

/// Waits until no program listens at a port any more.
fn wait_for_end(machine: Machine<'_>, port: u16) -> anyhow::Result<()> {
    let what = format!("the end in {} to leave port {port}", machine.name());
    let listens = || fs::read_to_string("/proc/thread-self/net/tcp").is_ok_and(|text| !listens(&text, port));
    machine.in_network(|| wait_for(&what, listens))?
}

/// Whether the text of /proc/net/tcp has a listener at a port.
fn listens(text: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    text.lines().any(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let local = fields.next().and_then(|address| address.rsplit_once(':'));
        local.is_some_and(|(_, found)| found == format!("{port:04X}")) && fields.nth(1) == Some(LISTEN)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_found() {
        let text = "  sl  local_address rem_address   st\n   0: 00000000:1C21 00000000:0000 0A 0\n   \
                    1: 0100007F:1BBD 0100007F:9C40 01 0\n";
        assert_eq!([7201, 7101, 7102].map(|port| listens(text, port)), [true, false, false]);
    }
}
