//! Holds each call of a member to the member's bounds: how many are open, how long the
//! request may take to arrive, and how much of its messages has not arrived completely.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body::{Frame, SizeHint};
use isthmus_service::counters;
use tokio::time::{Instant, Sleep, sleep_until};
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Bytes;
use tonic::codegen::http::{Request, Response};
use tower::Service;
use tracing::warn;

use super::framing::Framing;
use super::members::{Call, Calls};
use super::peer::Peer;

/// How long a call's first message may take. A call with a single message has as long for its whole
/// request. The largest message, of 256 KiB, takes that long over 70 kbit/s.
const FIRST_MESSAGE: Duration = Duration::from_secs(30);
/// Calls whose callers send messages for as long as they last.
const STREAMS: [&str; 3] = ["/isthmus.v1.Registry/Attach", "/isthmus.v1.Peer/Exec", "/isthmus.v1.Peer/Pilot"];

/// Counts the calls of members, and their messages.
#[derive(Debug, Clone)]
pub(super) struct Bounded<S>(pub(super) S);

impl<S> Service<Request<Body>> for Bounded<S>
where
    S: Service<Request<Body>, Response = Response<Body>, Future: Send + 'static>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, S::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Some(peer) = request.extensions().get::<Peer>() else { return Box::pin(self.0.call(request)) };
        let call = match peer.calls.begin() {
            Ok(call) => call,
            Err(refusal) => {
                counters::refused("too many calls");
                let caller = peer.identity.as_deref().map(tracing::field::display);
                warn!(caller, address = %peer.address, reason = refusal.message(), "call refused");
                return Box::pin(async { Ok(refusal.into_http()) });
            }
        };
        let first = Wait {
            until: Instant::now() + FIRST_MESSAGE,
            // A trunk may be cut for minutes, between a call and its message, too.
            is_over: peer.trunk.is_some(),
            is_stream: STREAMS.contains(&request.uri().path()),
            sleep: None,
        };
        let calls = peer.calls.clone();
        let request = request
            .map(|body| Body::new(Arriving { body, framing: Framing::default(), held: 0, calls, first }));
        let answering = self.0.call(request);
        Box::pin(async move {
            let response = answering.await?;
            Ok(response.map(|body| Body::new(Answer { body, _call: call })))
        })
    }
}

/// The wait for a call's request.
struct Wait {
    until: Instant,
    is_over: bool,
    /// Whether the first message is enough for the wait to end.
    is_stream: bool,
    sleep: Option<Pin<Box<Sleep>>>,
}

impl Wait {
    fn over(&mut self) {
        (self.is_over, self.sleep) = (true, None);
    }

    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        if self.is_over {
            return Poll::Pending;
        }
        let until = self.until;
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(until)));
        sleep.as_mut().poll(cx).map(|()| {
            let what = if self.is_stream { "the first message" } else { "the request" };
            Status::deadline_exceeded(format!("{what} of the call has not arrived within {FIRST_MESSAGE:?}"))
        })
    }
}

/// A call's messages, counted while they are incomplete.
struct Arriving {
    body: Body,
    framing: Framing,
    held: usize,
    calls: Calls,
    first: Wait,
}

impl Arriving {
    /// Counts further bytes. An error says that the member may not send on.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Status> {
        let now = self.framing.take(bytes);
        if self.first.is_stream && self.framing.has_message() {
            self.first.over();
        }
        let before = std::mem::replace(&mut self.held, now);
        self.calls.unfinished(before, now)
    }
}

