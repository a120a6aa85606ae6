//! What one member may take of a service: connections, open calls.

use std::time::Duration;

use isthmus_identity::Credentials;
use isthmus_identity::credentials::ALPN_H2;
use isthmus_identity::tls::Stream;
use isthmus_rpc::grpc;
use isthmus_wire::proto::RenewRequest;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use tokio::io::AsyncWriteExt as _;
use tokio::time::{sleep, timeout};
use tonic::Code;
use tonic::transport::Channel;

use crate::flood::{SOON, Service, issue, next_frame, until_closed};
use crate::frames::{HEADERS, PING, SETTINGS, call, frame};

const RENEW: &str = "/isthmus.v1.Enrolment/Renew";
/// Most connections of a relay at the broker; [`CALLS`] is the most open calls.
const CONNECTIONS: usize = 8;
const CALLS: usize = 16;

fn relay(service: &Service, name: &str) -> Credentials {
    issue(&service.authority, &format!("isthmus:///relay//{name}/"))
}

impl Service {
    async fn member(&self, credentials: &Credentials) -> Stream {
        self.tls(credentials.client_config(&[ALPN_H2]).unwrap().config(), [127, 0, 0, 1]).await
    }

    async fn client(&self, credentials: &Credentials) -> EnrolmentClient<Channel> {
        EnrolmentClient::new(grpc::connect(&self.address.to_string(), "broker", credentials).await.unwrap())
    }
}

/// Sends calls without a message, and waits until the service has them. The service answers a ping
/// that follows.
async fn open(stream: &mut Stream, calls: impl Iterator<Item = u32>) {
    for number in calls {
        stream.write_all(&call(2 * number + 1, RENEW)).await.unwrap();
    }
    stream.write_all(&frame(PING, 0, 0, &[7; 8])).await.unwrap();
    stream.flush().await.unwrap();
    let answered = async { while next_frame(stream).await.unwrap() != (PING, vec![7; 8]) {} };
    timeout(SOON, answered).await.unwrap();
}

async fn renew(client: &mut EnrolmentClient<Channel>) -> Code {
    let renewing = client.renew(RenewRequest::default());
    timeout(SOON, renewing).await.unwrap().map_or_else(|status| status.code(), |_| Code::Ok)
}

/// 60 connections with 4,032 calls each took 2 GB of a broker, with the key of any agent.
#[tokio::test]
async fn open_calls_of_one_member_are_bounded_over_all_its_connections() {
    let service = Service::start().await;
    let (greedy, other) = (relay(&service, "r1"), relay(&service, "r2"));
    let mut held = Vec::new();
    for _ in 0..2 {
        let mut stream = service.member(&greedy).await;
        open(&mut stream, 0..u32::try_from(CALLS / 2).unwrap()).await;
        held.push(stream);
    }
    let mut client = service.client(&greedy).await;
    assert_eq!(renew(&mut client).await, Code::ResourceExhausted);
    assert_eq!(renew(&mut service.client(&other).await).await, Code::Ok, "another member");
    // The calls beyond the bound are answered at once, however many there are.
    let mut third = service.member(&greedy).await;
    let count = 1000;
    let asking = async {
        for number in 0..count {
            third.write_all(&call(2 * number + 1, RENEW)).await.unwrap();
            third.flush().await.unwrap();
            while next_frame(&mut third).await.unwrap().0 != HEADERS {}
        }
    };
    timeout(SOON, asking).await.expect("a call beyond the bound is open");
    // What has ended no longer counts.
    drop((held.pop(), third));
    let counted = async {
        while renew(&mut client).await != Code::Ok {
            sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(SOON, counted).await.expect("calls count after their connection has ended");
}

#[tokio::test]
async fn a_member_with_many_connections_loses_those_without_a_call() {
    let service = Service::start().await;
    let member = relay(&service, "r1");
    let mut attached = service.member(&member).await;
    open(&mut attached, 0..1).await;
    let mut idle = service.member(&member).await;
    assert_eq!(next_frame(&mut idle).await.unwrap().0, SETTINGS);
    let mut held = Vec::new();
    for _ in 2..CONNECTIONS {
        let mut stream = service.member(&member).await;
        open(&mut stream, 0..1).await;
        held.push(stream);
    }
    // One connection too many: the connection without a call makes room.
    let mut client = service.client(&member).await;
    assert_eq!(renew(&mut client).await, Code::Ok);
    until_closed(&mut idle).await;
    let mut last = service.member(&member).await;
    open(&mut last, 0..1).await;
    // Now each has a call, and the next connection is refused.
    let mut refused = service.member(&member).await;
    let kinds = until_closed(&mut refused).await;
    assert!(!kinds.contains(&SETTINGS), "{kinds:?}");
    open(&mut attached, 1..2).await;
}
