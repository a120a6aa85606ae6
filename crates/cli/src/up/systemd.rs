//! The user's own systemd: writes, starts and removes units by systemctl(1).

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};
use isthmus_service::files;
use tokio::process::Command;
use tokio::time::timeout;

use super::unit;
use crate::service::Service;
use crate::standing::own_file;

/// How long systemctl may take to answer; starting and stopping a service take longer.
const ANSWER: Duration = Duration::from_secs(20);
/// How long systemctl may take to stop a service: the unit's TimeoutStopSec, and some more.
const STOP: Duration = Duration::from_secs(40);
/// Longest unit and note that are read, in bytes.
const LONGEST: u64 = 64 << 10;

/// A user's systemd that answers.
#[derive(Debug)]
pub(super) struct Manager {
    /// The directory of the user's units.
    units: PathBuf,
}

/// How a unit is, as `systemctl show` tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Whether the unit is started, or being started or replaced.
    pub(super) active: bool,
    /// The id of the unit's main process; 0 if there is none.
    pub(super) pid: u32,
}

impl Manager {
    /// Finds this user's systemd.
    ///
    /// # Errors If no systemd answers; the error tells what to do.
    pub(super) async fn find() -> anyhow::Result<Self> {
        let environment = systemctl(&["show-environment"], ANSWER).await.map_err(|error| {
            anyhow::anyhow!(
                "no systemd of this user answers (systemctl --user: {error:#}). There is one after a login by ssh or \
                 at the machine, not after su or sudo; loginctl enable-linger starts it without one. Without \
                 --user-unit the service runs in the background; root has the units of packaging/systemd"
            )
        })?;
        let units = units(&environment)
            .context("the user's systemd has no home (systemctl --user show-environment)")?;
        Ok(Self { units })
    }

    /// Writes a unit, and has it started with the user's systemd from now on.
    ///
    /// # Errors If a unit of the same name is another program's, or systemd refuses the unit.
    pub(super) async fn install(&self, name: &str, text: &str) -> anyhow::Result<()> {
        let path = self.units.join(name);
        self.check_own(&path)?;
        fs::create_dir_all(&self.units).with_context(|| format!("cannot create {}", self.units.display()))?;
        files::write(&path, text.as_bytes(), 0o644)?;
        systemctl(&["daemon-reload"], ANSWER).await?;
        systemctl(&["enable", name], ANSWER).await?;
        Ok(())
    }

    /// Starts a unit; returns when it is ready or has failed.
    ///
    /// # Errors
    /// What systemctl says.
    pub(super) async fn start(&self, name: &str, deadline: Duration) -> anyhow::Result<()> {
        systemctl(&["start", name], deadline).await.map(drop)
    }

    /// How a unit is.
    ///
    /// # Errors
    /// What systemctl says.
    pub(super) async fn look(&self, name: &str) -> anyhow::Result<Found> {
        let words = ["show", "--property=ActiveState", "--property=MainPID", name];
        Ok(found(&systemctl(&words, ANSWER).await?))
    }

    /// Stops a unit, which stays.
    ///
    /// # Errors
    /// What systemctl says.
    pub(super) async fn stop(&self, name: &str) -> anyhow::Result<()> {
        systemctl(&["stop", name], STOP).await.map(drop)
    }

    /// Stops a unit, and removes it.
    ///
    /// # Errors
    /// What systemctl says, or that the unit is another program's.
    pub(super) async fn remove(&self, name: &str) -> anyhow::Result<()> {
        let path = self.units.join(name);
        self.check_own(&path)?;
        if path.exists() {
            systemctl(&["disable", "--now", name], STOP).await?;
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
            systemctl(&["daemon-reload"], ANSWER).await?;
        }
        Ok(())
    }

    fn check_own(&self, path: &Path) -> anyhow::Result<()> {
        let Some(text) = own_file(path, LONGEST)? else { return Ok(()) };
        ensure!(
            text.lines().next() == Some(unit::MARK),
            "{} is not from isthmus up: move it away first",
            path.display()
        );
        Ok(())
    }
}

