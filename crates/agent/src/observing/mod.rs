//! Observations of the agent's jobs and of other nodes.
//!
//! | module | what |
//! |---|---|
//! | [`account`] | connections that began here |
//! | [`collectives`] | what the MPI library has done in ranks here |
//! | [`heartbeat`] | whether another agent is frozen or cut off |
//! | [`leftovers`] | what a killed MPI leaves on the node |
//! | [`links`] | links between a job's processes that bypass the agents |
//! | [`measure`] | round trip and bandwidth to another node |
//! | [`preloaded`] | a job's processes on this node |
//! | [`ranks`] | which ranks of a job run here |
//! | [`starters`] | by what launchers start ranks here |
//! | [`raw`] | bytes of raw connections that began here |

pub(crate) mod account;
pub(crate) mod collectives;
pub(crate) mod heartbeat;
pub(crate) mod leftovers;
pub(crate) mod links;
pub(crate) mod measure;
pub(crate) mod preloaded;
pub(crate) mod ranks;
pub(crate) mod raw;
pub(crate) mod starters;
