//! What commands of batch schedulers write.

use isthmus_batch::{grid_engine, hosts, slurm};
use isthmus_slurm::expand;

/// Outputs of Slurm, Grid Engine and plain hosts. Nothing that they say makes their readers panic,
/// and a list of nodes has no more than a cluster can have.
pub fn schedulers(bytes: &[u8]) {
    let text = crate::text(bytes);
    let _ = (slurm::parse::queue(text), slurm::parse::described(text), slurm::parse::accounts(text));
    let _ = (slurm::parse::capacity(text), slurm::parse::job_id(text), slurm::parse::estimate(text));
    let _ = (slurm::parse::trouble(text), slurm::parse::out_of_service(text));
    if let Ok(nodes) = expand(text) {
        assert!(nodes.len() <= 65_536);
    }
    let _ = (
        grid_engine::parse::jobs(text),
        grid_engine::parse::described(text),
        grid_engine::parse::job_id(text),
    );
    let _ = (grid_engine::parse::account(text, "1", "pilot"), grid_engine::parse::environment(text));
    let known = grid_engine::parse::hosts(text).unwrap_or_default();
    let _ = grid_engine::parse::capacity(text, &known);
    let _ = hosts::parse::looked(text);
}
