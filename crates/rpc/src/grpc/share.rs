//! How much of a service a member may take at once, over all its connections. It may take what it
//! needs in a job of 1,000 nodes, also while its dead former connections are not yet closed.
//! docs/security.md has the table, with what is really open.

use isthmus_identity::Role;

use crate::calls::At;

/// Most calls at once on a connection of a member that calls for itself. An agent that connects to
/// 999 nodes at once looks each up and asks for a rendezvous. Beyond this bound its calls wait at
/// the sender. A call and an answer that nobody reads take 256 KiB and more at most.
pub(super) const FEW: u32 = 128;
/// Most calls at once on a connection of a member that calls for many. A gateway calls for its
/// agents. The head of a job calls for its commands, each of which is a call for as long as it
/// runs.
pub(super) const MANY: u32 = 4096;

/// The most that a member may have open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) connections: usize,
    /// Most calls on all connections together.
    pub(super) calls: usize,
    /// Most calls on each connection: [`FEW`] or [`MANY`].
    pub(super) each: u32,
}

/// The share of a member of this role at a service.
pub(super) fn share(at: At, role: Role) -> Share {
    let of = |connections, calls, each| Share { connections, calls, each };
    match (at, role) {
        // One connection for all calls, and commands with the same identity. A dead connection is
        // noticed after 8 s; the new connection must not wait for that.
        (At::Broker, Role::Gateway) => of(32, 2 * MANY as usize, MANY),
        // Commands, each with a connection and few calls.
        (At::Broker, Role::Admin) => of(64, 256, FEW),
        // One connection with an attachment and calls, and one to renew.
        (At::Gateway, Role::Agent) => of(8, 2 * FEW as usize, FEW),
        // One connection for each job of which the caller holds a part here: 256 jobs, and
        // commands for up to 4,096 nodes in each of a few.
        (At::Agent, Role::Agent) => of(512, 4 * MANY as usize, MANY),
        // An attachment, a renewal, or nothing at all.
        (At::Broker | At::Gateway | At::Agent | At::AgentSocket, _) => of(8, 16, FEW),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_calls_for_itself_gets_little() {
        // As docs/security.md has it.
        for (at, role, connections, calls) in [
            (At::Broker, Role::Gateway, 32, 8192),
            (At::Broker, Role::Admin, 64, 256),
            (At::Broker, Role::Relay, 8, 16),
            (At::Broker, Role::Agent, 8, 16),
            (At::Gateway, Role::Agent, 8, 256),
            (At::Gateway, Role::Gateway, 8, 16),
            (At::Agent, Role::Agent, 512, 16_384),
            (At::Agent, Role::Gateway, 8, 16),
        ] {
            let found = share(at, role);
            assert_eq!((found.connections, found.calls), (connections, calls), "{role} at {at}");
        }
    }
}
