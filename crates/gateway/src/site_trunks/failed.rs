//! Why there is no trunk to a gateway, or no stream.

use std::sync::Arc;
use std::time::Duration;

use isthmus_carry::trunk::OpenError;
use isthmus_plan::Remedy;
use isthmus_reach::ReachError;
use isthmus_rpc::grpc;
use isthmus_wire::GridName;
use tonic::Status;

/// Why a trunk can't be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoTrunk {
    #[error(transparent)]
    Unreached(#[from] ReachError),
    #[error("no carrier within {0:?}")]
    Late(Duration),
    /// The other end has said no HELLO.
    #[error("{0}")]
    Silent(String),
}

impl NoTrunk {
    /// What a person can do about it.
    fn remedy(&self) -> Option<Remedy> {
        match self {
            Self::Unreached(error) => error.remedy(),
            Self::Late(_) | Self::Silent(_) => None,
        }
    }
}

/// Why there is no stream to a gateway.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum NoStream {
    #[error("no trunk with gateway {0}: {1}")]
    NoTrunk(GridName, Arc<NoTrunk>),
    #[error("the trunk with gateway {gateway} has been cut for {} s", .cut.as_secs())]
    Cut { gateway: GridName, cut: Duration },
    #[error("all streams of the {trunks} trunks with gateway {gateway} are in use")]
    AllInUse { gateway: GridName, trunks: usize },
    /// The trunk has ended meanwhile.
    #[error(transparent)]
    Ended(#[from] OpenError),
}

impl From<NoStream> for Status {
    fn from(error: NoStream) -> Self {
        let remedy = match &error {
            NoStream::NoTrunk(_, error) => error.remedy(),
            NoStream::Cut { .. } | NoStream::AllInUse { .. } | NoStream::Ended(_) => None,
        };
        grpc::with_remedy(Self::unavailable(error.to_string()), remedy)
    }
}
