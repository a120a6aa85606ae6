//! A pilot, and what it asks for.

use std::fmt;
use std::num::NonZeroU32;
use std::time::Duration;

use crate::{BatchError, Word};

/// Most nodes of a pilot.
pub const MOST_NODES: u32 = 65_536;
/// Most bytes of a pilot's script. Linux allows 128 KiB for one argument (execve(2)).
pub const MOST_SCRIPT_BYTES: usize = 64 << 10;
/// Most bytes of a secret.
pub const MOST_SECRET_BYTES: usize = 64 << 10;
/// The variable in which a pilot's script finds the path of the file that has its secret. Only the
/// user can read that file.
pub const SECRET_VARIABLE: &str = "ISTHMUS_PILOT_SECRET";

/// Nodes that are asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// How many nodes: at most [`MOST_NODES`].
    pub nodes: NonZeroU32,
    /// For how long; `None` if the scheduler's default will do. Schedulers round up to minutes or
    /// seconds.
    pub time: Option<Duration>,
    /// Cores on each node; `None` if the scheduler's default (one) will do.
    pub cores: Option<NonZeroU32>,
    /// Bytes of memory on each node; `None` if the scheduler's default will do.
    pub memory_bytes: Option<u64>,
    /// Features of nodes, all of which each node must have.
    pub tags: Vec<Word>,
    /// A queue (Slurm: partition) other than the default one.
    pub queue: Option<Word>,
    /// An advance reservation, by its name (Grid Engine: its number).
    pub reservation: Option<Word>,
    /// The account (Grid Engine: project) that is charged.
    pub account: Option<Word>,
}

impl Request {
    /// Asks for this many nodes, and for nothing else.
    pub fn of(nodes: NonZeroU32) -> Self {
        Self {
            nodes,
            time: None,
            cores: None,
            memory_bytes: None,
            tags: Vec::new(),
            queue: None,
            reservation: None,
            account: None,
        }
    }
}

/// What a pilot must not show to others: not in its script, its arguments or its environment.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// These bytes.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// A batch job that runs one script on each of its nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pilot {
    /// Its name, unlike those of the user's other jobs there. By it a job is found whose number
    /// nobody got to know, and told from a later one with the same number.
    pub name: Word,
    /// The nodes.
    pub request: Request,
    /// What `sh` runs once on each node, as the user. Anybody may be able to read it. The pilot ends
    /// when the script has ended on each node.
    pub script: String,
    /// What the script finds in the file that [`SECRET_VARIABLE`] names.
    pub secret: Option<Secret>,
}

impl Pilot {
    /// Checks what the types leave open.
    pub(crate) fn check(&self) -> Result<(), BatchError> {
        let wrong = |what: String| Err(BatchError::Request { what });
        let secret = self.secret.as_ref().map_or(0, |secret| secret.bytes().len());
        if self.request.nodes.get() > MOST_NODES {
            return wrong(format!("{} nodes, and {MOST_NODES} is the most", self.request.nodes));
        }
        if self.script.len() > MOST_SCRIPT_BYTES || self.script.contains('\0') {
            return wrong(format!(
                "a script of {} B; it takes text without NUL of {MOST_SCRIPT_BYTES} B at most",
                self.script.len()
            ));
        }
        if secret > MOST_SECRET_BYTES {
            return wrong(format!("a secret of {secret} B, and {MOST_SECRET_BYTES} B is the most"));
        }
        Ok(())
    }
}
