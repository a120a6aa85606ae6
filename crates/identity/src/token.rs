//! Join tokens: the right to one certificate of the grid.
//!
//! A token is text and all that its bearer needs. Its public part names the identity
//! that it is valid for, its expiry, the broker's address and the authority's
//! certificate. Its secret is the HMAC of the public part by the broker's join key. It is
//! valid once: the broker keeps the ids of used tokens.
//!
//! A *site's token* is good for a number of nodes of one owner at one site. It is good for
//! gateways of the site only if it says for how many: a gateway opens connections for the nodes
//! of all owners. A node that has lost its identity may join again under its name. The agents that
//! join by it may [mint tokens for pilots](crate::pilot) only if it says for how many nodes.
//!
//! ```text
//! isthmus-token-1.PAYLOAD.SECRET.CHECK
//! ```
//! `PAYLOAD` is base64url of JSON. `CHECK` is the start of the SHA-256 of the text before
//! it, against typing errors.
//!
//! The secret never leaves the bearer. A request to join has the public part and an
//! [HMAC of the whole request](BearerToken::mac) by the secret. So a gateway that passes
//! it on can neither use the token nor alter the request.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isthmus_service::clock::{humane, unix_seconds};
use isthmus_service::mac::{self, Secret};
use isthmus_wire::preamble::Mac;
use isthmus_wire::{Label, proto};
use ring::digest::{SHA256, digest};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use crate::identity::{Identity, IdentityError, Owner, Role};
use crate::peers::Certified;
use crate::pilot::{self, Bearer, Delegation};
use crate::signed::Verifier;

/// Validity of a token by default.
pub const DEFAULT_VALIDITY: Duration = Duration::from_secs(3600);

const PREFIX: &str = "isthmus-token-1";
/// The purpose of what the join key signs; a token's secret signs with the other purposes. An HMAC
/// for one purpose is not valid for another.
const SECRET_OF: &str = "isthmus join token";
const REQUEST_OF: &str = "isthmus join request";
const GATEWAY_REQUEST_OF: &str = "isthmus join request of a gateway";
/// How many bytes of a token check against typing errors.
const CHECK_LENGTH: usize = 6;
/// Most nodes that a site's token admits.
pub const MOST_NODES: u32 = 10_000;
/// Most gateways that a site's token admits: as many as a site has.
pub const MOST_GATEWAYS: u32 = 16;
/// Most characters of a token that is read; a real token has about 1,100.
const MAX_LENGTH: usize = 16 * 1024;

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The text is no token, or is cut short.
    #[error("not a join token ({0}); give the whole text that `isthmus grid invite` printed")]
    Malformed(&'static str),
    /// The token was not made with the broker's join key, or the request was altered.
    #[error("the join token was not made by this grid's broker, or the request was altered on its way")]
    Forged,
    /// The token is too old.
    #[error("the join token expired {} ago; ask for a new one (isthmus grid invite)", humane(*ago))]
    Expired {
        /// How long ago the token has expired.
        ago: Duration,
    },
    /// The token is for another name.
    #[error("the join token is for the name {expected}, not {got}")]
    OtherName {
        /// The name that the token is for.
        expected: Label,
        /// The name that its bearer asks for.
        got: Label,
    },
    /// The token is for a single service of this role, which is no gateway.
    #[error("the join token is for a {0}, not for a site and its gateways")]
    NoSite(&'static str),
    /// The token is this site's, for nodes only.
    #[error(
        "the join token is for nodes of site {0}, and makes no gateway. If this machine is a node, give --via with the \
         address of the site's front-end; a front-end needs a token with that right (isthmus grid invite \
         --gateways 1)"
    )]
    NodesOnly(Label),
    /// A pilot's token, or its end, is signed by a party that is no agent of the grid.
    #[error("not signed by an agent of this grid: {0}")]
    Agent(String),
    /// The token is for an invalid identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The token couldn't be made.
    #[error("cannot make a join token: {0}")]
    Unmade(String),
}

/// The public part of a token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// A random id. The broker accepts each id once, unless the token is a site's.
    pub id: [u8; 16],
    /// What the token grants.
    pub invitation: Invitation,
    /// The certificate of the grid's authority.
    pub authority: CertificateDer<'static>,
    /// What an agent has signed who minted it for a pilot; `None` if the broker's join key made it.
    pub delegation: Option<Delegation>,
    /// The public part as text, `isthmus-token-1.PAYLOAD`.
    pub(crate) text: String,
}

