//! Black holes are told from servers that are well, over real sockets. The server of a black
//! hole answers connections with short segments only.

use std::net::SocketAddr;
use std::time::{Duration, SystemTime};

use isthmus_identity::credentials::{ALPN_H2, SigningRequest};
use isthmus_identity::{Authority, Credentials, Identity};
use isthmus_rpc::grpc::{self, Stage};
use isthmus_rpc::packets;
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::TcpMaxSeg;
use tokio::net::TcpListener;

fn issue(authority: &Authority, uri: &str) -> Credentials {
    let request = SigningRequest::new().unwrap();
    let identity = Identity::from_uri(uri).unwrap();
    let certificate = authority.sign_request(&identity, &request.der, SystemTime::now()).unwrap();
    Credentials::new(&request, &certificate, authority.certificate_pem(), "").unwrap()
}

/// Serves connections whose segments have at most `most` bytes, and lets others hang. `alpn` are
/// the service's protocols.
async fn serve(broker: &Credentials, alpn: &[&[u8]], most: u32) -> SocketAddr {
    let tls = broker.enrolling_server_config(alpn).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let mut hanging = Vec::new();
        while let Ok((tcp, _)) = listener.accept().await {
            if getsockopt(&tcp, TcpMaxSeg).unwrap() > most {
                hanging.push(tcp);
                continue;
            }
            let tls = tls.clone();
            tokio::spawn(async move {
                let stream = grpc::accept(tcp, tls).await.unwrap();
                assert!(packets::is_asked(&stream) || stream.get_ref().1.alpn_protocol() == Some(ALPN_H2));
                let _ = packets::serve(stream).await;
            });
        }
    });
    address
}

#[tokio::test]
async fn a_black_hole_is_named_and_nothing_else() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let broker = issue(&authority, "isthmus:///broker//broker/");
    let gateway = issue(&authority, "isthmus:///gateway/alpha//anna");
    let tls = gateway.client_config(&[packets::PROTOCOL]).unwrap();
    for (name, alpn, most, want) in [
        ("all is well", packets::PROTOCOL, u32::MAX, None),
        (
            "a hole",
            packets::PROTOCOL,
            1260,
            Some("packets above about 1280 bytes vanish on the way from broker"),
        ),
        ("a hole that is narrow", packets::PROTOCOL, 600, Some("packets above about 540 bytes vanish")),
        ("all hangs", packets::PROTOCOL, 0, None),
        ("an old service", ALPN_H2, u32::MAX, None),
    ] {
        let address = serve(&broker, &[alpn], most).await.to_string();
        let looking = packets::hole_towards(("gateway.alpha", "broker"), &address, &tls);
        // A hole is found in the end, however busy the machine is.
        let limit = Duration::from_secs(if want.is_some() { 60 } else { 8 });
        let found = tokio::time::timeout(limit, looking).await.ok().flatten();
        assert_eq!(found.is_some(), want.is_some(), "{name}: {found:?}");
        assert!(want.is_none_or(|want| found.unwrap().contains(want)), "{name}");
    }
}

#[tokio::test]
async fn a_service_connects_over_one_or_says_why_it_cannot() {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let broker = issue(&authority, "isthmus:///broker//broker/");
    let gateway = issue(&authority, "isthmus:///gateway/alpha//anna");
    let wide = serve(&broker, &[ALPN_H2], 1260).await.to_string();
    grpc::connect(&wide, "broker", &gateway).await.unwrap();
    let address = serve(&broker, &[ALPN_H2], 600).await.to_string();
    let error = grpc::connect(&address, "broker", &gateway).await.unwrap_err();
    assert_eq!(error.stage, Stage::Swallowed, "{error}");
    assert!(error.to_string().contains("packets above about 540 bytes vanish"), "{error}");
}
