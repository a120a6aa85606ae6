//! What one member may take of a service at once, over all its connections.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, ready};

use http_body::{Body, Frame, SizeHint};
use tonic::Status;
use tonic::codegen::Bytes;
use tonic::codegen::http::Request;
use tower::Service;

use super::server::Peer;
use crate::{Identity, lock};

/// Connections of one member: an agent has one per job at another agent.
const CONNECTIONS: usize = 512;
/// Bytes of messages that have not arrived completely, on all calls of one member. A
/// connection may have 4,096 calls, and a message up to 4 MiB.
const UNFINISHED: usize = 64 << 20;
/// Bytes before each message: a flag, and the message's length.
const PREFIX: usize = 5;

/// The members that are connected to one server, by their identities.
#[derive(Debug, Default)]
pub(super) struct Members(Mutex<HashMap<String, Taken>>);

#[derive(Debug, Default)]
struct Taken {
    connections: usize,
    unfinished: Unfinished,
}

/// Bytes of one member's messages that have not arrived completely.
#[derive(Debug, Clone, Default)]
pub(super) struct Unfinished(Arc<AtomicUsize>);

/// One connection of a member; counted until it is dropped.
#[derive(Debug)]
pub(super) struct Slot {
    members: Arc<Members>,
    identity: String,
    pub(super) unfinished: Unfinished,
}

impl Members {
    /// Counts a connection; `None` if the member has too many.
    pub(super) fn connect(self: &Arc<Self>, identity: &Identity) -> Option<Slot> {
        let identity = identity.uri();
        let mut members = lock(&self.0);
        let taken = members.entry(identity.clone()).or_default();
        if taken.connections >= CONNECTIONS {
            return None;
        }
        taken.connections += 1;
        Some(Slot { members: self.clone(), identity, unfinished: taken.unfinished.clone() })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut members = lock(&self.members.0);
        if let Some(taken) = members.get_mut(&self.identity) {
            taken.connections -= 1;
            if taken.connections == 0 {
                members.remove(&self.identity);
            }
        }
    }
}

/// Counts the bytes of calls' messages.
#[derive(Debug, Clone)]
pub(super) struct Counting<S>(pub(super) S);

impl<S> Service<Request<tonic::body::Body>> for Counting<S>
where
    S: Service<Request<tonic::body::Body>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.0.poll_ready(cx)
    }

    fn call(&mut self, request: Request<tonic::body::Body>) -> Self::Future {
        let Some(unfinished) = request.extensions().get::<Peer>().map(|peer| peer.unfinished.clone()) else {
            return self.0.call(request);
        };
        self.0.call(request.map(|body| {
            tonic::body::Body::new(Counted { body, framing: Framing::default(), held: 0, unfinished })
        }))
    }
}

/// A call's messages, counted while they are incomplete.
struct Counted {
    body: tonic::body::Body,
    framing: Framing,
    held: usize,
    unfinished: Unfinished,
}

impl Counted {
    /// Whether the member may send on.
    fn take(&mut self, bytes: &[u8]) -> Result<(), Status> {
        let now = self.framing.take(bytes);
        let total = &self.unfinished.0;
        if now > self.held {
            total.fetch_add(now - self.held, Relaxed);
        } else {
            total.fetch_sub(self.held - now, Relaxed);
        }
        self.held = now;
        if now > 0 && total.load(Relaxed) > UNFINISHED {
            return Err(Status::resource_exhausted(format!(
                "this identity has more than {UNFINISHED} bytes of messages under way"
            )));
        }
        Ok(())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.unfinished.0.fetch_sub(self.held, Relaxed);
    }
}

impl Body for Counted {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
            && let Err(status) = self.take(bytes)
        {
            return Poll::Ready(Some(Err(status)));
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

/// Finds the ends of the messages in the bytes of a call.
#[derive(Debug, Default)]
struct Framing {
    prefix: [u8; PREFIX],
    prefix_bytes: usize,
    /// Bytes of the current message that arrived.
    arrived: usize,
    left: usize,
}

impl Framing {
    /// Takes further bytes. Returns how many of the current message have arrived; 0
    /// if it is complete.
    fn take(&mut self, mut bytes: &[u8]) -> usize {
        while let Some((first, rest)) = bytes.split_first() {
            if self.prefix_bytes < PREFIX {
                self.prefix[self.prefix_bytes] = *first;
                self.prefix_bytes += 1;
                bytes = rest;
                let [_, length @ ..] = self.prefix;
                self.left = u32::from_be_bytes(length) as usize;
            } else {
                let part = self.left.min(bytes.len());
                self.left -= part;
                self.arrived += part;
                bytes = &bytes[part..];
            }
            if self.prefix_bytes == PREFIX && self.left == 0 {
                *self = Self::default();
            }
        }
        self.arrived
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_members_connections_are_bounded() {
        let members = Arc::new(Members::default());
        let [n1, n2] = ["isthmus:///agent/alpha/n1/anna", "isthmus:///agent/alpha/n2/anna"]
            .map(|uri| Identity::from_uri(uri).unwrap());
        let mut slots: Vec<_> = (0..CONNECTIONS).map(|_| members.connect(&n1).unwrap()).collect();
        assert!(members.connect(&n1).is_none() && members.connect(&n2).is_some());
        slots.pop();
        assert!(members.connect(&n1).is_some());
        slots.clear();
        assert!(lock(&members.0).is_empty());
    }

    #[test]
    fn incomplete_messages_of_one_member_are_bounded() {
        let unfinished = Unfinished::default();
        let mebibyte = vec![0; 1 << 20];
        let call = || {
            let (body, framing) = (tonic::body::Body::empty(), Framing::default());
            let mut call = Counted { body, framing, held: 0, unfinished: unfinished.clone() };
            call.take(&[0, 0, 32, 0, 0]).unwrap();
            let taken = call.take(&mebibyte);
            (call, taken)
        };
        let mut calls: Vec<_> = (0..UNFINISHED >> 20).map(|_| call()).collect();
        assert!(calls.iter().all(|(_, taken)| taken.is_ok()));
        assert!(call().1.is_err());
        // A complete message is no longer counted.
        calls[0].0.take(&mebibyte).unwrap();
        assert!(call().1.is_ok());
        drop(calls);
        assert_eq!(unfinished.0.load(Relaxed), 0);
    }

    proptest! {
        /// However the bytes are cut, only those of the last, incomplete message count.
        #[test]
        fn messages_end_where_their_lengths_say(
            lengths in prop::collection::vec(0..40_usize, 0..8),
            rest in 0..40_usize,
            cuts in prop::collection::vec(1..20_usize, 0..200),
        ) {
            let mut bytes = Vec::new();
            for length in &lengths {
                bytes.extend([0, 0, 0, 0, u8::try_from(*length).unwrap()]);
                bytes.extend(vec![1; *length]);
            }
            bytes.extend([0, 0, 0, 0, 40]);
            bytes.extend(vec![1; rest]);
            let mut framing = Framing::default();
            let mut left = bytes.as_slice();
            for cut in cuts {
                let (part, after) = left.split_at(cut.min(left.len()));
                framing.take(part);
                left = after;
            }
            prop_assert_eq!(framing.take(left), rest);
        }
    }
}
