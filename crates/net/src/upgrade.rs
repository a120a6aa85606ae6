//! Replacing a service's program in place: by `execve(2)`, in the same process. The new
//! program gets open sockets, and a sealed memory file that tells what they are
//! ([`isthmus_wire::upgrade`]). One environment variable has the file's descriptor.
//!
//! | module | does |
//! |---|---|
//! | `hangups` | the signal that asks for it |
//! | `program` | which program takes the place, and whether it can |
//! | `inherited` | what a former program has handed over, checked |
//! | `replace` | hands over |
//! | `listeners` | which listeners are kept |

mod hangups;
mod inherited;
mod listeners;
mod program;
mod replace;

use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Mutex;

use isthmus_wire::upgrade::{Pair, Service};
use tokio::net::TcpListener;

pub use hangups::Hangups;
pub use inherited::{InheritError, Inherited, VARIABLE};
pub use listeners::{Listeners, choose};
pub use program::{CHECK_OPTION, CheckError, Program};
pub use replace::replace;

use crate::lock;

/// What a service needs to be replaced in place.
#[derive(Debug, Default)]
pub struct Upgrades {
    replaceable: Option<(Service, Program)>,
    took_over: bool,
    listeners: Listeners,
    carried: Mutex<Option<Carried>>,
}

/// What a former program of this process carried.
#[derive(Debug, Default)]
pub struct Carried {
    /// Connections since its start.
    pub connections: u64,
    /// Bytes since its start.
    pub bytes: u64,
    /// The pairs that it spliced.
    pub pairs: Vec<Pair<OwnedFd>>,
}

impl Upgrades {
    /// A service that isn't replaced, and has nothing from a former program.
    pub fn none() -> Self {
        Self::default()
    }

    /// A service that this program replaces, with what a former one has handed over. Of
    /// its listeners, those at other addresses than the `wanted` ones are closed.
    pub fn new(
        service: Service,
        program: Program,
        inherited: Option<Inherited>,
        wanted: &[SocketAddr],
    ) -> Self {
        let took_over = inherited.is_some();
        let (listeners, carried) = inherited.map(Inherited::into_parts).unzip();
        Self {
            replaceable: Some((service, program)),
            took_over,
            listeners: Listeners::new(listeners.unwrap_or_default(), wanted),
            carried: Mutex::new(carried),
        }
    }

    /// Listens on a configured address, with the former program's listener if it had one
    /// there.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub fn listen(&self, configured: SocketAddr) -> io::Result<TcpListener> {
        match &self.replaceable {
            Some(_) => self.listeners.listen(configured),
            None => crate::listen(configured),
        }
    }

    /// Whether a former program has handed over to this one.
    pub fn took_over(&self) -> bool {
        self.took_over
    }

    /// What the former program carried; once.
    pub fn take_carried(&self) -> Option<Carried> {
        lock(&self.carried).take()
    }

    /// The service, its program, and its listeners; none if it isn't replaced.
    pub fn replaceable(&self) -> Option<(Service, &Program, &Listeners)> {
        let (service, program) = self.replaceable.as_ref()?;
        Some((*service, program, &self.listeners))
    }
}
