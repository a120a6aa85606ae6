//! What the news of a job's agents mean for it, and for the user.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use isthmus_front::output::one_line;
use isthmus_rpc::enums::dial_name;
use isthmus_wire::launchers::starts_ranks;
use isthmus_wire::proto::job_news::Kind;
use isthmus_wire::proto::{self, SiteBack, SiteSilent, UncarriedProgram, WayFailed};

use super::Watch;
use crate::culprit::{self, Event};
use crate::{pauses, pulses, uncarried};

impl Watch {
    /// Warns the user of programs that can't be carried, once of each.
    pub(crate) fn warn(&mut self, mut programs: Vec<UncarriedProgram>) {
        // The same file may be named with and without `./`.
        let key = |program: &UncarriedProgram| {
            (program.node.clone(), Path::new(&program.file).components().collect::<PathBuf>())
        };
        programs.retain(|program| !self.observed.warned.contains(&key(program)));
        self.observed.warned.extend(programs.iter().map(key));
        if let Some(text) = uncarried::describe(&programs).filter(|_| !self.quiet) {
            self.progress.message(&format!("warning: {}", one_line(&text)));
        }
    }

    /// Takes in a piece of news. Returns whether the job must end by it: a node is lost, or a
    /// connection that isthmus was to make has failed.
    pub(crate) fn take_news(&mut self, kind: Option<Kind>) -> bool {
        match kind {
            Some(Kind::Joined(joined)) => self.wire_up.joined(joined, Instant::now()),
            Some(Kind::ConnectFailed(failed)) => {
                let text = one_line(&format!(
                    "{} could not connect to {}: {}",
                    failed.initiator, failed.acceptor, failed.reason
                ));
                if failed.given_up && !self.keep_going {
                    self.note(Event::Unconnected(text));
                    return !self.is_over;
                }
                if !self.observed.failures.contains(&text) {
                    self.observed.failures.push(text);
                }
            }
            Some(Kind::ConnectWaits(waits)) => {
                if let Some(text) = self.observed.waits.begun(&waits).filter(|_| !self.quiet) {
                    self.progress.message(&text);
                }
            }
            Some(Kind::ConnectedLate(late)) => {
                if let Some(text) = self.observed.waits.over(&late).filter(|_| !self.quiet) {
                    self.progress.message(&text);
                }
            }
            Some(Kind::WayFailed(failed)) => {
                // Connections that began together fail together.
                let way = (failed.initiator.clone(), failed.acceptor.clone(), failed.dial);
                if self.observed.ways.insert(way) && !self.quiet {
                    self.progress.message(&way_failed(&failed));
                }
            }
            Some(Kind::SiteSilent(silent)) => self.site_silent(&silent),
            Some(Kind::SiteBack(back)) => self.site_back(&back),
            Some(Kind::NodeLost(lost)) if self.observed.cut_off.contains(&lost.node) => {}
            Some(Kind::NodeLost(lost)) => {
                self.lost(lost);
                return true;
            }
            Some(Kind::JoinedEnds(job)) => self.observed.joined_ended = Some(one_line(&job)),
            Some(Kind::NodeShort(short)) => self.short(&short),
            Some(Kind::CutOff(cut)) => {
                let (silent, reason) =
                    (Duration::from_millis(cut.silent_ms), pulses::cut_off(&cut, &self.head));
                self.observed.cut_off.extend(cut.from);
                self.note_ago(silent, Event::Lost(reason));
                return true;
            }
            Some(Kind::Pulse(pulse)) => self.pulses.heard(pulse.late_ms),
            Some(Kind::CommandKilled(killed)) => self.killed(killed),
            Some(Kind::RankEnded(ended)) => {
                self.observed.rank_ended = Some((Instant::now(), ended.clone()));
                self.note(Event::Rank(ended));
            }
            Some(Kind::RanksLive(live)) => self.observed.ranks_left.told(live, Instant::now()),
            Some(Kind::Links(links)) => {
                self.observed.links.retain(|other| other.node != links.node);
                self.observed.links.push(links);
            }
            Some(Kind::CommandStarted(started)) => {
                self.daemons.started(&started.node);
                self.show_start();
                if culprit::is_daemon(&started.command) {
                    self.observed.events.goes_on(self.started.elapsed());
                    self.observed.rank_ended = None;
                }
                // Later commands belong to processes that the program spawns.
                if !self.wire_up.is_done() {
                    self.stopwatch.command_started(started);
                }
            }
            Some(Kind::Uncarried(program)) => self.warn(vec![program]),
            Some(Kind::Ready(_) | Kind::Unready(_)) | None => {}
        }
        false
    }

    /// Notes a node that was found lost when the job was to end. Returns whether the fault is the
    /// node's.
    pub(crate) fn lost_late(&mut self, lost: proto::NodeLost) -> bool {
        let is_its_own = !self.observed.cut_off.contains(&lost.node);
        if is_its_own {
            self.lost(lost);
        }
        is_its_own
    }

    /// Notes that a node lacks a resource, and tells the user.
    fn short(&mut self, short: &proto::NodeShort) {
        let text = one_line(&format!("{} {}", short.node, short.reason));
        if self.observed.short.insert(text.clone()) {
            self.progress.message(&text);
        }
        self.note(Event::Short(text));
    }

    /// Notes that a signal ended a launcher, or a process that it started.
    fn killed(&mut self, killed: proto::CommandKilled) {
        let is_daemon = culprit::is_daemon(&killed.command);
        self.observed.daemon_killed |= is_daemon;
        let is_launcher = !is_daemon && starts_ranks(&killed.command);
        self.note(if is_launcher { Event::Launcher(killed) } else { Event::Command(killed) });
    }

    fn lost(&mut self, lost: proto::NodeLost) {
        self.note_ago(Duration::from_millis(lost.ago_ms), Event::NodeLost(lost));
    }

    /// Tells the user of a site of which nothing is heard, or at which nothing arrives, and that
    /// the job waits for it.
    fn site_silent(&mut self, silent: &SiteSilent) {
        if let Some(text) = self.observed.silent.begun(silent, Instant::now()) {
            self.progress.message(&text);
        }
    }

    /// Tells the user that a silent site is heard again, and counts the pause.
    fn site_back(&mut self, back: &SiteBack) {
        if !self.observed.silent.over(back) {
            return;
        }
        let silent = Duration::from_millis(back.silent_ms);
        let seconds = silent.as_secs_f64();
        let text = format!("{} is back after {seconds:.1} s; the job goes on", back.node);
        self.progress.message(&one_line(&text));
        pauses::note(&mut self.observed.pauses, &back.node, silent);
    }
}

/// The message that a way failed and another one works.
fn way_failed(failed: &WayFailed) -> String {
    let WayFailed { initiator, acceptor, failures, relay, .. } = failed;
    let relay = if relay.is_empty() { String::new() } else { format!(" {relay}") };
    one_line(&format!(
        "{initiator} reaches {acceptor} by {}{relay} now: {}",
        dial_name(failed.dial()),
        failures.join("; ")
    ))
}