/// A token by which a request to join was verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verified {
    /// The token.
    pub token: JoinToken,
    /// The agent that minted it; `None` if the broker's join key made it.
    pub by: Option<Certified>,
}

/// A whole token, as its bearer has it.
#[derive(Debug, Clone)]
pub struct BearerToken {
    /// The public part of the token.
    pub public: JoinToken,
    secret: Proof,
}

/// What proves that a request to join is a bearer's.
#[derive(Debug, Clone)]
enum Proof {
    /// An HMAC by a secret that the broker makes again from its join key.
    Shared(Secret),
    /// A signature by the private key of a pilot's token.
    Key(Bearer),
}

/// What a token grants to its bearer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// Name of the grid.
    pub grid: String,
    /// The role that the bearer gets.
    pub role: Role,
    /// The site that the bearer belongs to; `None` for relays and administrators.
    pub site: Option<Label>,
    /// The bearer's name; `None` lets the bearer choose.
    pub name: Option<Label>,
    /// The owner that the bearer gets, which agents need.
    pub owner: Option<Owner>,
    /// How many nodes a site's token is good for, each with a bearer; `None` for any other token.
    pub nodes: Option<u32>,
    /// How many gateways a site's token is good for as well; 0 for any other token.
    pub gateways: u32,
    /// How many nodes each agent that joins may have in its pilots at one time; 0 if it may have none.
    pub pilot_nodes: u32,
    /// When the token expires.
    pub expires: SystemTime,
    /// The broker's address, `HOST:PORT`.
    pub broker: String,
}

/// What the invitation grants, as the audit log has it: `role agent site alpha name n1 owner anna`.
impl fmt::Display for Invitation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "role {}", self.role.as_str())?;
        for (part, value) in [
            ("site", self.site.as_ref().map(Label::as_str)),
            ("name", self.name.as_ref().map(Label::as_str)),
            ("owner", self.owner.as_ref().map(Owner::as_str)),
        ] {
            write!(f, " {part} {}", value.unwrap_or("any"))?;
        }
        if let Some(nodes) = self.nodes {
            write!(f, " nodes {nodes} gateways {}", self.gateways)?;
        }
        match self.pilot_nodes {
            0 => Ok(()),
            nodes => write!(f, " pilots of {nodes} nodes"),
        }
    }
}

#[derive(Serialize, Deserialize)]
struct Payload {
    id: String,
    grid: String,
    role: Role,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    site: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nodes: Option<u32>,
    /// How many gateways a site's token makes; `None` if it makes nodes only.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    gateways: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pilot_nodes: Option<u32>,
    expires_unix_seconds: u64,
    broker: String,
    authority: String,
}

impl BearerToken {
    /// Reads a token, and checks that no character of it is missing or changed.
    ///
    /// # Errors
    /// If the text isn't a token, or was changed or cut.
    pub fn read(text: &str) -> Result<Self, TokenError> {
        const FEW: TokenError = TokenError::Malformed("it has too few parts");
        let text = text.trim();
        if text.len() > MAX_LENGTH {
            return Err(TokenError::Malformed("it is too long"));
        }
        let (checked, check) = text.rsplit_once('.').ok_or(FEW)?;
        let (public, secret) = checked.rsplit_once('.').ok_or(FEW)?;
        let public = JoinToken::read(public)?;
        if check != check_of(checked) {
            return Err(TokenError::Malformed("a character of it is missing or wrong"));
        }
        let secret = base64url(secret)?;
        let secret = match public.delegation {
            None => Secret::from_slice(&secret).map(Proof::Shared),
            Some(_) => Bearer::new(&secret).map(Proof::Key),
        };
        Ok(Self { public, secret: secret.ok_or(TokenError::Malformed("its secret can't be used"))? })
    }

    /// The public part, as a request to join has it.
    pub fn public_text(&self) -> &str {
        &self.public.text
    }

    /// A request to join with this token, signed by its secret.
    ///
    /// # Errors
    /// If a pilot's token can't sign, as the system has no randomness.
    pub fn request(
        &self,
        name: String,
        signing_request: Vec<u8>,
        gateway: bool,
    ) -> Result<proto::JoinRequest, TokenError> {
        let token = self.public.text.clone();
        let mut request = proto::JoinRequest { token, name, signing_request, gateway, mac: Vec::new() };
        let signed = requested(&request);
        request.mac = match &self.secret {
            Proof::Shared(secret) => secret.sign(&signed).to_vec(),
            Proof::Key(key) => key.sign(&signed)?,
        };
        Ok(request)
    }
}

