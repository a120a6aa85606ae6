//! Two sessions in memory, and streams over sockets.

mod sessions;
mod streams;

use std::sync::Arc;
use std::time::SystemTime;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ServerConfig};

use super::Session;
use crate::credentials::SigningRequest;
use crate::{Authority, Credentials, Identity};

/// A client's and a server's configuration.
type Configs = (Arc<ClientConfig>, Arc<ServerConfig>);

fn issue(authority: &Authority, uri: &str) -> Credentials {
    let request = SigningRequest::new().unwrap();
    let identity = Identity::from_uri(uri).unwrap();
    let pem = authority.sign_request(&identity, &request.der, SystemTime::now()).unwrap();
    Credentials::new(&request, &pem, authority.certificate_pem(), "").unwrap()
}

fn configs() -> Configs {
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let client = issue(&authority, "isthmus:///agent/alpha/n1/anna").client_config(&[b"x"]).unwrap();
    let server = issue(&authority, "isthmus:///agent/beta/n2/anna").server_config(&[b"x"]).unwrap();
    (client.config(), server.config())
}

/// A server of this grid, and a client that trusts it and is of another grid.
fn strangers() -> Configs {
    let other = Authority::create("other", SystemTime::now()).unwrap();
    let (request, identity) =
        (SigningRequest::new().unwrap(), Identity::from_uri("isthmus:///agent/alpha/n1/anna").unwrap());
    let pem = other.sign_request(&identity, &request.der, SystemTime::now()).unwrap();
    let authority = Authority::create("demo", SystemTime::now()).unwrap();
    let client = Credentials::new(&request, &pem, authority.certificate_pem(), "").unwrap();
    let server = issue(&authority, "isthmus:///agent/beta/n2/anna").server_config(&[b"x"]).unwrap();
    (client.client_config(&[b"x"]).unwrap().config(), server.config())
}

fn name() -> ServerName<'static> {
    ServerName::try_from("n2.beta").unwrap()
}

fn new((client, server): &Configs) -> (Session, Session) {
    (Session::client(client.clone(), name()).unwrap(), Session::server(server.clone()).unwrap())
}

fn filled(length: usize) -> Vec<u8> {
    (0..length).map(|index| ((index * 7) >> 2) as u8).collect()
}
