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

/// What a service needs to be replaced in place by another program.
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
    /// Connections that the former program carried since the service's start.
    pub connections: u64,
    /// Bytes that the former program carried since the service's start.
    pub bytes: u64,
    /// The pairs of sockets that the former program spliced.
    pub pairs: Vec<Pair<OwnedFd>>,
}

impl Upgrades {
    /// A service that isn't replaced, and has nothing from a former program.
    pub fn none() -> Self {
        Self::default()
    }

    /// A service that another program can replace, with what a former program has handed over.
    /// Inherited listeners at other addresses than the `wanted` ones are closed.
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

    /// Listens on a configured address. Uses the former program's listener, if that program
    /// listened there.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub fn listen(&self, configured: SocketAddr) -> io::Result<TcpListener> {
        match &self.replaceable {
            Some(_) => self.listeners.listen(configured),
            None => crate::listen(configured),
        }
    }

    /// Whether a former program has handed over to this program.
    pub fn took_over(&self) -> bool {
        self.took_over
    }

    /// What the former program carried; `None` if it was taken before, or if there was none.
    pub fn take_carried(&self) -> Option<Carried> {
        lock(&self.carried).take()
    }

    /// The service, its program, and its listeners; `None` if the service isn't replaced in place.
    pub fn replaceable(&self) -> Option<(Service, &Program, &Listeners)> {
        let (service, program) = self.replaceable.as_ref()?;
        Some((*service, program, &self.listeners))
    }
}
