//! What Slurm says of a batch job, and the words by which it starts a job step: pure functions over
//! text. Seen with Slurm 22.05; the manual pages that functions name are of that release.

mod allocation;
mod counts;
mod end;
mod hostlist;
pub mod step;

pub use allocation::{Allocation, AllocationError, Host};
pub use counts::CountsError;
pub use end::{End, TimeLeft, time_left};
pub use hostlist::{HostlistError, expand};
