//! What both commands need, `isthmus` and `isthmus-lab`, so that neither contains the other.
//!
//! | module | what |
//! |---|---|
//! | [`error`] | an error as its reader gets it |
//! | [`fault`] | a fault in a file, with its place |
//! | [`process`] | a process, distinguishable from a later one with the same id |
//! | [`quantity`] | sizes, rates, times and shares as people write them |
//! | [`text_file`] | a file that a user has written |
//! | [`time`] | times of whole seconds as people write them |

pub mod error;
pub mod fault;
pub mod process;
pub mod quantity;
pub mod text_file;
pub mod time;
