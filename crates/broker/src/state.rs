//! The broker's state directory.
//!
//! | path | content |
//! |---|---|
//! | `grid.toml` | the grid's name and the broker's address |
//! | `ca.pem`, `signing.pem` (0600) | the certificate authority, and the intermediate that signs |
//! | `ca-key.pem` (0600) | the authority's key, until it is moved elsewhere |
//! | `join-key` (0600) | 32 bytes in hexadecimal: makes and verifies join tokens |
//! | `identity.pem`, `key.pem`, … | the broker's own credentials |
//! | `admin/` | the administrator's credentials, a state directory of its own |
//! | `registry.redb` (0600) | the store: addresses, members, used tokens |

mod address;

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use isthmus_identity::authority::AuthorityError;
use isthmus_identity::credentials::{CredentialsError, SigningRequest};
use isthmus_identity::identity::IdentityError;
use isthmus_identity::{Authority, Credentials, Identity, Role};
use isthmus_service::files::{self, FileError};
use isthmus_service::mac::Secret;
use isthmus_wire::{Label, NameError};
use serde::{Deserialize, Serialize};

/// Name of the administrator's state directory within the broker's.
pub const ADMIN_DIRECTORY: &str = "admin";

const GRID_FILE: &str = "grid.toml";
const JOIN_KEY_FILE: &str = "join-key";
const STORE_FILE: &str = "registry.redb";

