//! All tests end to end. They are modules of one program, so that they share labs
//! (see `isthmus_e2e::Shared`) and are linked once.

mod beyond_mpi;
mod carried;
mod changes;
mod conformance;
mod demo;
mod doctor;
mod ends;
mod gateways;
mod life;
mod logs;
mod mpis;
mod outlive;
mod output;
mod policy;
mod preflight;
mod privacy;
mod programs;
mod rails;
mod security_flood;
mod security_gateway;
mod security_local;
mod security_loopback;
mod security_members;
mod security_revoke;
mod several;
mod site_trunk;
mod soak;
mod sockets;
mod strangers;
mod terminal;
mod traverse;
mod tree;
mod trusted;
mod upgrade;
mod ways;
