//! Pools in a simulated network: members come, go and are cut off at any moment.

mod losses;
mod speed;
mod world;
