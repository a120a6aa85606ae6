//! Join tokens: the right to one certificate of the grid.
//!
//! A token is text and all that its bearer needs. It names the identity that it is
//! valid for, its expiry, the broker's address and the authority's certificate. The
//! authority signs it. It is valid once: the broker keeps the ids of used tokens.
//!
//! ```text
//! isthmus-token-1.PAYLOAD.SIGNATURE
//! ```
//! `PAYLOAD` is base64url of JSON, `SIGNATURE` base64url of the authority's
//! signature of the text before it. A token is a secret until it is used or
//! has expired.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use isthmus_wire::Label;
use ring::rand::{SecureRandom, SystemRandom};
use rustls::pki_types::CertificateDer;
use serde::{Deserialize, Serialize};

use crate::authority::{self, Authority, AuthorityError};
use crate::clock::unix_seconds;
use crate::identity::{Identity, IdentityError, Owner, Role};

/// Validity of a token by default.
pub const DEFAULT_VALIDITY: Duration = Duration::from_secs(3600);

const PREFIX: &str = "isthmus-token-1";
const PURPOSE: &str = "join token";
/// Longest token that is read; a real one has about 1,100 characters.
const MAX_LENGTH: usize = 16 * 1024;

/// Why a token is refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token, or cut short.
    #[error("not a join token ({0}); give the whole text that `isthmus grid invite` printed")]
    Malformed(&'static str),
    /// Signed by another authority.
    #[error("the join token was not made by this grid's authority")]
    Forged,
    /// Too old.
    #[error("the join token expired {} ago; ask for a new one (isthmus grid invite)", humane(*ago))]
    Expired {
        /// How long ago.
        ago: Duration,
    },
    /// It is for another name.
    #[error("the join token is for the name {expected}, not {got}")]
    OtherName {
        /// The token's.
        expected: Label,
        /// The bearer's.
        got: Label,
    },
    /// It is for an invalid identity.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// The token couldn't be made.
    #[error("cannot make a join token: {0}")]
    Authority(String),
}

impl From<AuthorityError> for TokenError {
    fn from(error: AuthorityError) -> Self {
        Self::Authority(error.to_string())
    }
}

/// A token that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Random; the broker accepts each once.
    pub id: [u8; 16],
    /// What the token grants.
    pub invitation: Invitation,
    /// The authority's certificate.
    pub authority: CertificateDer<'static>,
}

/// What a token grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invitation {
    /// Name of the grid.
    pub grid: String,
    /// The bearer's role.
    pub role: Role,
    /// The bearer's site.
    pub site: Option<Label>,
    /// The bearer's name; without one the bearer chooses.
    pub name: Option<Label>,
    /// The bearer's owner.
    pub owner: Option<Owner>,
    /// The token's expiry.
    pub expires: SystemTime,
    /// The broker's address, `HOST:PORT`.
    pub broker: String,
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
    expires_unix_seconds: u64,
    broker: String,
    authority: String,
}

impl JoinToken {
    /// Makes a token with the authority's key.
    ///
    /// # Errors
    /// If the invitation is for an invalid identity, such as an agent without a site.
    pub fn mint(authority: &Authority, invitation: &Invitation) -> Result<String, TokenError> {
        if matches!(invitation.role, Role::Broker | Role::Admin) {
            let reason = format!("a {} does not join: `isthmus grid init` makes it", invitation.role);
            return Err(IdentityError::Parts(reason).into());
        }
        // Checked here with any name, if the bearer chooses it later.
        let name = invitation.name.clone().or_else(|| match invitation.role {
            Role::Agent | Role::Relay => "any".parse().ok(),
            Role::Broker | Role::Gateway | Role::Admin => None,
        });
        Identity::new(invitation.role, invitation.site.clone(), name, invitation.owner.clone())?;

        let mut id = [0; 16];
        SystemRandom::new()
            .fill(&mut id)
            .map_err(|_| TokenError::Authority("the system has no randomness".to_owned()))?;
        let payload = Payload {
            id: URL_SAFE_NO_PAD.encode(id),
            grid: invitation.grid.clone(),
            role: invitation.role,
            site: invitation.site.as_ref().map(Label::to_string),
            name: invitation.name.as_ref().map(Label::to_string),
            owner: invitation.owner.as_ref().map(Owner::to_string),
            expires_unix_seconds: unix_seconds(invitation.expires),
            broker: invitation.broker.clone(),
            authority: URL_SAFE_NO_PAD.encode(authority.certificate()),
        };
        let json = serde_json::to_vec(&payload).map_err(|error| TokenError::Authority(error.to_string()))?;
        let signed = format!("{PREFIX}.{}", URL_SAFE_NO_PAD.encode(json));
        let signature = authority.sign_text(PURPOSE, &signed)?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Reads a token as its bearer does, who trusts its source. Checks the signature
    /// by the authority that the token itself names.
    ///
    /// # Errors
    /// If it isn't a token, or was changed or cut.
    pub fn read(text: &str) -> Result<Self, TokenError> {
        let text = text.trim();
        if text.len() > MAX_LENGTH {
            return Err(TokenError::Malformed("it is too long"));
        }
        let (signed, signature) =
            text.rsplit_once('.').ok_or(TokenError::Malformed("it has too few parts"))?;
        let payload = signed
            .strip_prefix(PREFIX)
            .and_then(|rest| rest.strip_prefix('.'))
            .ok_or(TokenError::Malformed("it doesn't start with isthmus-token-1"))?;
        let token = Self::decode(payload)?;
        let signature = base64url(signature)?;
        match authority::verify_text(&token.authority, PURPOSE, signed, &signature) {
            Ok(true) => Ok(token),
            Ok(false) => Err(TokenError::Malformed("its signature is wrong")),
            Err(_) => Err(TokenError::Malformed("its authority can't be read")),
        }
    }

    /// Reads a token as the broker does: it must be of this authority.
    ///
    /// # Errors
    /// If it is of another authority, malformed or expired.
    pub fn verify(text: &str, authority: &Authority, now: SystemTime) -> Result<Self, TokenError> {
        let token = Self::read(text)?;
        if token.authority != *authority.certificate() {
            return Err(TokenError::Forged);
        }
        match now.duration_since(token.invitation.expires) {
            Ok(ago) if !ago.is_zero() => Err(TokenError::Expired { ago }),
            Ok(_) | Err(_) => Ok(token),
        }
    }

    /// The identity that its bearer gets; `name` is the bearer's choice.
    ///
    /// # Errors
    /// If the token is for another name, or the name isn't allowed.
    pub fn identity(&self, name: Option<Label>) -> Result<Identity, TokenError> {
        let Invitation { role, site, owner, .. } = &self.invitation;
        let name = match (&self.invitation.name, name) {
            (Some(expected), Some(got)) if *expected != got => {
                return Err(TokenError::OtherName { expected: expected.clone(), got });
            }
            (Some(name), _) => Some(name.clone()),
            (None, name) => name,
        };
        Ok(Identity::new(*role, site.clone(), name, owner.clone())?)
    }

    fn decode(payload: &str) -> Result<Self, TokenError> {
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
                expires,
                broker: payload.broker,
            },
            authority: base64url(&payload.authority)?.into(),
        })
    }
}

fn base64url(text: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed("it is not base64url"))
}

/// A duration in its largest unit, for messages.
fn humane(duration: Duration) -> String {
    let seconds = duration.as_secs();
    match seconds {
        0..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests;
