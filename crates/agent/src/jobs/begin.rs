//! Begins a job at a node.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use isthmus_service::exhausted;
use isthmus_wire::settings::{Host, Settings};
use isthmus_wire::{GridName, JobId, VirtualAddress};
use tonic::Status;
use tracing::info;

use crate::accepting::past;
use crate::carrying::{persist, shim_socket};
use crate::jobs::job::{Job, Terms, known_hosts};
use crate::jobs::job_directory::{JobDirectory, MPI_LIBRARY};
use crate::jobs::news::NewsReceiver;
use crate::jobs::node::{Facilities, Node};
use crate::jobs::part;
use crate::observing::{links, ranks};

/// Why a job can't begin here.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BeginError {
    /// The job runs here already.
    #[error("the job runs on {0} already")]
    Twice(GridName),
    /// The node has no virtual address yet.
    #[error("the agent of {0} is not attached to its gateway")]
    NotAttached(GridName),
    /// This node, at its present address, isn't among the job's nodes.
    #[error("{0} at {1} is not among the job's nodes; did it get a new address?")]
    NotMeant(GridName, VirtualAddress),
    /// The agent is being stopped.
    #[error("the agent of {0} is being stopped")]
    Stopping(GridName),
    /// The MPI library isn't installed here.
    #[error(
        "{0} has no {MPI_LIBRARY} beside the preloaded library: install isthmus there anew, or give --no-coll"
    )]
    NoLibrary(GridName),
    /// The job's directory can't be made.
    #[error("cannot make the job's directory in {} on {node}: {}", .within.display(), exhausted::text(.error))]
    Directory { node: GridName, within: PathBuf, error: io::Error },
}

impl From<BeginError> for Status {
    fn from(error: BeginError) -> Self {
        use BeginError::{Directory, NoLibrary, NotAttached, NotMeant, Stopping, Twice};
        match &error {
            // The agent was just started, or is about to be started again.
            NotAttached(_) | NotMeant(..) | Stopping(_) => Self::unavailable(error.to_string()),
            Twice(_) | NoLibrary(_) | Directory { .. } => Self::failed_precondition(error.to_string()),
        }
    }
}

/// Begins a job here. The receiver gets the job's
/// news for the head.
///
/// # Errors
/// [`BeginError`].
pub(crate) fn begin(
    node: &Arc<Node>,
    id: JobId,
    terms: Terms,
    nodes: Vec<Host>,
) -> Result<(Arc<Job>, NewsReceiver), BeginError> {
    let name = node.name().clone();
    let own = node.own_address().ok_or_else(|| BeginError::NotAttached(name.clone()))?;
    if !nodes.iter().any(|node| node.name == name && node.address == own) {
        return Err(BeginError::NotMeant(name, own));
    }
    let Facilities { shim, isthmus, local_socket, interface, .. } = node.facilities();
    let connect_limits = persist::limits(terms.outlive);
    let settings = Settings {
        virtual_address: own,
        name: name.clone(),
        interface: interface.clone(),
        black_hole_port: node.black_hole_port(),
        connect_limits,
        hosts: known_hosts(&nodes, &terms.partners),
    };
    let topology = terms.topology.as_ref().map(|topology| topology.file(&nodes, &name));
    if topology.is_some() && !shim.with_file_name(MPI_LIBRARY).is_file() {
        return Err(BeginError::NoLibrary(name));
    }
    let within = local_socket.parent().unwrap_or(local_socket);
    let failed = |error| BeginError::Directory { node: name.clone(), within: within.to_owned(), error };
    let make = || {
        if node.is_stopping() {
            return Err(BeginError::Stopping(name.clone()));
        }
        let directory =
            JobDirectory::create(id, (settings, topology.as_deref()), shim, isthmus, local_socket)
                .map_err(failed)?;
        let listener = shim_socket::bind(&directory.socket()).map_err(failed)?;
        let (job, news_rx) = Job::new(id, terms, connect_limits, nodes, name.clone(), directory);
        Ok((Arc::new(job), (listener, news_rx)))
    };
    let (job, (listener, news_rx)) =
        node.add(id, make).map_err(|error| error.unwrap_or_else(|| BeginError::Twice(name.clone())))?;
    let serving = shim_socket::serve(node.clone(), job.clone(), listener);
    part::spawn(node, &job, "the job's socket", serving);
    tokio::spawn(links::follow(node.clone(), job.clone()));
    tokio::spawn(ranks::look::follow(job.clone()));
    tokio::spawn(past::follow(node.clone(), job.clone()));
    info!(job = %job.id, nodes = job.members.nodes.len(), "job begins");
    Ok((job, news_rx))
}
