//! Join tokens as text, and again with the three parts made of arbitrary
//! bytes, which gets past the base64.
#![no_main]

use arbitrary::Arbitrary;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isthmus_net::token::JoinToken;
use libfuzzer_sys::fuzz_target;

#[derive(Debug, Arbitrary)]
struct Parts<'a> {
    authority: &'a [u8],
    broker: &'a str,
    expires_unix_seconds: u64,
    id: &'a [u8],
    role: &'a str,
    name: Option<&'a str>,
    owner: Option<&'a str>,
    signature: &'a [u8],
}

#[derive(Debug, Arbitrary)]
enum Input<'a> {
    Text(&'a str),
    Payload { json: &'a [u8], signature: &'a [u8] },
    Parts(Parts<'a>),
}

fuzz_target!(|input: Input<'_>| {
    let text = match input {
        Input::Text(text) => text.to_owned(),
        Input::Payload { json, signature } => token(json, signature),
        Input::Parts(parts) => {
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
            token(json.to_string().as_bytes(), parts.signature)
        }
    };
    if let Ok(token) = JoinToken::read(&text) {
        // A fresh name must be weighed, not crash.
        let _ = token.identity("n1".parse().ok());
    }
});

fn token(json: &[u8], signature: &[u8]) -> String {
    format!("isthmus-token-1.{}.{}", URL_SAFE_NO_PAD.encode(json), URL_SAFE_NO_PAD.encode(signature))
}
