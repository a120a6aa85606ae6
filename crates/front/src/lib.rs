//! What the commands of `isthmus` do alike, whichever they are.
//!
//! | module | what |
//! |---|---|
//! | [`ask`] | questions to the broker, a gateway or this node's agent |
//! | [`local`] | the connection to this node's agent |
//! | [`state`] | the state directory, and the option that names it |
//! | [`notes`] | what `isthmus run` and `isthmus alloc` note of themselves while they run |
//! | [`without_broker`] | what a user reads of answers that a gateway gave by itself |
//! | [`output`], [`mod@format`] | what is written, with control characters escaped; numbers in words |
//! | [`output_file`], [`picture`] | files and pictures that a user asks for |

// Texts of other parties are escaped: output writes them.
#![deny(clippy::print_stderr)]

pub mod ask;
pub mod format;
pub mod local;
pub mod notes;
pub mod output;
pub mod output_file;
mod pages;
pub mod picture;
pub mod state;
pub mod without_broker;
