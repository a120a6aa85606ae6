//! Schedulers that are really there, each in namespaces of its own.

mod cluster;
mod grid_engine;
mod hosts;
mod slurm;
