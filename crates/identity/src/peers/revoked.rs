//! The list of revoked identities.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use isthmus_service::clock::unix_seconds;
use isthmus_service::files::{self, FileError};
use isthmus_service::lock;
use isthmus_wire::bounds::REVOCATIONS;
use isthmus_wire::{proto, text};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{Certified, Peers, Refusal};
use crate::Identity;
use crate::authority::ADMIN_VALIDITY;

/// The name of the list's file in a state directory.
const FILE: &str = "revoked.json";
/// Most entries that a service takes from the service above it: more than a grid has.
const ENTRIES: usize = 100_000;
/// How many seconds the broker's clock may be ahead now, or may have been ahead when it issued a
/// certificate that it revokes.
const AHEAD: u64 = 24 * 3600;
/// Most bytes of an identity's key: three names of 64 bytes, and the rest.
const KEY_LENGTH: usize = 256;

/// Revoked certificates: those of an identity, with any owner, that were issued until a
/// certain time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revoked {
    /// The identity's URI with an empty owner ([`Revoked::key`]).
    pub identity: String,
    /// Certificates that were issued until this time are refused; seconds since 1970.
    pub issued_until: u64,
    /// When the last revoked certificate ends, and this entry is no longer needed; seconds since
    /// 1970.
    pub ends: u64,
}

impl Revoked {
    /// The key of an identity in the list: its URI without the owner.
    pub fn key(identity: &Identity) -> String {
        let uri = identity.uri();
        let without = uri.rfind('/').map_or(0, |slash| slash + 1);
        uri[..without].to_owned()
    }

    /// Whether a broker may have sent the entry. A broker revokes what was issued until now. Its
    /// entry ends with the last certificate that may have been issued.
    fn is_sound(&self, now: u64) -> bool {
        self.identity.len() <= KEY_LENGTH
            && self.issued_until <= now.saturating_add(AHEAD)
            && self.ends <= now.saturating_add(ADMIN_VALIDITY.as_secs() + 2 * AHEAD)
    }
}

impl From<proto::Revocation> for Revoked {
    fn from(entry: proto::Revocation) -> Self {
        let proto::Revocation { identity, issued_until, ends } = entry;
        Self { identity, issued_until, ends }
    }
}

impl From<Revoked> for proto::Revocation {
    fn from(entry: Revoked) -> Self {
        let Revoked { identity, issued_until, ends } = entry;
        Self { identity, issued_until, ends }
    }
}

/// The list in messages that are within the bounds.
pub fn messages(list: Vec<Revoked>) -> impl Iterator<Item = proto::Revocations> {
    let mut list = list.into_iter().map(proto::Revocation::from).peekable();
    std::iter::from_fn(move || {
        list.peek()?;
        Some(proto::Revocations { revoked: list.by_ref().take(REVOCATIONS).collect() })
    })
}

/// Why the list on disk can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RevocationError {
    /// The file can't be read or written.
    #[error(transparent)]
    File(#[from] FileError),
    /// The file isn't a list of revoked identities.
    #[error(
        "{file} is not a list of revoked identities: {reason}; remove it, the gateway or the broker sends it again"
    )]
    Malformed {
        /// The path of the file.
        file: String,
        /// Why the file can't be parsed.
        reason: String,
    },
}

#[derive(Debug, Default)]
pub(super) struct Revocations {
    list: HashMap<String, Revoked>,
    file: Option<PathBuf>,
}

impl Peers {
    /// Reads the list of a state directory, and keeps it there from now on.
    ///
    /// # Errors
    /// [`RevocationError`] if the list can't be read.
    pub fn keep_in(&self, directory: &Path) -> Result<(), RevocationError> {
        let file = directory.join(FILE);
        if file.exists() {
            let list: Vec<Revoked> = serde_json::from_str(&files::read(&file)?).map_err(|error| {
                RevocationError::Malformed { file: file.display().to_string(), reason: error.to_string() }
            })?;
            self.revoke(list)?;
        }
        self.write().file = Some(file);
        Ok(())
    }

