//! Pools of workers over sites, for programs in C and Python: the sockets and threads around
//! [`isthmus_workers`]. isthmus_pool.h and isthmus_mpi.py use what [`abi`] exports.
//!
//! | module | what |
//! |---|---|
//! | `pool` | [`Pool`] and [`Worker`]: both ends, for programs |
//! | `engine` | the thread with a member's sockets |
//! | `connection` | one of them |
//! | `greeting` | how both ends show that they know the pool's key |
//! | `ticket`, `options` | what programs pass, as text |
//! | `abi` | the same for C |

pub mod abi;
mod connection;
mod engine;
mod greeting;
mod options;
mod pool;
mod ticket;

pub use engine::End;
pub use greeting::GreetingError;
pub use options::WrongOption;
pub use pool::{Pool, PoolError, Worker};
pub use ticket::NoTicket;
