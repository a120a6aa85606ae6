//! Two agents are spliced by the tickets that the broker makes, and their connection
//! outlives the broker.

use std::time::SystemTime;

use isthmus_broker::state::{ADMIN_DIRECTORY, State};
use isthmus_identity::{Credentials, Identity, Role};
use isthmus_relay::RelayConfig;
use isthmus_rpc::grpc;
use isthmus_wire::proto::administration_client::AdministrationClient;
use isthmus_wire::proto::registry_client::RegistryClient;
use isthmus_wire::proto::{RendezvousRequest, RevokeRequest, rendezvous_request};
use tokio::net::TcpListener;

use crate::grid::{
    Site, alone, assert_joined, in_time, issue, meet, relays, start_broker, start_relay, until,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_spliced_connection_outlives_the_broker() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let state = State::create(directory, "demo", &address.to_string(), SystemTime::now()).unwrap();
    let nodes = ["alpha", "beta"].map(|site| {
        let uri = format!("isthmus:///agent/{site}/n1/ada");
        Identity::from_uri(&uri).unwrap()
    });
    isthmus_broker::enrol_without_tokens(&state, &nodes).await.unwrap();
    let broker = start_broker(directory, address).await;
    let (relay, listening) = start_relay(issue(&state, Role::Relay, None, Some("r1"))).await;
    until(directory, "the relay is known", |relay| {
        relay.up && relay.name == "r1" && relay.address == listening.to_string()
    })
    .await;

    let mut alpha = Site::attach(&state, "alpha").await;
    let mut beta = Site::attach(&state, "beta").await;
    let (mut initiator, mut acceptor) = meet(&mut alpha, &mut beta).await;
    assert_joined(&mut initiator, &mut acceptor).await;
    until(directory, "a report of the connection", |relay| relay.connections == 1 && relay.bytes == 8).await;

    drop((alpha, beta));
    broker.stop().await;
    assert_joined(&mut acceptor, &mut initiator).await;

    let broker = start_broker(directory, address).await;
    until(directory, "the relay is known again", |relay| relay.up && relay.name == "r1").await;
    assert_joined(&mut initiator, &mut acceptor).await;
    let mut alpha = Site::attach(&state, "alpha").await;
    let mut beta = Site::attach(&state, "beta").await;
    let (mut second_initiator, mut second_acceptor) = meet(&mut alpha, &mut beta).await;
    assert_joined(&mut second_initiator, &mut second_acceptor).await;

    drop((alpha, beta));
    relay.stop().await;
    broker.stop().await;
}

/// The broker refuses a revoked relay, before and after the broker's restart. The relay gets no
/// further connections. The connections that it carries go on until their ends close them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revoked_relay_gets_no_further_connections() {
    let directory = tempfile::tempdir().unwrap();
    let directory = directory.path();
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let state = State::create(directory, "demo", &address.to_string(), SystemTime::now()).unwrap();
    let members = ["agent/alpha/n1/ada", "agent/beta/n1/ada", "relay//r1/"];
    let members = members.map(|path| Identity::from_uri(&format!("isthmus:///{path}")).unwrap());
    isthmus_broker::enrol_without_tokens(&state, &members).await.unwrap();
    let broker = start_broker(directory, address).await;
    let credentials = issue(&state, Role::Relay, None, Some("r1"));
    let (relay, _) = start_relay(credentials.clone()).await;
    until(directory, "the relay is known", |relay| relay.up && relay.name == "r1").await;
    let mut alpha = Site::attach(&state, "alpha").await;
    let mut beta = Site::attach(&state, "beta").await;
    let (mut initiator, mut acceptor) = meet(&mut alpha, &mut beta).await;
    assert_joined(&mut initiator, &mut acceptor).await;

    let admin = Credentials::load(&directory.join(ADMIN_DIRECTORY)).unwrap();
    let channel = grpc::connect(admin.upstream(), "broker", &admin).await.unwrap();
    let request = RevokeRequest { name: "r1.relay".to_owned(), ..RevokeRequest::default() };
    in_time("an answer", AdministrationClient::new(channel).revoke(request)).await.unwrap();
    assert_eq!(relays(directory).await, [], "at once");
    let request = RendezvousRequest {
        destination: beta.virtual_address,
        initiator: alpha.virtual_address,
        way: Some(rendezvous_request::Way::Relay(rendezvous_request::Relay::default())),
        ..RendezvousRequest::default()
    };
    let refused = alpha.client.rendezvous(request).await.unwrap_err();
    assert!(refused.message().contains("no relay is attached"), "{refused}");
    assert_joined(&mut acceptor, &mut initiator).await;

    drop((alpha, beta));
    broker.stop().await;
    let broker = start_broker(directory, address).await;
    let channel = grpc::connect(credentials.upstream(), "broker", &credentials).await.unwrap();
    let mut client = RegistryClient::new(channel);
    in_time("an answer", client.attach(tokio_stream::empty())).await.unwrap_err();
    assert_eq!(relays(directory).await, []);
    assert_joined(&mut initiator, &mut acceptor).await;
    relay.stop().await;
    broker.stop().await;
}

#[tokio::test]
async fn a_relay_does_not_start_with_wrong_settings() {
    let directory = tempfile::tempdir().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let broker = taken.local_addr().unwrap().to_string();
    let state = State::create(directory.path(), "demo", &broker, SystemTime::now()).unwrap();
    let here = || RelayConfig { listen: "127.0.0.1:0".parse().unwrap(), ..RelayConfig::default() };
    let relay = || issue(&state, Role::Relay, None, Some("r1"));
    for (name, config, credentials, want) in [
        ("another role", here(), issue(&state, Role::Gateway, Some("alpha"), None), "not of a relay"),
        (
            "a port that is taken",
            RelayConfig { listen: taken.local_addr().unwrap(), ..here() },
            relay(),
            "cannot listen on 127.0.0.1:",
        ),
        (
            "nowhere that agents could reach",
            RelayConfig { listen: "0.0.0.0:0".parse().unwrap(), ..here() },
            relay(),
            "and agents can't reach it at either: set `address",
        ),
    ] {
        let running = isthmus_relay::run(config, credentials, alone(), |_| (), std::future::pending());
        let error = in_time(name, running).await.expect_err(name).to_string();
        assert!(error.contains(want), "{name}: {error}");
    }
}
