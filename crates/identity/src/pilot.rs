//! Tokens of pilots: the right to certificates for the nodes of one batch job, for as long as it
//! lasts.
//!
//! An agent mints such a token by the key of its own certificate. The broker has given that agent
//! the right to, for so many nodes at one time. So a pilot's token needs no call to the broker. Its
//! secret is a private key that is made for this token alone, and the agent's signature covers the
//! public key. The nodes sign their requests to join with the private key. So a gateway that passes
//! a request on can neither use the token nor alter the request, and no gateway ever sees the secret.
//!
//! ```text
//! isthmus-pilot-1.PAYLOAD.SECRET.CHECK
//! ```
//! The parts are as those of [`token`](crate::token).

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isthmus_service::clock::unix_seconds;
use isthmus_service::mac;
use isthmus_wire::bounds::CERTIFICATES;
use isthmus_wire::proto;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use crate::authority::{SERVICE_VALIDITY, grid_name};
use crate::credentials::{CredentialsError, authority_of};
use crate::peers::Certified;
use crate::signed::{self, Holder, Key, Verifier, grid_id};
use crate::token::{Invitation, JoinToken, MOST_NODES, TokenError, base64url, check_of};
use crate::{Credentials, Identity, Role};

pub(crate) const PREFIX: &str = "isthmus-pilot-1";
/// The purposes of what an agent signs. A signature for one purpose is not valid for another.
const PURPOSE: &str = "isthmus pilot";
const END: &str = "isthmus pilot has ended";

/// What a pilot's nodes may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// How many nodes may join: at most [`MOST_NODES`].
    pub nodes: u32,
    /// Until when they may join.
    pub expires: SystemTime,
    /// How long their certificates are valid at most, from when a node joins. Whole seconds count.
    pub life: Duration,
}

/// What an agent has signed when it minted a pilot's token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delegation {
    /// How long the nodes' certificates are valid at most.
    pub life: Duration,
    /// The agent's certificate and those above it, in DER.
    certificates: Vec<Vec<u8>>,
    /// The public key that belongs to the token's secret.
    key: Vec<u8>,
    signature: Vec<u8>,
}

/// A pilot's token that was just minted.
pub struct Minted {
    /// Names the token, for its [`end`].
    pub id: [u8; 16],
    /// The whole token, a secret.
    pub text: String,
}

impl fmt::Debug for Minted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Minted").field("id", &self.id).finish_non_exhaustive()
    }
}

/// The secret of a pilot's token.
#[derive(Clone)]
pub(crate) struct Bearer(Arc<EcdsaKeyPair>);

impl fmt::Debug for Bearer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Bearer(…)")
    }
}

#[derive(Serialize, Deserialize)]
struct Payload {
    id: String,
    nodes: u32,
    expires_unix_seconds: u64,
    life_seconds: u64,
    certificates: Vec<String>,
    key: String,
    signature: String,
    authority: String,
}

/// Mints a token for the nodes of one pilot, which get the site and the owner of the agent with
/// these credentials.
///
/// # Errors
/// If the terms allow nothing, or the holder is no agent.
pub fn mint(credentials: &Credentials, terms: Terms) -> Result<Minted, TokenError> {
    let unmade = |reason: &dyn fmt::Display| TokenError::Unmade(reason.to_string());
    if credentials.identity().role() != Role::Agent {
        return Err(unmade(&"only agents have pilots"));
    }
    if !(1..=MOST_NODES).contains(&terms.nodes) || terms.life.as_secs() == 0 {
        return Err(unmade(&format!("a pilot has 1 to {MOST_NODES} nodes, for a second or more")));
    }
    let random = SystemRandom::new();
    let secret = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, &random);
    let secret = secret.map_err(|error| unmade(&error))?;
    let bearer = Bearer::new(secret.as_ref()).ok_or_else(|| unmade(&"its key can't be used"))?;
    let authority = authority_of(credentials).map_err(|error| unmade(&error))?;
    let own = credentials.certified_key();
    let (id, key) = (mac::random::<16>(), bearer.0.public_key().as_ref());
    let life = terms.life.min(SERVICE_VALIDITY);
    let signature = signed::sign(&own, &signed_bytes(&grid_id(&authority), id, Terms { life, ..terms }, key));
    let signature = signature.map_err(|error| unmade(&error))?;
    let text = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let payload = Payload {
        id: text(&id),
        nodes: terms.nodes,
        expires_unix_seconds: unix_seconds(terms.expires),
        life_seconds: life.as_secs(),
        certificates: signed::certificates(&own).iter().map(|certificate| text(certificate)).collect(),
        key: text(key),
        signature: text(&signature),
        authority: text(&authority),
    };
    let json = serde_json::to_vec(&payload).map_err(|error| unmade(&error))?;
    let checked = format!("{PREFIX}.{}.{}", text(&json), text(secret.as_ref()));
    Ok(Minted { id, text: format!("{checked}.{}", check_of(&checked)) })
}

