//! gRPC over mutual TLS, end to end over loopback.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use isthmus_identity::credentials::{ALPN_H2, SigningRequest};
use isthmus_identity::{Authority, Credentials, Identity, tls};
use isthmus_rpc::calls::At;
use isthmus_rpc::grpc::{self, Stage};
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::enrolment_server::{Enrolment, EnrolmentServer};
use isthmus_wire::proto::{Certificate, EndPilotReply, EndPilotRequest, JoinRequest, RenewRequest};
use rustls::pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{mpsc, oneshot};
use tonic::service::Routes;
use tonic::{Code, Request, Response, Status};

/// A service that answers with the name of its caller; `join` needs no certificate.
struct WhoCalls;

#[tonic::async_trait]
impl Enrolment for WhoCalls {
    async fn join(&self, request: Request<JoinRequest>) -> Result<Response<Certificate>, Status> {
        let name = grpc::peer(&request).and_then(|peer| peer.identity.clone());
        let certificate_pem = name.map_or("no certificate".to_owned(), |identity| identity.to_string());
        Ok(Response::new(Certificate { certificate_pem, ..Certificate::default() }))
    }

    async fn end_pilot(&self, _: Request<EndPilotRequest>) -> Result<Response<EndPilotReply>, Status> {
        Ok(Response::new(EndPilotReply::default()))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<Certificate>, Status> {
        let certificate_pem = grpc::caller(&request)?.to_string();
        Ok(Response::new(Certificate { certificate_pem, ..Certificate::default() }))
    }
}

fn issue(authority: &Authority, uri: &str, made: SystemTime) -> Credentials {
    let request = SigningRequest::new().unwrap();
    let identity = Identity::from_uri(uri).unwrap();
    let certificate = authority.sign_request(&identity, &request.der, made).unwrap();
    Credentials::new(&request, &certificate, authority.certificate_pem(), "").unwrap()
}

struct Service {
    authority: Authority,
    address: SocketAddr,
    stop: oneshot::Sender<()>,
    ended: tokio::task::JoinHandle<()>,
}

async fn start() -> Service {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let broker = issue(&authority, "isthmus:///broker//broker/", SystemTime::now());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let tls = broker.enrolling_server_config(&[ALPN_H2]).unwrap();
    let (stop, stopped) = oneshot::channel::<()>();
    let routes = Routes::new(EnrolmentServer::new(WhoCalls));
    let ended = tokio::spawn(async move {
        grpc::serve(At::Broker, listener, tls, routes, async { drop(stopped.await) }).await.unwrap();
    });
    Service { authority, address, stop, ended }
}

impl Service {
    async fn connect(&self, credentials: &Credentials) -> EnrolmentClient<tonic::transport::Channel> {
        let channel = grpc::connect(&self.address.to_string(), "broker", credentials).await.unwrap();
        EnrolmentClient::new(channel)
    }
}

#[tokio::test]
async fn a_request_carries_its_callers_identity() {
    let service = start().await;
    let agent = issue(&service.authority, "isthmus:///agent/alpha/n1/anna", SystemTime::now());
    let mut client = service.connect(&agent).await;
    let answer = client.renew(RenewRequest::default()).await.unwrap().into_inner();
    assert_eq!(answer.certificate_pem, "agent n1.alpha");
}

#[tokio::test]
async fn without_a_certificate_only_enrolment_works() {
    let service = start().await;
    let authority = service.authority.certificate().clone();
    let channel =
        grpc::connect_unidentified(&service.address.to_string(), "broker", authority).await.unwrap();
    let mut client = EnrolmentClient::new(channel);
    assert_eq!(
        client.join(JoinRequest::default()).await.unwrap().into_inner().certificate_pem,
        "no certificate"
    );
    let refused = client.renew(RenewRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

#[tokio::test]
async fn other_grids_are_refused_on_both_sides() {
    let service = start().await;
    let elsewhere = Authority::create("elsewhere", SystemTime::now()).unwrap();
    let foreign = issue(&elsewhere, "isthmus:///agent/alpha/n1/anna", SystemTime::now());
    let error = grpc::connect(&service.address.to_string(), "broker", &foreign).await.unwrap_err();
    assert_eq!(error.stage, Stage::Handshake, "another authority signed the broker's certificate: {error}");

    let agent = issue(&service.authority, "isthmus:///agent/alpha/n1/anna", SystemTime::now());
    let error = grpc::connect(&service.address.to_string(), "gateway.alpha", &agent).await.unwrap_err();
    assert_eq!(error.stage, Stage::Misdirected, "the broker's certificate is not a gateway's: {error}");
    assert!(error.to_string().contains("that is the broker, not the gateway of site alpha"), "{error}");

    // An authority of the same name with another key: a server must refuse its
    // certificates.
    let forger = Authority::create("demo", SystemTime::now()).unwrap();
    let request = SigningRequest::new().unwrap();
    let identity = Identity::from_uri("isthmus:///admin//admin/").unwrap();
    let certificate = forger.sign_request(&identity, &request.der, SystemTime::now()).unwrap();
    let forged = Credentials::new(&request, &certificate, service.authority.certificate_pem(), "").unwrap();
    let mut client = service.connect(&forged).await;
    client.renew(RenewRequest::default()).await.unwrap_err();
}

#[tokio::test]
async fn expired_certificates_are_refused() {
    let service = start().await;
    let long_ago = SystemTime::now() - Duration::from_secs(60 * 24 * 3600);
    let agent = issue(&service.authority, "isthmus:///agent/alpha/n1/anna", long_ago);
    let mut client = service.connect(&agent).await;
    let error = client.renew(RenewRequest::default()).await.unwrap_err();
    assert!(grpc::reason(&error).contains("xpired"), "{}", grpc::reason(&error));
}

#[tokio::test]
async fn a_refused_connection_names_both_addresses_and_what_to_do() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let agent = issue(&authority, "isthmus:///agent/alpha/n1/anna", SystemTime::now());
    let free = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let error = grpc::connect(&address.to_string(), "gateway.alpha", &agent).await.unwrap_err().to_string();
    let start = format!("cannot reach gateway.alpha at {address} from 127.0.0.1: Connection refused");
    assert!(error.starts_with(&start) && error.ends_with("no firewall stands between"), "{error}");
}

#[tokio::test]
async fn shutdown_cuts_connections() {
    let service = start().await;
    let agent = issue(&service.authority, "isthmus:///agent/alpha/n1/anna", SystemTime::now());
    let mut client = service.connect(&agent).await;
    client.renew(RenewRequest::default()).await.unwrap();
    service.stop.send(()).unwrap();
    service.ended.await.unwrap();
    client.renew(RenewRequest::default()).await.unwrap_err();
}

#[tokio::test]
async fn calls_go_over_an_open_connection() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let n1 = issue(&authority, "isthmus:///agent/alpha/n1/anna", SystemTime::now());
    let n2 = issue(&authority, "isthmus:///agent/beta/n2/anna", SystemTime::now());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let (accepted, _) = listener.accept().await.unwrap();

    let client = n1.client_config(&[ALPN_H2]).unwrap().config();
    let (served, dialed) = tokio::join!(
        grpc::accept(accepted, n2.server_config(&[ALPN_H2]).unwrap()),
        tls::connect(client, ServerName::try_from("n2.beta").unwrap(), tcp),
    );
    let (streams_tx, streams_rx) = mpsc::channel(1);
    streams_tx.send(served.unwrap().into()).await.unwrap();
    let (_stop, stopped) = oneshot::channel::<()>();
    let routes = Routes::new(EnrolmentServer::new(WhoCalls));
    tokio::spawn(grpc::serve_streams(At::Agent, streams_rx, routes, async { drop(stopped.await) }));

    let mut client = EnrolmentClient::new(grpc::channel_over(dialed.unwrap()).await.unwrap());
    let answer = client.renew(RenewRequest::default()).await.unwrap().into_inner();
    assert_eq!(answer.certificate_pem, "agent n1.alpha");
}