/// Runs systemctl for this user. Returns what it prints.
async fn systemctl(words: &[&str], deadline: Duration) -> anyhow::Result<String> {
    let mut command = Command::new("systemctl");
    command.args(["--user", "--no-pager", "--no-ask-password"]).args(words);
    command.stdin(Stdio::null()).kill_on_drop(true);
    let output = match timeout(deadline, command.output()).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) if error.kind() == ErrorKind::NotFound => bail!("it is not installed"),
        Ok(Err(error)) => return Err(error).context("cannot run systemctl"),
        Err(_) => bail!("systemctl {} took more than {} s", words.join(" "), deadline.as_secs()),
    };
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said: Vec<&str> = said.lines().map(str::trim).filter(|line| !line.is_empty()).take(3).collect();
        bail!("{}", if said.is_empty() { output.status.to_string() } else { said.join("; ") });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The directory of its user's units for a systemd with this environment (systemd.unit(5)).
fn units(environment: &str) -> Option<PathBuf> {
    let of = |name: &str| {
        let value = environment.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='))?;
        // Values with other characters are quoted for a shell.
        Some(Path::new(value)).filter(|path| path.is_absolute()).map(Path::to_owned)
    };
    let base = of("XDG_CONFIG_HOME").or_else(|| Some(of("HOME")?.join(".config")))?;
    Some(base.join("systemd/user"))
}

/// Reads what `systemctl show` prints of a unit.
fn found(text: &str) -> Found {
    let of = |name: &str| text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    let active =
        of("ActiveState").is_some_and(|state| ["active", "activating", "reloading"].contains(&state));
    Found { active, pid: of("MainPID").and_then(|pid| pid.parse().ok()).unwrap_or(0) }
}

fn note_path(directory: &Path, service: Service) -> PathBuf {
    directory.join(format!("{}.unit", service.name()))
}

/// The name of the unit that was written for a service of a state directory, by the note there.
///
/// # Errors
/// If the note isn't this user's.
pub(super) fn noted(directory: &Path, service: Service) -> anyhow::Result<Option<String>> {
    let text = own_file(&note_path(directory, service), LONGEST)?;
    Ok(text.map(|text| text.trim().to_owned()).filter(|name| unit::is_name(name)))
}

/// Notes the name of a service's unit in its state directory.
pub(super) fn note(directory: &Path, service: Service, name: &str) -> anyhow::Result<()> {
    Ok(files::write(&note_path(directory, service), format!("{name}\n").as_bytes(), 0o600)?)
}

/// Removes the note of a service's unit.
pub(super) fn forget(directory: &Path, service: Service) {
    let _ = fs::remove_file(note_path(directory, service));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_where_the_user_s_systemd_looks() {
        for (environment, want) in [
            ("LANG=C\nHOME=/home/ada\nPATH=/bin\n", Some("/home/ada/.config/systemd/user")),
            ("HOME=/home/ada\nXDG_CONFIG_HOME=/srv/ada\n", Some("/srv/ada/systemd/user")),
            ("HOME=/home/ada\nXDG_CONFIG_HOME=\n", Some("/home/ada/.config/systemd/user")),
            ("HOME=$'/home/a b'\n", None),
            ("HOMES=/x\n", None),
            ("", None),
        ] {
            assert_eq!(units(environment), want.map(PathBuf::from), "{environment:?}");
        }
    }

    #[test]
    fn units_are_running_or_not() {
        for (text, active, pid) in [
            ("ActiveState=active\nMainPID=71\n", true, 71),
            ("MainPID=0\nActiveState=activating\n", true, 0),
            ("ActiveState=failed\nMainPID=0\n", false, 0),
            ("ActiveState=inactive\nMainPID=x\n", false, 0),
            ("", false, 0),
        ] {
            assert_eq!(found(text), Found { active, pid }, "{text:?}");
        }
    }

    #[test]
    fn a_note_is_a_unit_s_name_or_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let read = || noted(directory.path(), Service::Agent).unwrap();
        assert_eq!(read(), None);
        note(directory.path(), Service::Agent, "isthmus-agent-n1.service").unwrap();
        assert_eq!(read().as_deref(), Some("isthmus-agent-n1.service"));
        note(directory.path(), Service::Agent, "--now\nsshd.service").unwrap();
        assert_eq!(read(), None);
        forget(directory.path(), Service::Agent);
    }
}