/// Why a broker's state directory can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The directory holds a grid already.
    #[error(
        "{0} holds the grid {1:?} already: `isthmus up` starts its broker; another grid needs another directory \
         (--state DIR). To correct its address: edit {0}/grid.toml, then isthmus down and isthmus up; who has \
         joined by the wrong one joins anew"
    )]
    Exists(String, String),
    /// The directory holds no grid.
    #[error(
        "{0} holds no grid: run this on the host where the grid was made, or make one with `isthmus grid init`"
    )]
    Missing(String),
    /// The grid's name isn't allowed.
    #[error(transparent)]
    Name(#[from] NameError),
    /// The broker's address doesn't have the form `HOST:PORT`.
    #[error(
        "{0:?} is not an address: expected HOST:PORT, as gateways reach the broker; HOST is a name, an IPv4 address \
         or an IPv6 address in brackets"
    )]
    Address(String),
    /// A file couldn't be used.
    #[error(transparent)]
    File(#[from] FileError),
    /// A file can't be parsed.
    #[error("{path}: {reason}")]
    Content {
        /// The path of the file.
        path: String,
        /// The error of the parser.
        reason: String,
    },
    /// The authority can't be made or read.
    #[error(transparent)]
    Authority(#[from] AuthorityError),
    /// Credentials can't be made or read.
    #[error(transparent)]
    Credentials(#[from] CredentialsError),
    /// An identity makes no sense.
    #[error(transparent)]
    Identity(#[from] IdentityError),
}

/// A grid's name and its broker's address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GridFile {
    /// The name of the grid.
    pub name: String,
    /// The address at which gateways and relays reach the broker, `HOST:PORT`.
    pub address: String,
}

/// Everything a broker starts from.
#[derive(Debug)]
pub struct State {
    /// The path of the state directory.
    pub directory: PathBuf,
    /// The grid's name and the broker's address.
    pub grid: GridFile,
    /// The certificate authority of the grid.
    pub authority: Authority,
    /// The key that makes and verifies join tokens.
    pub join_key: Secret,
}

impl State {
    /// Makes a new grid: authority, broker and administrator.
    ///
    /// # Errors
    /// If the directory holds a grid already or can't be written.
    pub fn create(directory: &Path, name: &str, address: &str, now: SystemTime) -> Result<Self, StateError> {
        let name = name.parse::<Label>()?.to_string();
        if !address::is_address(address) {
            return Err(StateError::Address(address.to_owned()));
        }
        let grid_file = directory.join(GRID_FILE);
        if grid_file.exists() {
            let grid = Self::read_grid(directory)?;
            return Err(StateError::Exists(directory.display().to_string(), grid.name));
        }
        files::create_directory(directory)?;
        let authority = Authority::create(&name, now)?;
        let state = Self {
            directory: directory.to_owned(),
            grid: GridFile { name, address: address.to_owned() },
            authority,
            join_key: Secret::random(),
        };
        state.authority.save(directory)?;
        let key = format!("{}\n", hex(&state.join_key.expose()));
        files::write(&directory.join(JOIN_KEY_FILE), key.as_bytes(), 0o600)?;
        state.issue(Role::Broker, now)?.save(directory)?;
        state.issue(Role::Admin, now)?.save(&directory.join(ADMIN_DIRECTORY))?;
        let text = toml::to_string(&state.grid).map_err(|error| StateError::Content {
            path: grid_file.display().to_string(),
            reason: error.to_string(),
        })?;
        // Written last: a directory with this file is complete.
        files::write(&grid_file, text.as_bytes(), 0o644)?;
        Ok(state)
    }

    /// Reads the state directory of a grid.
    ///
    /// # Errors
    /// If the directory holds no grid, or its files can't be used.
    pub fn load(directory: &Path) -> Result<Self, StateError> {
        let grid = Self::read_grid(directory)?;
        let authority = Authority::load(directory)?;
        Ok(Self { directory: directory.to_owned(), grid, authority, join_key: read_join_key(directory)? })
    }

    fn read_grid(directory: &Path) -> Result<GridFile, StateError> {
        let path = directory.join(GRID_FILE);
        if !path.exists() {
            return Err(StateError::Missing(directory.display().to_string()));
        }
        toml::from_str(&files::read(&path)?).map_err(|error| StateError::Content {
            path: path.display().to_string(),
            reason: error.to_string(),
        })
    }

    /// The broker's own credentials, renewed by its own authority if that is due. The broker's and
    /// the administrator's credentials follow the address in `grid.toml`.
    ///
    /// # Errors
    /// If the credentials can't be read or written.
    pub fn credentials(&self, now: SystemTime) -> Result<Credentials, StateError> {
        let credentials = self.at_its_address(&self.directory)?;
        match self.at_its_address(&self.directory.join(ADMIN_DIRECTORY)) {
            Ok(_) => {}
            // The administrator's credentials may be kept elsewhere.
            Err(StateError::Credentials(CredentialsError::Missing { .. })) => {}
            // The broker serves without them.
            Err(error) => tracing::warn!(%error, "the administrator's identity can't be used"),
        }
        self.renew_if_due(&credentials, now)?;
        Ok(credentials)
    }

    /// The credentials in a directory, with the address in `grid.toml`.
    fn at_its_address(&self, directory: &Path) -> Result<Credentials, StateError> {
        let credentials = Credentials::load(directory)?;
        if credentials.upstream() == self.grid.address {
            return Ok(credentials);
        }
        let credentials = credentials.with_upstream(&self.grid.address)?;
        credentials.save(directory)?;
        Ok(credentials)
    }

    /// Renews the broker's certificate if that is due; returns whether it was.
    ///
    /// # Errors
    /// If the certificate can't be made or written.
    pub fn renew_if_due(&self, credentials: &Credentials, now: SystemTime) -> Result<bool, StateError> {
        if now < credentials.renewal_due() {
            return Ok(false);
        }
        let request = SigningRequest::new()?;
        let certificate = self.authority.sign(credentials.identity(), request.public_key(), now)?;
        credentials.renew(&request, &certificate)?;
        credentials.save(&self.directory)?;
        Ok(true)
    }

    /// The path of the registry's store.
    pub fn store_path(&self) -> PathBuf {
        self.directory.join(STORE_FILE)
    }

    fn issue(&self, role: Role, now: SystemTime) -> Result<Credentials, StateError> {
        let identity = Identity::new(role, None, None, None)?;
        let request = SigningRequest::new()?;
        let certificate = self.authority.sign(&identity, request.public_key(), now)?;
        let authority = self.authority.certificate_pem();
        Ok(Credentials::new(&request, &certificate, authority, &self.grid.address)?)
    }
}

fn read_join_key(directory: &Path) -> Result<Secret, StateError> {
    let path = directory.join(JOIN_KEY_FILE);
    let text = files::read_secret(&path)?;
    let digits = text.trim();
    let key = (digits.len() == 64 && digits.is_ascii())
        .then(|| (0..64).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16)).collect());
    let key: Option<Vec<u8>> = key.and_then(Result::ok);
    key.and_then(|key| Secret::from_slice(&key)).ok_or_else(|| StateError::Content {
        path: path.display().to_string(),
        reason: "it is not 64 hexadecimal digits".to_owned(),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use isthmus_identity::authority::SERVICE_VALIDITY;

    #[test]
    fn a_grid_is_made_once() {
        let directory = tempfile::tempdir().unwrap();
        let state = directory.path().join("grid");
        let now = SystemTime::now();
        assert!(matches!(State::load(&state), Err(StateError::Missing(_))));
        State::create(&state, "demo", "192.0.2.1:7700", now).unwrap();
        let again = State::create(&state, "other", "192.0.2.1:7700", now).unwrap_err();
        assert!(again.to_string().contains("\"demo\""), "{again}");

        let loaded = State::load(&state).unwrap();
        assert_eq!(loaded.grid.address, "192.0.2.1:7700");
        let made = State::load(&state).unwrap().join_key.expose();
        assert_eq!(loaded.join_key.expose(), made);
        assert_ne!(made, [0; 32]);
        assert_eq!(loaded.credentials(now).unwrap().identity().role(), Role::Broker);
        let admin = Credentials::load(&state.join(ADMIN_DIRECTORY)).unwrap();
        assert_eq!(admin.identity().role(), Role::Admin);
        assert_eq!(admin.upstream(), "192.0.2.1:7700");
    }

    #[test]
    fn a_broker_renews_its_own_certificate() {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        let state = State::create(directory.path(), "demo", "[2001:db8::1]:7700", now).unwrap();
        let due = state.credentials(now).unwrap().renewal_due();
        let renewed = state.credentials(now + SERVICE_VALIDITY).unwrap();
        assert!(renewed.renewal_due() > due);
        assert_eq!(Credentials::load(directory.path()).unwrap().renewal_due(), renewed.renewal_due());
    }

    #[test]
    fn a_wrong_address_can_be_corrected() {
        let directory = tempfile::tempdir().unwrap();
        let now = SystemTime::now();
        State::create(directory.path(), "demo", "wrong:7700", now).unwrap();
        let path = directory.path().join(GRID_FILE);
        let text = std::fs::read_to_string(&path).unwrap().replace("wrong:7700", "right:7700");
        std::fs::write(&path, text).unwrap();
        let own = State::load(directory.path()).unwrap().credentials(now).unwrap();
        let admin = directory.path().join(ADMIN_DIRECTORY);
        let admins = Credentials::load(&admin).unwrap();
        assert_eq!((own.upstream(), admins.upstream()), ("right:7700", "right:7700"));
        assert_eq!(admins.identity().role(), Role::Admin);
        std::fs::remove_dir_all(admin).unwrap();
        State::load(directory.path()).unwrap().credentials(now).unwrap();
    }

    #[test]
    fn bad_names_and_addresses() {
        let directory = tempfile::tempdir().unwrap();
        for (name, address) in [
            ("de mo", "host:7700"),
            ("demo", "host"),
            ("demo", "host:0"),
            ("demo", ":7700"),
            ("demo", "host:x"),
        ] {
            let result = State::create(directory.path(), name, address, SystemTime::now());
            assert!(result.is_err(), "{name} {address}");
        }
    }
}