/// What a request to join asks for, as the bytes to sign.
fn requested(request: &proto::JoinRequest) -> Vec<u8> {
    let proto::JoinRequest { token, name, signing_request, gateway, mac: _ } = request;
    let what = if *gateway { GATEWAY_REQUEST_OF } else { REQUEST_OF };
    mac::parts(what, &[token.as_bytes(), name.as_bytes(), signing_request])
}

/// The secret of the token with this public part.
fn secret_of(join_key: &Secret, public: &str) -> Secret {
    Secret::new(join_key.sign(&mac::parts(SECRET_OF, &[public.as_bytes()])))
}

pub(crate) fn check_of(text: &str) -> String {
    URL_SAFE_NO_PAD.encode(&digest(&SHA256, text.as_bytes()).as_ref()[..CHECK_LENGTH])
}

impl JoinToken {
    /// Makes a token with the broker's join key. `authority` is the certificate of the grid's
    /// authority.
    ///
    /// # Errors
    /// If the invitation is for an invalid identity, such as an agent without a site.
    pub fn mint(
        join_key: &Secret,
        authority: &CertificateDer<'_>,
        invitation: &Invitation,
    ) -> Result<String, TokenError> {
        let wrong = |reason: &str| Err(IdentityError::Parts(reason.to_owned()).into());
        let own_name = invitation.name.as_ref().is_some_and(|name| name.as_str() != Role::Admin.as_str());
        match invitation.role {
            Role::Broker => return wrong("a broker does not join: `isthmus grid init` makes it"),
            Role::Admin if !own_name => {
                return wrong("a further administrator needs a name: give one with --name");
            }
            Role::Admin | Role::Agent | Role::Gateway | Role::Relay => {}
        }
        match invitation.nodes {
            Some(0) => return wrong("a site's token is for one node at least"),
            Some(nodes) if nodes > MOST_NODES => return wrong("a site's token is for 10,000 nodes at most"),
            Some(_) if invitation.role != Role::Agent || invitation.name.is_some() => {
                return wrong("the nodes of a site's token choose their names");
            }
            None if invitation.gateways > 0 => return wrong("only a site's token is for several gateways"),
            Some(_) if invitation.gateways > MOST_GATEWAYS => {
                return wrong("a site's token is for 16 gateways at most");
            }
            Some(_) | None => {}
        }
        match invitation.pilot_nodes {
            0 => {}
            _ if invitation.role != Role::Agent => return wrong("only agents have pilots"),
            nodes if nodes > MOST_NODES => return wrong("an agent's pilots have 10,000 nodes at most"),
            _ => {}
        }
        // Checked here with any name, if the bearer chooses it later.
        let name = invitation.name.clone().or_else(|| match invitation.role {
            Role::Agent | Role::Relay => "any".parse().ok(),
            Role::Broker | Role::Gateway | Role::Admin => None,
        });
        Identity::new(invitation.role, invitation.site.clone(), name, invitation.owner.clone())?;

        let payload = Payload {
            id: URL_SAFE_NO_PAD.encode(mac::random::<16>()),
            grid: invitation.grid.clone(),
            role: invitation.role,
            site: invitation.site.as_ref().map(Label::to_string),
            name: invitation.name.as_ref().map(Label::to_string),
            owner: invitation.owner.as_ref().map(Owner::to_string),
            nodes: invitation.nodes,
            gateways: (invitation.gateways > 0).then_some(invitation.gateways),
            pilot_nodes: (invitation.pilot_nodes > 0).then_some(invitation.pilot_nodes),
            expires_unix_seconds: unix_seconds(invitation.expires),
            broker: invitation.broker.clone(),
            authority: URL_SAFE_NO_PAD.encode(authority),
        };
        let json = serde_json::to_vec(&payload).map_err(|error| TokenError::Unmade(error.to_string()))?;
        let public = format!("{PREFIX}.{}", URL_SAFE_NO_PAD.encode(json));
        let secret = URL_SAFE_NO_PAD.encode(secret_of(join_key, &public).expose());
        let checked = format!("{public}.{secret}");
        Ok(format!("{checked}.{}", check_of(&checked)))
    }

