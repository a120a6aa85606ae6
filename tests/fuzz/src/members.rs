//! Names, identities and join tokens.

use arbitrary::{Arbitrary, Unstructured};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isthmus_identity::Identity;
use isthmus_identity::token::{BearerToken, JoinToken};
use isthmus_wire::GridName;

/// Length of the longest grid name: two labels and the dot between them.
const LONGEST: usize = 63 + 1 + 63;

/// Grid names: what is read is printed as the same text but for case, and reads the same again.
pub fn grid_name(bytes: &[u8]) {
    let text = crate::text(bytes);
    if let Ok(name) = text.parse::<GridName>() {
        let printed = name.to_string();
        assert!(printed.len() <= LONGEST && printed.eq_ignore_ascii_case(text));
        assert_eq!(printed.parse(), Ok(name));
    }
}

/// Identities in certificates, and their URIs: a URI that is read reads the same when written.
pub fn identity(bytes: &[u8]) {
    let _ = Identity::from_certificate(bytes);
    if let Ok(identity) = Identity::from_uri(crate::text(bytes)) {
        assert_eq!(Identity::from_uri(&identity.uri()), Ok(identity));
    }
}

#[derive(Debug, Arbitrary)]
struct Parts<'a> {
    authority: &'a [u8],
    broker: &'a str,
    expires_unix_seconds: u64,
    id: &'a [u8],
    role: &'a str,
    name: Option<&'a str>,
    owner: Option<&'a str>,
    secret: &'a [u8],
}

#[derive(Debug, Arbitrary)]
enum Token<'a> {
    Text(&'a str),
    Payload { json: &'a [u8], secret: &'a [u8] },
    Parts(Parts<'a>),
}

/// Join tokens as text. They are also made of arbitrary parts, which gets past the base64.
pub fn join_token(bytes: &[u8]) {
    let token = match Token::arbitrary_take_rest(Unstructured::new(bytes)) {
        Ok(Token::Text(text)) => text.to_owned(),
        Ok(Token::Payload { json, secret }) => encode(json, secret),
        Ok(Token::Parts(parts)) => {
            let json = serde_json::json!({
                "id": URL_SAFE_NO_PAD.encode(parts.id),
                "grid": "demo",
                "role": parts.role,
                "site": "alpha",
                "name": parts.name,
                "owner": parts.owner,
                "expires_unix_seconds": parts.expires_unix_seconds,
                "broker": parts.broker,
                "authority": URL_SAFE_NO_PAD.encode(parts.authority),
            });
            encode(json.to_string().as_bytes(), parts.secret)
        }
        Err(_) => return,
    };
    // The token is read as by its bearer, and its public part as by gateways and the broker.
    let _ = BearerToken::read(&token);
    let public = token.rsplitn(3, '.').nth(2).unwrap_or_default();
    for public in [token.as_str(), public] {
        if let Ok(token) = JoinToken::read(public) {
            // A new name is accepted or refused.
            let _ = token.identity("n1".parse().ok(), false);
        }
    }
}

fn encode(json: &[u8], secret: &[u8]) -> String {
    let (json, secret) = (URL_SAFE_NO_PAD.encode(json), URL_SAFE_NO_PAD.encode(secret));
    format!("isthmus-token-1.{json}.{secret}.check")
}