    /// Adds a message's entries to the list ([`Peers::revoke`]). Entries that no broker sends are
    /// left out: a captured gateway sends what it likes. A failure is logged.
    pub fn receive(&self, message: proto::Revocations) {
        let now = unix_seconds(SystemTime::now());
        let room = ENTRIES.saturating_sub(self.count());
        let (sound, unsound): (Vec<_>, Vec<_>) =
            message.revoked.into_iter().map(Revoked::from).partition(|entry| entry.is_sound(now));
        if let Some(entry) = unsound.first() {
            let (identity, count) = (text::one_line(&entry.identity), unsound.len());
            tracing::warn!(identity, count, "revocations that are no broker's are ignored");
        }
        if sound.len() > room {
            tracing::error!("more than {ENTRIES} identities are revoked: the others are not refused here");
        }
        if let Err(error) = self.revoke(sound.into_iter().take(room)) {
            tracing::warn!(%error, "the revoked identities are refused until this service ends");
        }
    }

    /// Adds entries to the list. All connections of these identities end.
    ///
    /// # Errors
    /// If the list can't be written to disk. It is in effect nevertheless.
    pub fn revoke(&self, entries: impl IntoIterator<Item = Revoked>) -> Result<(), RevocationError> {
        let now = unix_seconds(SystemTime::now());
        let mut revocations = self.write();
        let mut changed = false;
        for entry in entries.into_iter().filter(|entry| entry.ends > now) {
            let former = revocations.list.get(&entry.identity);
            if former.is_none_or(|former| former.issued_until < entry.issued_until) {
                revocations.list.insert(entry.identity.clone(), entry);
                changed = true;
            }
        }
        if !changed {
            return Ok(());
        }
        revocations.list.retain(|_, entry| entry.ends > now);
        let written = revocations.save();
        drop(revocations);
        self.0.changed.send_replace(());
        written
    }

    fn count(&self) -> usize {
        self.read().list.len()
    }

    /// The list, ordered by identity.
    pub fn revoked(&self) -> Vec<Revoked> {
        let revocations = self.read();
        let mut list: Vec<Revoked> = revocations.list.values().cloned().collect();
        drop(revocations);
        list.sort_by(|a, b| a.identity.cmp(&b.identity));
        list
    }

    /// The entry of an identity; `None` if it isn't revoked.
    pub fn revocation_of(&self, identity: &Identity) -> Option<Revoked> {
        let revocations = self.read();
        revocations.list.get(&Revoked::key(identity)).cloned()
    }

    /// The refusal of an identity, if it is revoked and has shown no later certificate.
    pub fn revoked_now(&self, identity: &Identity) -> Option<Refusal> {
        let entry = self.revocation_of(identity)?;
        let before = UNIX_EPOCH + Duration::from_secs(entry.issued_until);
        let issued = lock(&self.0.latest).get(identity).map(|latest| latest.issued);
        let revoked = issued.is_none_or(|issued| issued <= before);
        revoked.then(|| Refusal::Revoked { identity: identity.clone(), before })
    }

    /// Checks that a certificate is not revoked.
    ///
    /// # Errors
    /// If the certificate is revoked.
    pub fn check_revoked(&self, certificate: &Certified) -> Result<(), Refusal> {
        let revocations = self.read();
        if revocations.list.is_empty() {
            return Ok(());
        }
        let entry = revocations.list.get(&Revoked::key(&certificate.identity));
        let before = entry.map(|entry| UNIX_EPOCH + Duration::from_secs(entry.issued_until));
        match before.filter(|before| certificate.issued <= *before) {
            Some(before) => Err(Refusal::Revoked { identity: certificate.identity.clone(), before }),
            None => Ok(()),
        }
    }

    /// A receiver that changes whenever the list does.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.0.changed.subscribe()
    }

    fn read(&self) -> std::sync::RwLockReadGuard<'_, Revocations> {
        self.0.revoked.read().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Revocations> {
        self.0.revoked.write().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Revocations {
    fn save(&self) -> Result<(), RevocationError> {
        let Some(file) = &self.file else { return Ok(()) };
        let mut list: Vec<&Revoked> = self.list.values().collect();
        list.sort_by(|a, b| a.identity.cmp(&b.identity));
        let text = serde_json::to_string(&list).map_err(|error| RevocationError::Malformed {
            file: file.display().to_string(),
            reason: error.to_string(),
        })?;
        Ok(files::write(file, text.as_bytes(), 0o600)?)
    }
}
