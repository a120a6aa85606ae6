//! What an agent observes of its jobs and of other nodes.
//!
//! | module | what |
//! |---|---|
//! | [`account`] | connections that began here |
//! | [`heartbeat`] | whether another agent is frozen or cut off |
//! | [`links`] | what joins a job's processes past the agents |
//! | [`measure`] | how fast the path to another node is |

pub mod account;
pub mod heartbeat;
pub mod links;
pub mod measure;
