//! Pilots: nodes that the batch scheduler of a site gives to a user. The user's agent on the site's
//! login node submits them, as that user, for agents of the same owner that ask it to.
//!
//! | module | where |
//! |---|---|
//! | [`serving`] | at the agent that submits |
//! | [`asking`] | at the agent beside whoever wants nodes, and at the agent of a node that is there |
//! | [`fields`] | the messages between them |

pub(crate) mod asking;
mod fields;
mod grid;
pub(crate) mod serving;
