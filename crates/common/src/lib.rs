//! What both commands need, `isthmus` and `isthmus-lab`, so that neither contains the other.
//!
//! | module | what |
//! |---|---|
//! | [`error`] | an error as its reader gets it |
//! | [`process`] | a process, distinguishable from a later one with the same id |
//! | [`quantity`] | sizes, rates, times and shares as people write them |

pub mod error;
pub mod process;
pub mod quantity;