impl Drop for Arriving {
    fn drop(&mut self) {
        // Fewer bytes are never too many.
        let _ = self.calls.unfinished(self.held, 0);
    }
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.first.poll_late(cx).map(|late| Some(Err(late)));
        };
        match &frame {
            Some(Ok(frame)) => {
                if let Some(bytes) = frame.data_ref()
                    && let Err(status) = self.take(bytes)
                {
                    return Poll::Ready(Some(Err(status)));
                }
            }
            Some(Err(_)) | None => self.first.over(),
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A call's answer. The call counts until the answer has been taken.
struct Answer {
    body: Body,
    _call: Call,
}

impl http_body::Body for Answer {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::future::poll_fn;

    use http_body::Body as _;
    use tokio::sync::mpsc;

    use super::*;

    /// The body of a request: what is sent until the sender is dropped.
    struct Sent(mpsc::Receiver<Bytes>);

    impl http_body::Body for Sent {
        type Data = Bytes;
        type Error = Status;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
            self.0.poll_recv(cx).map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    /// Reads the whole request. Answers with its status.
    async fn read(request: Request<Body>) -> Result<Response<Body>, Infallible> {
        let mut body = request.into_body();
        loop {
            match poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
                Some(Ok(_)) => {}
                Some(Err(status)) => return Ok(status.into_http()),
                None => return Ok(Status::ok("").into_http()),
            }
        }
    }

    fn peer(trunk: Option<[u8; 16]>) -> Peer {
        let address = ([127, 0, 0, 1], 1).into();
        Peer { identity: None, address, local: address, trunk, calls: Calls::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_without_its_message_ends() {
        let hour = Duration::from_secs(3600);
        let (message, begun) = (&b"\0\0\0\0\x02ab"[..], &b"\0\0\0\0\x02a"[..]);
        let unary = "/isthmus.v1.Registry/Lookup";
        for (path, trunk, sent, ends, want) in [
            (unary, None, &b""[..], false, Some("the request of the call has not arrived within 30s")),
            (unary, None, begun, false, Some("the request of the call has not arrived within 30s")),
            (unary, None, message, false, Some("the request of the call has not arrived within 30s")),
            (unary, None, message, true, Some("")),
            (STREAMS[0], None, b"", false, Some("the first message of the call has not arrived within 30s")),
            (
                STREAMS[0],
                None,
                begun,
                false,
                Some("the first message of the call has not arrived within 30s"),
            ),
            // The call lasts.
            (STREAMS[0], None, message, false, None),
            // The trunk may be cut.
            (unary, Some([1; 16]), b"", false, None),
        ] {
            let (sent_tx, sent_rx) = mpsc::channel(1);
            sent_tx.send(Bytes::copy_from_slice(sent)).await.unwrap();
            let mut request = Request::new(Body::new(Sent(sent_rx)));
            *request.uri_mut() = path.parse().unwrap();
            request.extensions_mut().insert(peer(trunk));
            let sent_tx = Some(sent_tx).filter(|_| !ends);
            let answer = tokio::time::timeout(hour, Bounded(tower::service_fn(read)).call(request)).await;
            let text = answer.ok().map(|answer| {
                let status = Status::from_header_map(answer.unwrap().headers());
                status.map(|status| status.message().to_owned()).unwrap_or_default()
            });
            assert_eq!(text.as_deref(), want, "{path} {sent:?} {ends}");
            drop(sent_tx);
        }
    }

    #[tokio::test]
    async fn a_call_counts_until_its_answer_is_taken() {
        let members = super::super::members::Members::at(crate::calls::At::Broker);
        let relay = isthmus_identity::Identity::from_uri("isthmus:///relay//r1/").unwrap();
        let slot = members.connect(&relay).unwrap();
        let peer = Peer { calls: slot.calls.clone(), ..peer(None) };
        let answer = || async {
            let mut request = Request::new(Body::empty());
            request.extensions_mut().insert(peer.clone());
            // An answer that goes on.
            let answering = tower::service_fn(|_| async {
                let (_, never_rx) = mpsc::channel(1);
                Ok::<_, Infallible>(Response::new(Body::new(Sent(never_rx))))
            });
            Bounded(answering).call(request).await.unwrap()
        };
        let mut answers = Vec::new();
        while answers.len() < slot.share.calls {
            answers.push(answer().await);
        }
        let code =
            |response: &Response<Body>| Status::from_header_map(response.headers()).map(|it| it.code());
        assert!(answers.iter().all(|answer| code(answer).is_none()));
        assert_eq!(code(&answer().await), Some(tonic::Code::ResourceExhausted));
        answers.pop();
        assert_eq!(code(&answer().await), None);
    }

    #[test]
    fn streams_are_those_of_the_protocol() {
        let protocol = include_str!("../../../wire/proto/isthmus.proto");
        let (mut service, mut streams) = ("", Vec::new());
        for line in protocol.lines() {
            if let Some(name) = line.strip_prefix("service ") {
                service = name.trim_end_matches(" {");
            }
            let method = line.trim_start().strip_prefix("rpc ").and_then(|method| method.split_once('('));
            // Members don't call an agent's Unix socket.
            if let Some((method, rest)) = method.filter(|_| service != "Local")
                && rest.starts_with("stream ")
            {
                streams.push(format!("/isthmus.v1.{service}/{method}"));
            }
        }
        assert_eq!(streams, STREAMS);
    }
}
