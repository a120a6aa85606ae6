//! What a connection is for.

use std::fmt;

use isthmus_identity::Owner;
use isthmus_identity::secured::ClientTls;
use isthmus_net::dial::SocketOptions;
use isthmus_plan::{Step, limits, site_trunk};
use isthmus_wire::preamble::Status;
use isthmus_wire::{GridName, JobId};
use tokio_util::sync::CancellationToken;

use crate::carrier::Carrier;

/// How a connection is protected.
#[derive(Debug, Clone, Copy)]
pub enum Security<'a> {
    /// Without protection: the bare socket, if the plan lets data go unencrypted, and only to an
    /// address that the other agent has signed.
    Raw,
    /// As [`Security::Raw`], whatever the plan says: the connection carries no data.
    WithoutData,
    /// By TLS, which also verifies the other end.
    Tls(&'a ClientTls),
    /// By the gateways of the two sites: the bare socket, over the trunk that they keep. The
    /// gateways add the connection's bytes to the account of a job.
    ByGateways(Option<JobId>),
}

impl<'a> Security<'a> {
    /// The steps that are taken, in their order: those of a plan, or that of the gateways' trunk.
    pub(crate) fn steps(self, plan: Vec<Step>) -> Vec<Step> {
        match self {
            Self::ByGateways(_) => vec![site_trunk::step(limits::OVER_TRUNK)],
            Self::Raw | Self::WithoutData | Self::Tls(_) => plan,
        }
    }

    /// The TLS to use, if any.
    pub(crate) fn tls(self) -> Option<&'a ClientTls> {
        match self {
            Self::Tls(tls) => Some(tls),
            Self::Raw | Self::WithoutData | Self::ByGateways(_) => None,
        }
    }

    pub(crate) fn job(self) -> Option<JobId> {
        match self {
            Self::ByGateways(job) => job,
            Self::Raw | Self::WithoutData | Self::Tls(_) => None,
        }
    }
}

/// Why the other party did not take the connection.
#[derive(Debug)]
pub enum Unaccepted {
    /// Another party may be there, or the connection broke. The dialer takes the next step of the
    /// plan.
    Next(String),
    /// The right party was reached, and refused.
    Final(Status),
}

/// What a dialer sends the other party to say what a connection is for. The step has succeeded when
/// that party accepts.
#[tonic::async_trait]
pub trait Introduction: fmt::Debug + Send {
    /// Sends the introduction and reads the answer. The dialer ends this call at the step's
    /// deadline, and may repeat it on another connection.
    ///
    /// # Errors
    /// [`Unaccepted`] says why the other party did not take the connection.
    async fn introduce(&mut self, carrier: &mut Carrier) -> Result<(), Unaccepted>;
}

/// What a connection is for, and what it must have.
#[derive(Debug)]
pub struct Purpose<'a> {
    /// How the connection is protected.
    pub security: Security<'a>,
    /// The node that must have the dialed address, if the caller knows it from elsewhere than the
    /// gateway; `None` for any. Only TLS or its agent's signature shows that the node is there.
    pub node: Option<&'a GridName>,
    /// The owner that the other agent's certificate must name; `None` for any. Only TLS, or what
    /// the agent has signed, verifies it.
    pub owner: Option<&'a Owner>,
    /// Options of the connection's socket.
    pub options: SocketOptions,
    /// What is sent once the connection is open; `None` if the TLS protocol name (ALPN) suffices.
    pub introduction: Option<&'a mut dyn Introduction>,
    /// Cancelled when the initiator gives the connection up; `None` if it never does.
    pub given_up: Option<&'a CancellationToken>,
}

impl<'a> Purpose<'a> {
    /// A connection whose purpose is its TLS protocol name (ALPN, RFC 7301).
    pub fn tls(tls: &'a ClientTls, owner: Option<&'a Owner>) -> Self {
        Self {
            security: Security::Tls(tls),
            node: None,
            owner,
            options: SocketOptions::default(),
            introduction: None,
            given_up: None,
        }
    }
}
