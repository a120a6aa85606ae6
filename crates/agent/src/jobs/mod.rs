//! The node and its jobs.
//!
//! | module | what |
//! |---|---|
//! | `node` | the node |
//! | `job` | one job, of `members`, `sockets`, `holding` and `news` |
//! | `begin` | begins a job |
//! | `calls` | calls to the other agents of a job |
//! | [`job_directory`] | a job's files |
//! | `tree` | which node of a job holds which |
//! | `hold` | holding them |
//! | `end` | ending a job here and at the nodes below |
//! | `given_up` | why jobs have ended at this node alone |
//! | `told` | the head is told of the loss of a node by those that it held |
//! | `lost_gateway` | tells the head of a gateway that has carried connections of the job |
//! | `own_site` | whether the head's own site is cut off |
//! | `stop` | ends all jobs when the agent is stopped |
//! | `unready` | why nodes can't take part |
//! | `partners` | jobs whose programs connect with those of this one |
//! | `over` | the end of a job that this node can't be told of |
//! | `verify` | their certificates, anew before the former ones end |
//! | `progress` | whether what its programs send over trunks arrives |
//! | `part` | parts of a job in tasks of their own |
//! | `peers` | the service for other agents |
//! | `local` | the service for the node's users |

pub(crate) mod begin;
pub(crate) mod calls;
pub(crate) mod end;
pub(crate) mod given_up;
pub(crate) mod hold;
pub(crate) mod holding;
pub(crate) mod job;
pub mod job_directory;
pub(crate) mod local;
pub(crate) mod lost_gateway;
pub(crate) mod members;
pub(crate) mod news;
pub(crate) mod node;
pub(crate) mod over;
pub(crate) mod own_site;
pub(crate) mod part;
pub(crate) mod partners;
pub(crate) mod peers;
pub(crate) mod progress;
pub(crate) mod sockets;
pub(crate) mod stop;
pub(crate) mod told;
pub(crate) mod tree;
pub(crate) mod unready;
pub(crate) mod verify;
