//! What a connection is for, as its initiator says it to the dialer.

use std::fmt;
use std::sync::Arc;

use isthmus_net::dial::SocketOptions;
use isthmus_wire::preamble::Status;
use tokio_rustls::rustls::ClientConfig;
use tokio_util::sync::CancellationToken;

use crate::carrier::Carrier;

/// How the connection is protected.
#[derive(Debug, Clone, Copy)]
pub enum Security<'a> {
    /// Not at all: the bare socket.
    Raw,
    /// By TLS, which also says who is at the other end.
    Tls(&'a Arc<ClientConfig>),
    /// By TLS, if the plan says that data between the two is encrypted.
    AsPlanned(&'a Arc<ClientConfig>),
}

impl<'a> Security<'a> {
    /// The TLS to use; `encrypted` is what the plan says.
    pub(crate) fn tls(self, encrypted: bool) -> Option<&'a Arc<ClientConfig>> {
        match self {
            Self::Tls(tls) => Some(tls),
            Self::AsPlanned(tls) => encrypted.then_some(tls),
            Self::Raw => None,
        }
    }
}

/// Why the other party did not take the connection.
#[derive(Debug)]
pub enum Unaccepted {
    /// It may be another party, or the connection broke: the next step of the
    /// plan may help.
    Next(String),
    /// It is the right party, and it refused.
    Final(Status),
}

/// Tells the other party what the connection is for. Until it has answered, the
/// dialer goes on with the next step.
#[tonic::async_trait]
pub trait Introduction: fmt::Debug + Send {
    /// Tells it, and reads its answer. The dialer ends this at the step's
    /// deadline, and may call it again on another connection.
    ///
    /// # Errors
    /// [`Unaccepted`].
    async fn introduce(&mut self, carrier: &mut Carrier) -> Result<(), Unaccepted>;
}

/// What a connection is for.
#[derive(Debug)]
pub struct Purpose<'a> {
    /// How it is protected.
    pub security: Security<'a>,
    /// What is wanted of the socket.
    pub options: SocketOptions,
    /// How the other party is told; `None` if TLS says it all.
    pub introduction: Option<&'a mut dyn Introduction>,
    /// The initiator wants the connection no more.
    pub given_up: Option<&'a CancellationToken>,
}

impl<'a> Purpose<'a> {
    /// A connection of which TLS (its ALPN, RFC 7301) says what it is for.
    pub fn tls(tls: &'a Arc<ClientConfig>) -> Self {
        Self {
            security: Security::Tls(tls),
            options: SocketOptions::default(),
            introduction: None,
            given_up: None,
        }
    }
}
