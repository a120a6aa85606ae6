//! Whether an agent is at the other end of a stream that others carry. The gateways of a site trunk
//! give no answer when they open a stream. The stream has no TLS either that would show who is
//! there. A trunk of two agents may be cut.

use std::net::Ipv4Addr;
use std::time::Duration;

use isthmus_rpc::connection;
use isthmus_service::Deadline;
use isthmus_wire::JobId;
use isthmus_wire::preamble::{ANSWER_LEN, Answer, PREAMBLE_LEN, Preamble};

use crate::attempt::StepError;
use crate::carrier::Carrier;

/// How long the other agent may take to answer.
const ANSWER: Duration = Duration::from_secs(10);
/// The id of no job; the ids of jobs are random.
const NO_JOB: JobId = JobId([0; 16]);

/// The preamble of a job that nobody runs. An agent answers it with an [`Answer`] in any case.
pub fn question(destination: Ipv4Addr) -> [u8; PREAMBLE_LEN] {
    let preamble = Preamble {
        job: NO_JOB,
        nonce: connection::new_nonce(),
        source: Ipv4Addr::UNSPECIFIED,
        source_port: 0,
        destination,
        destination_port: 0,
    };
    preamble.encode(&[0; 32])
}

/// Has the agent of the destination answer, by a preamble of a job that nobody runs.
///
/// # Errors
/// If the agent gives no answer by the deadline.
pub(crate) async fn answered(
    carrier: &mut Carrier,
    destination: Ipv4Addr,
    deadline: Deadline,
) -> Result<(), StepError> {
    let ends = carrier.ends();
    let asking = async {
        carrier.send(&question(destination)).await?;
        carrier.receive::<ANSWER_LEN>().await
    };
    let answer = deadline.part(ANSWER).bound(asking).await;
    let answer = answer.map_err(|late| StepError::next(format!("{ends}: {late}")))?;
    let answer = answer.map_err(|error| StepError::next(format!("{ends}: {error}")))?;
    Answer::decode(&answer).map(drop).map_err(|error| StepError::next(format!("{ends}: {error}")))
}
