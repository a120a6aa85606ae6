//! The wide area in one process: every emulated link is a pair of devices,
//! one in each router, and this process carries packets from one to the
//! other, late and only as fast as the link.
//!
//! The devices are TUN devices, or packet sockets on veth pairs where the user
//! has no access to TUN. They have segmentation offload switched on, so that a read gives up
//! to 64 KiB of one TCP connection at once. What the link does to it is judged
//! per segment as it would be on the wire ([`link`]), and what survives is put
//! together again ([`packet`]). Without this, one core carries no gigabit.

pub mod control;
mod device;
pub mod fidelity;
mod gaps;
pub mod link;
pub mod packet;
mod punctual;
mod run;
pub mod statistics;

pub(crate) use device::router_mac;
pub use device::{Device, DeviceError, DeviceKind};
pub use run::{Emulator, EmulatorError};
