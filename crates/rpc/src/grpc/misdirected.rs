//! Says of a server that is another one than meant who it is.

use std::io;

use rustls::{CertificateError, Error};

/// Why a handshake failed, if it failed because the server is another service of the grid; names
/// that service.
pub(super) fn reason(error: &io::Error, wanted: &str) -> Option<String> {
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    let Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }) = error else {
        return None;
    };
    let found = presented.iter().find_map(|name| name.strip_prefix("DnsName(\"")?.strip_suffix("\")"))?;
    Some(format!("that is {}, not {}", words(found), words(wanted)))
}

/// The words for a TLS name, such as "the gateway of site beta".
fn words(server_name: &str) -> String {
    match server_name.split_once('.') {
        Some(("gateway", site)) => format!("the gateway of site {site}"),
        _ => format!("the {server_name}"),
    }
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::ServerName;

    use super::*;

    #[test]
    fn another_service_is_named() {
        let wrong = |presented: &[&str]| {
            let expected = ServerName::try_from("gateway.alpha").unwrap();
            let presented = presented.iter().map(|name| (*name).to_owned()).collect();
            Error::InvalidCertificate(CertificateError::NotValidForNameContext { expected, presented })
        };
        let beta = "that is the gateway of site beta, not the gateway of site alpha";
        for (error, want) in [
            (wrong(&["DnsName(\"gateway.beta\")", "DnsName(\"x.beta\")"]), Some(beta)),
            (wrong(&["DnsName(\"broker\")"]), Some("that is the broker, not the gateway of site alpha")),
            (wrong(&[]), None),
            (Error::InvalidCertificate(CertificateError::UnknownIssuer), None),
            (Error::HandshakeNotComplete, None),
        ] {
            let text = format!("{error:?}");
            let error = io::Error::new(io::ErrorKind::InvalidData, error);
            assert_eq!(reason(&error, "gateway.alpha").as_deref(), want, "{text}");
        }
        assert_eq!(reason(&io::ErrorKind::TimedOut.into(), "broker"), None);
    }
}
