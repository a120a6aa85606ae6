//! What a caller sees of the registry, and may order.

use isthmus_wire::{GridName, Label, proto};

use super::{NodeEntry, RendezvousError};

/// The party for which a call is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum View {
    /// An administrator, who sees everything.
    All,
    /// The operator of a site, with the identity of its gateway.
    Site(Label),
    /// The user of an agent.
    Owner {
        /// The owner of the agent, who sees their own jobs.
        owner: String,
        /// The URI of the agent's identity.
        caller: String,
    },
}

impl View {
    /// Whether the caller sees a job. The number of each site's jobs is for all.
    pub(super) fn has_job(&self, job: &proto::JobReport) -> bool {
        match self {
            Self::All => true,
            Self::Site(site) => job.nodes.iter().any(|node| {
                let node = node.parse::<GridName>();
                node.is_ok_and(|node| node.site == *site)
            }),
            Self::Owner { owner, .. } => job.owner == *owner,
        }
    }

    /// Checks that the caller may have a node open a connection and measure it.
    pub(super) fn check_measure(&self, from: &NodeEntry) -> Result<(), RendezvousError> {
        let refused = |reason| Err(RendezvousError::NotYours(reason));
        let (node, of) = (&from.name, &from.contact.owner);
        match self {
            Self::All => Ok(()),
            Self::Site(site) if node.site == *site => Ok(()),
            Self::Site(site) => refused(format!(
                "the gateway of site {site} may have its own site's nodes measure, and {node} is not one of them"
            )),
            Self::Owner { owner, .. } if owner == of => Ok(()),
            Self::Owner { owner, .. } => refused(format!(
                "user {owner:?} may have their own nodes measure, and {node} belongs to {of:?}; an administrator \
                 may have every node measure"
            )),
        }
    }

    /// The key by which the caller's orders are counted.
    pub(super) fn key(&self) -> String {
        match self {
            Self::All => "administrators".to_owned(),
            Self::Site(site) => format!("site {site}"),
            Self::Owner { caller, .. } => caller.clone(),
        }
    }
}