/// The bytes that the agent signs.
fn signed_bytes(grid: &[u8; 32], id: [u8; 16], terms: Terms, key: &[u8]) -> Vec<u8> {
    let Terms { nodes, expires, life } = terms;
    let (expires, life) = (unix_seconds(expires).to_be_bytes(), life.as_secs().to_be_bytes());
    mac::parts(PURPOSE, &[grid, &id, &nodes.to_be_bytes(), &expires, &life, key])
}

/// Reads the public part of a pilot's token. Nothing in it is verified.
pub(crate) fn read(payload: &str, public: &str) -> Result<JoinToken, TokenError> {
    const WRONG: TokenError = TokenError::Malformed("its content can't be read");
    let payload: Payload = serde_json::from_slice(&base64url(payload)?).map_err(|_| WRONG)?;
    let certificates: Result<Vec<_>, _> = payload.certificates.iter().map(|text| base64url(text)).collect();
    let certificates = certificates?;
    let by = certificates.first().filter(|_| certificates.len() <= CERTIFICATES).ok_or(WRONG)?;
    let by = Identity::from_certificate(by)?;
    let life = Duration::from_secs(payload.life_seconds);
    let expires = UNIX_EPOCH.checked_add(Duration::from_secs(payload.expires_unix_seconds)).ok_or(WRONG)?;
    if by.role() != Role::Agent
        || !(1..=MOST_NODES).contains(&payload.nodes)
        || life.is_zero()
        || life > SERVICE_VALIDITY
    {
        return Err(WRONG);
    }
    let authority: CertificateDer<'static> = base64url(&payload.authority)?.into();
    Ok(JoinToken {
        id: base64url(&payload.id)?.try_into().map_err(|_| WRONG)?,
        invitation: Invitation {
            grid: grid_name(&authority).ok_or(WRONG)?,
            role: Role::Agent,
            site: by.site().cloned(),
            name: None,
            owner: by.owner().cloned(),
            nodes: Some(payload.nodes),
            gateways: 0,
            pilot_nodes: 0,
            expires,
            broker: String::new(),
        },
        authority,
        delegation: Some(Delegation {
            life,
            certificates,
            key: base64url(&payload.key)?,
            signature: base64url(&payload.signature)?,
        }),
        text: public.to_owned(),
    })
}

impl Delegation {
    /// Verifies that an agent of the grid has minted the token, and that the token's bearer has signed
    /// `request`. Returns the agent's certificate. Whether the agent has the right to is the caller's
    /// affair.
    pub(crate) fn verify(
        &self,
        token: &JoinToken,
        (request, proof): (&[u8], &[u8]),
        verifier: &Verifier,
        now: SystemTime,
    ) -> Result<Certified, TokenError> {
        let Holder { certified, key } = holder(&self.certificates, verifier, now)?;
        let Invitation { nodes, expires, .. } = token.invitation;
        let terms = Terms { nodes: nodes.unwrap_or(0), expires, life: self.life };
        let by_agent =
            key.has_signed(&signed_bytes(&verifier.grid, token.id, terms, &self.key), &self.signature);
        if by_agent && Key::new(&self.key).has_signed(request, proof) {
            Ok(certified)
        } else {
            Err(TokenError::Forged)
        }
    }
}

impl Bearer {
    /// The secret of a token, from PKCS #8.
    pub(crate) fn new(pkcs8: &[u8]) -> Option<Self> {
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_ASN1_SIGNING, pkcs8, &SystemRandom::new());
        key.ok().map(|key| Self(Arc::new(key)))
    }

    /// Signs a request to join.
    pub(crate) fn sign(&self, request: &[u8]) -> Result<Vec<u8>, TokenError> {
        let signature = self.0.sign(&SystemRandom::new(), request);
        signature
            .map(|signature| signature.as_ref().to_vec())
            .map_err(|error| TokenError::Unmade(error.to_string()))
    }
}

/// That the pilot whose token has this id has ended. `expires` is that of the token's [`Terms`]:
/// for as long the broker remembers the end.
///
/// # Errors
/// If the key in use can't sign.
pub fn end(
    credentials: &Credentials,
    id: [u8; 16],
    expires: SystemTime,
) -> Result<proto::EndPilotRequest, CredentialsError> {
    let key = credentials.certified_key();
    let token_expires_unix_seconds = unix_seconds(expires);
    let authority = authority_of(credentials)?;
    let signature = signed::sign(&key, &end_bytes(&grid_id(&authority), &id, token_expires_unix_seconds))?;
    let certificates = signed::certificates(&key);
    Ok(proto::EndPilotRequest { token_id: id.to_vec(), token_expires_unix_seconds, certificates, signature })
}

