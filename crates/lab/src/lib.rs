//! An emulated grid on one Linux machine: sites behind NATs and firewalls,
//! public hosts, and wide-area links with delay and rate between them.
//!
//! Every node, router and host is a *machine*: a set of namespaces (network,
//! mount, UTS, IPC, PID) with the real machine's programs and files, but its
//! own interfaces, host name, `/dev/shm` and `/tmp`, so that programs on two
//! nodes meet over the network or not at all. Nothing in the lab can reach
//! anything outside it.
//!
//! | module | does |
//! |---|---|
//! | [`grid`] | reads and checks a grid file |
//! | [`topology`] | decides what to build; pure |
//! | [`services`] | starts isthmus's own services, if the grid file gives machines roles |
//! | [`emulator`] | carries packets over links with delay and rate |
//! | [`lab`] | labs from Rust |
//! | [`faults`] | breaks running labs on purpose, and mends them |
//! | [`capture`] | packets of a link, as pcap |
//! | [`graph`] | a picture of a grid, as SVG |
//! | [`presets`] | ready-made grids |
//! | [`probe`] | measures the behaviour of a site's router, from inside and outside |
//! | [`check`] | whether this user can run labs |
//! | [`command`] | labs from the command line |
//!
//! One process per lab, the keeper, is the parent of all others, which the
//! kernel kills when it ends. Nothing has a name in the file system but the
//! lab's state directory, and control groups where Slurm has some: no lab
//! outlives its keeper.

mod capture;
mod check;
pub mod command;
pub mod emulator;
pub mod faults;
mod graph;
pub mod grid;
pub mod lab;
mod presets;
pub mod probe;
pub mod process;
mod services;
pub mod state;
pub mod topology;

mod child;
mod clock;
mod enter;
mod entrance;
mod groups;
mod interface;
mod isthmus;
mod keeper;
mod machine;
mod mounts;
mod network;
mod packet_socket;
mod rootless;

pub use faults::FaultError;
pub use grid::{Grid, GridError};
pub use lab::{Lab, LabError, Machine, Options, Running};
pub use network::NetworkError;
