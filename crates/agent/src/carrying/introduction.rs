//! Introduces a connection of a job to another node's agent: by a preamble with an
//! HMAC by the job's token.

use std::io;
use std::time::Duration;

use isthmus_reach::carrier::Carrier;
use isthmus_reach::{Introduction, Unaccepted};
use isthmus_rpc::connection;
use isthmus_service::mac::Secret;
use isthmus_wire::preamble::{ANSWER_LEN, Answer, Preamble, Status};

use crate::carrying::agent_connection::Messages;

/// How long an acceptor's final answer may take: its own deadline for knocking, and
/// a margin for the network.
const FINAL_DEADLINE: Duration = Duration::from_secs(15);

#[derive(Debug)]
pub(crate) struct JobIntroduction<'a> {
    token: &'a Secret,
    preamble: Preamble,
    waits: bool,
}

impl<'a> JobIntroduction<'a> {
    /// The introduction of the connection that `preamble` names. Each attempt sets a nonce of its
    /// own.
    pub(crate) fn new(token: &'a Secret, preamble: Preamble) -> Self {
        Self { token, preamble, waits: false }
    }

    /// Waits for the final answer, if the first answer was [`Status::Waiting`].
    ///
    /// # Errors [`Unaccepted::Final`], unless the final status is [`Status::Connected`];
    /// [`Unaccepted::Next`] if no answer comes: the way there may be cut.
    pub(crate) async fn settle(&self, connection: &mut impl Messages) -> Result<(), Unaccepted> {
        if !self.waits {
            return Ok(());
        }
        let ends = connection.ends();
        let answered = tokio::time::timeout(FINAL_DEADLINE, self.answer(connection)).await;
        let late = |_| Unaccepted::Next(format!("{ends}: no final answer within {FINAL_DEADLINE:?}"));
        match answered.map_err(late)?? {
            Status::Connected => Ok(()),
            status => Err(Unaccepted::Final(status)),
        }
    }

    async fn answer(&self, connection: &mut impl Messages) -> Result<Status, Unaccepted> {
        let failed = |ends: &str, reason: String| Unaccepted::Next(format!("{ends}: {reason}"));
        let ends = connection.ends();
        let bytes =
            connection.receive::<{ ANSWER_LEN }>().await.map_err(|error| failed(&ends, broken(&error)))?;
        let (answer, mac) = Answer::decode(&bytes).map_err(|error| failed(&ends, error.to_string()))?;
        match answer.status {
            // Any party can send these answers without the token, so the next step is tried.
            Status::UnknownJob | Status::Denied | Status::WrongNode => {
                Err(failed(&ends, answer.status.to_string()))
            }
            _ if !self.token.verify(&answer.signed_bytes(&self.preamble.nonce), &mac) => {
                Err(failed(&ends, "the answer is not from an agent of this job".to_owned()))
            }
            status => Ok(status),
        }
    }

    /// Introduces the connection, and reads the first answer.
    ///
    /// # Errors
    /// [`Unaccepted`].
    pub(crate) async fn introduce_over(&mut self, connection: &mut impl Messages) -> Result<(), Unaccepted> {
        // An acceptor accepts each nonce once.
        self.preamble.nonce = connection::new_nonce();
        let sent = connection.send(&self.token.seal_preamble(&self.preamble)).await;
        sent.map_err(|error| Unaccepted::Next(format!("{}: {}", connection.ends(), broken(&error))))?;
        let status = self.answer(connection).await?;
        self.waits = status == Status::Waiting;
        match status {
            Status::Connected | Status::Waiting => Ok(()),
            refused => Err(Unaccepted::Final(refused)),
        }
    }
}

#[tonic::async_trait]
impl Introduction for JobIntroduction<'_> {
    async fn introduce(&mut self, carrier: &mut Carrier) -> Result<(), Unaccepted> {
        self.introduce_over(carrier).await
    }
}

fn broken(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::UnexpectedEof => "the other side closed the connection without an answer".to_owned(),
        _ => error.to_string(),
    }
}