/// Verifies that an agent says that a pilot has ended. Returns the token's id and the agent. Whether
/// the agent has minted the token is the caller's affair.
///
/// # Errors
/// If no agent of the grid has signed that.
pub fn verify_end(
    request: &proto::EndPilotRequest,
    verifier: &Verifier,
    now: SystemTime,
) -> Result<([u8; 16], Certified), TokenError> {
    const WRONG: TokenError = TokenError::Malformed("its id can't be read");
    let id: [u8; 16] = request.token_id.as_slice().try_into().map_err(|_| WRONG)?;
    let Holder { certified, key } = holder(&request.certificates, verifier, now)?;
    if !key
        .has_signed(&end_bytes(&verifier.grid, &id, request.token_expires_unix_seconds), &request.signature)
    {
        return Err(TokenError::Forged);
    }
    Ok((id, certified))
}

fn end_bytes(grid: &[u8; 32], id: &[u8; 16], token_expires_unix_seconds: u64) -> Vec<u8> {
    mac::parts(END, &[grid, id, &token_expires_unix_seconds.to_be_bytes()])
}

/// The agent that holds these certificates.
fn holder(certificates: &[Vec<u8>], verifier: &Verifier, now: SystemTime) -> Result<Holder, TokenError> {
    let agent = |reason: &dyn fmt::Display| TokenError::Agent(reason.to_string());
    let holder = verifier.holder(certificates, now).map_err(|error| agent(&error))?;
    let identity = &holder.certified.identity;
    if identity.role() == Role::Agent { Ok(holder) } else { Err(agent(&format!("{identity} is no agent"))) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Authority;
    use crate::authority::CLOCK_SKEW;
    use crate::credentials::SigningRequest;
    use crate::peers::Peers;
    use crate::token::BearerToken;
    use isthmus_service::mac::Secret;

    const MINUTE: Duration = Duration::from_secs(60);

    fn issue(authority: &Authority, uri: &str, at: SystemTime) -> Credentials {
        let request = SigningRequest::new().unwrap();
        let identity = Identity::from_uri(uri).unwrap();
        let certificate = authority.sign(&identity, request.public_key(), at).unwrap();
        Credentials::new(&request, &certificate, authority.certificate_pem(), "fe:7710").unwrap()
    }

    fn verifier(authority: &Authority) -> Verifier {
        Verifier::new(authority.certificate(), Peers::default()).unwrap()
    }

    fn terms(now: SystemTime) -> Terms {
        Terms { nodes: 3, expires: now + MINUTE, life: 10 * MINUTE }
    }

    const LOGIN: &str = "isthmus:///agent/alpha/login1-ada/ada";

    #[test]
    fn a_pilot_s_nodes_get_the_agent_s_site_and_owner() {
        let now = SystemTime::now();
        let authority = Authority::create("demo", now).unwrap();
        let login = issue(&authority, LOGIN, now);
        let minted = mint(&login, terms(now)).unwrap();
        let bearer = BearerToken::read(&format!("{}\n", minted.text)).unwrap();
        assert!(!format!("{bearer:?}").contains(&minted.text[minted.text.len() - 60..][..40]));
        let token = &bearer.public;
        let Invitation { grid, role, site, owner, nodes, gateways, .. } = &token.invitation;
        assert_eq!((grid.as_str(), *role, *nodes, *gateways), ("demo", Role::Agent, Some(3), 0));
        let names = (site.as_ref().unwrap().as_str(), owner.as_ref().unwrap().as_str());
        assert_eq!((names, token.id), (("alpha", "ada"), minted.id));
        assert_eq!(token.places(Role::Agent), Some(3));
        let request = bearer.request("n2".to_owned(), b"key".to_vec(), false).unwrap();
        let verified = JoinToken::verify(&request, &Secret::random(), &verifier(&authority), now).unwrap();
        assert_eq!(verified.by.unwrap().identity, *login.identity());
        let node = verified.token.identity("n2".parse().ok(), false).unwrap();
        assert_eq!(node.uri(), "isthmus:///agent/alpha/n2/ada");
        assert!(matches!(token.identity(None, true), Err(TokenError::NodesOnly(_))));
    }

    #[test]
    fn what_no_agent_or_bearer_has_signed_is_refused() {
        let now = SystemTime::now();
        let (authority, forger) =
            (Authority::create("demo", now).unwrap(), Authority::create("demo", now).unwrap());
        let minted_by = |credentials: &Credentials| mint(credentials, terms(now)).unwrap().text;
        let ask = |text: &str| {
            BearerToken::read(text).unwrap().request("n2".to_owned(), b"key".to_vec(), false).unwrap()
        };
        let good = ask(&minted_by(&issue(&authority, LOGIN, now)));
        let other = ask(&minted_by(&issue(&authority, "isthmus:///agent/alpha/n9/bob", now)));
        // The public part with one field changed.
        let changed = |change: &dyn Fn(&mut Payload)| {
            let payload = good.token.rsplit('.').next().unwrap();
            let mut payload: Payload = serde_json::from_slice(&base64url(payload).unwrap()).unwrap();
            change(&mut payload);
            let json = URL_SAFE_NO_PAD.encode(serde_json::to_vec(&payload).unwrap());
            proto::JoinRequest { token: format!("{PREFIX}.{json}"), ..good.clone() }
        };
        let of_other = |part: fn(Payload) -> String| {
            let payload = other.token.rsplit('.').next().unwrap();
            part(serde_json::from_slice(&base64url(payload).unwrap()).unwrap())
        };
        let key = of_other(|payload| payload.key);
        for (what, request, want) in [
            ("as it was made", good.clone(), None),
            ("another name", proto::JoinRequest { name: "n3".to_owned(), ..good.clone() }, Some("altered")),
            (
                "another key to certify",
                proto::JoinRequest { signing_request: vec![1], ..good.clone() },
                Some("altered"),
            ),
            ("as a gateway", proto::JoinRequest { gateway: true, ..good.clone() }, Some("altered")),
            (
                "another bearer",
                proto::JoinRequest { mac: other.mac.clone(), ..good.clone() },
                Some("altered"),
            ),
            ("no signature", proto::JoinRequest { mac: Vec::new(), ..good.clone() }, Some("altered")),
            ("more nodes", changed(&|payload| payload.nodes = 4), Some("altered")),
            ("for longer", changed(&|payload| payload.life_seconds += 1), Some("altered")),
            ("until later", changed(&|payload| payload.expires_unix_seconds += 1), Some("altered")),
            ("another bearer's key", changed(&|payload| payload.key.clone_from(&key)), Some("altered")),
            ("no node", changed(&|payload| payload.nodes = 0), Some("can't be read")),
            ("too many nodes", changed(&|payload| payload.nodes = MOST_NODES + 1), Some("can't be read")),
            ("for ever", changed(&|payload| payload.life_seconds = u64::MAX), Some("can't be read")),
            ("no certificate", changed(&|payload| payload.certificates.clear()), Some("can't be read")),
            ("of another authority", ask(&minted_by(&issue(&forger, LOGIN, now))), Some("not signed")),
        ] {
            let result = JoinToken::verify(&request, &Secret::random(), &verifier(&authority), now);
            match want {
                None => assert!(result.is_ok(), "{what}: {result:?}"),
                Some("not signed") => {
                    assert!(matches!(result, Err(TokenError::Agent(_))), "{what}: {result:?}")
                }
                Some(want) => {
                    let error = result.unwrap_err().to_string();
                    assert!(error.contains(want), "{what}: {error}");
                }
            }
        }
        let late = now + 2 * MINUTE;
        let expired = JoinToken::verify(&good, &Secret::random(), &verifier(&authority), late);
        assert!(matches!(expired, Err(TokenError::Expired { .. })), "{expired:?}");
        let gateway = issue(&authority, "isthmus:///gateway/alpha/gateway/", now);
        assert!(mint(&gateway, terms(now)).is_err());
        assert!(mint(&issue(&authority, LOGIN, now), Terms { nodes: 0, ..terms(now) }).is_err());
    }

    #[test]
    fn an_end_is_the_agent_s_own_word() {
        let now = SystemTime::now();
        let authority = Authority::create("demo", now).unwrap();
        let login = issue(&authority, LOGIN, now);
        let good = end(&login, [7; 16], now).unwrap();
        let (id, by) = verify_end(&good, &verifier(&authority), now).unwrap();
        assert_eq!((id, &by.identity), ([7; 16], login.identity()));
        let gateway =
            end(&issue(&authority, "isthmus:///gateway/alpha/gateway/", now), [7; 16], now).unwrap();
        let old = issue(&authority, LOGIN, now - SERVICE_VALIDITY - CLOCK_SKEW);
        for (what, request) in [
            ("another id", proto::EndPilotRequest { token_id: vec![8; 16], ..good.clone() }),
            ("no id", proto::EndPilotRequest { token_id: Vec::new(), ..good.clone() }),
            (
                "remembered for longer",
                proto::EndPilotRequest { token_expires_unix_seconds: u64::MAX, ..good.clone() },
            ),
            (
                "another holder",
                proto::EndPilotRequest { certificates: gateway.certificates.clone(), ..good.clone() },
            ),
            ("a gateway", gateway),
            ("a certificate that has ended", end(&old, [7; 16], now).unwrap()),
        ] {
            assert!(verify_end(&request, &verifier(&authority), now).is_err(), "{what}");
        }
    }
}