    /// Reads the public part of a token. Nothing in it is verified.
    ///
    /// # Errors
    /// If the text isn't the public part of a token.
    pub fn read(public: &str) -> Result<Self, TokenError> {
        if public.len() > MAX_LENGTH {
            return Err(TokenError::Malformed("it is too long"));
        }
        match public.split_once('.') {
            Some((PREFIX, payload)) => Self::decode(payload, public),
            Some((pilot::PREFIX, payload)) => pilot::read(payload, public),
            _ => Err(TokenError::Malformed("it doesn't start with isthmus-token-1")),
        }
    }

    /// Verifies a request to join, as the broker does: token, name and signing request
    /// must be those that the token's bearer signed.
    ///
    /// # Errors
    /// If the token is malformed, expired, or made neither by this broker nor by an agent of the
    /// grid, or the request was altered.
    pub fn verify(
        request: &proto::JoinRequest,
        join_key: &Secret,
        verifier: &Verifier,
        now: SystemTime,
    ) -> Result<Verified, TokenError> {
        let token = Self::read(&request.token)?;
        let signed = requested(request);
        let by = if let Some(delegation) = &token.delegation {
            Some(delegation.verify(&token, (&signed, &request.mac), verifier, now)?)
        } else {
            let mac: Mac = request.mac.as_slice().try_into().map_err(|_| TokenError::Forged)?;
            if !secret_of(join_key, &request.token).verify(&signed, &mac) {
                return Err(TokenError::Forged);
            }
            None
        };
        match now.duration_since(token.invitation.expires) {
            Ok(ago) if !ago.is_zero() => Err(TokenError::Expired { ago }),
            Ok(_) | Err(_) => Ok(Verified { token, by }),
        }
    }

    /// The identity that the token's bearer gets. `name` is the bearer's choice, as is whether to
    /// be a site's gateway.
    ///
    /// # Errors
    /// If the token is for another name, for no site or no gateway, or if the name isn't allowed.
    pub fn identity(&self, name: Option<Label>, gateway: bool) -> Result<Identity, TokenError> {
        let Invitation { role, site, owner, nodes, gateways, .. } = &self.invitation;
        if gateway {
            return match (nodes, site) {
                (Some(_), Some(site)) if *gateways == 0 => Err(TokenError::NodesOnly(site.clone())),
                (Some(_), site) => Ok(Identity::new(Role::Gateway, site.clone(), name, None)?),
                (None, _) => Err(TokenError::NoSite(role.as_str())),
            };
        }
        let name = match (&self.invitation.name, name) {
            (Some(expected), Some(got)) if *expected != got => {
                return Err(TokenError::OtherName { expected: expected.clone(), got });
            }
            (Some(name), _) => Some(name.clone()),
            (None, name) => name,
        };
        Ok(Identity::new(*role, site.clone(), name, owner.clone())?)
    }

    /// How many members of a role a site's token is good for; `None` for any other token.
    pub fn places(&self, role: Role) -> Option<u32> {
        let nodes = self.invitation.nodes?;
        Some(if role == Role::Gateway { self.invitation.gateways } else { nodes })
    }

    fn decode(payload: &str, public: &str) -> Result<Self, TokenError> {
        const WRONG: TokenError = TokenError::Malformed("its content can't be read");
        let payload: Payload = serde_json::from_slice(&base64url(payload)?).map_err(|_| WRONG)?;
        let label =
            |text: Option<String>| text.map(|text| text.parse::<Label>()).transpose().map_err(|_| WRONG);
        let expires =
            UNIX_EPOCH.checked_add(Duration::from_secs(payload.expires_unix_seconds)).ok_or(WRONG)?;
        Ok(Self {
            id: base64url(&payload.id)?.try_into().map_err(|_| WRONG)?,
            invitation: Invitation {
                grid: payload.grid,
                role: payload.role,
                site: label(payload.site)?,
                name: label(payload.name)?,
                owner: payload.owner.map(|owner| owner.parse()).transpose()?,
                nodes: payload.nodes,
                gateways: payload.gateways.unwrap_or_default(),
                pilot_nodes: payload.pilot_nodes.unwrap_or_default(),
                expires,
                broker: payload.broker,
            },
            authority: base64url(&payload.authority)?.into(),
            delegation: None,
            text: public.to_owned(),
        })
    }
}

pub(crate) fn base64url(text: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed("it is not base64url"))
}

#[cfg(test)]
mod tests;
