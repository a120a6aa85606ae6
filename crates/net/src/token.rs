//! Join tokens: the right to one certificate of the grid.
//!
//! A token is text that its bearer needs nothing else with: it says what
//! identity it is good for and until when, where the broker is, and by which
//! authority to know it. It is signed by that authority, and good once: the
//! broker remembers the ids it has seen.
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

/// How long a token is good where nobody says otherwise.
pub const DEFAULT_VALIDITY: Duration = Duration::from_secs(3600);

const PREFIX: &str = "isthmus-token-1";
const PURPOSE: &str = "join token";
/// Longest token that is looked at; a real one has about 1,100 characters.
const MAX_LENGTH: usize = 16 * 1024;

/// Why a token isn't good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// Not a token, or cut short.
    #[error("not a join token ({0}); give the whole text that `isthmus grid invite` printed")]
    Malformed(&'static str),
    /// Signed by somebody else.
    #[error("the join token was not made by this grid's authority")]
    Forged,
    /// Too old.
    #[error("the join token expired {} ago; ask for a new one (isthmus grid invite)", humane(*ago))]
    Expired {
        /// How long ago.
        ago: Duration,
    },
    /// It is good for another name.
    #[error("the join token is for the name {expected}, not {got}")]
    OtherName {
        /// The token's.
        expected: Label,
        /// The bearer's wish.
        got: Label,
    },
    /// What it is good for makes no sense.
    #[error(transparent)]
    Identity(#[from] IdentityError),
    /// It couldn't be made.
    #[error("cannot make a join token: {0}")]
    Authority(String),
}

impl From<AuthorityError> for TokenError {
    fn from(error: AuthorityError) -> Self {
        Self::Authority(error.to_string())
    }
}

/// What a token is good for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinToken {
    /// Random; the broker takes each once.
    pub id: [u8; 16],
    /// Name of the grid.
    pub grid: String,
    /// The bearer's role.
    pub role: Role,
    /// The bearer's site.
    pub site: Option<Label>,
    /// The bearer's name; without one it chooses.
    pub name: Option<Label>,
    /// The bearer's owner.
    pub owner: Option<Owner>,
    /// Until when.
    pub expires: SystemTime,
    /// Where the broker is, `HOST:PORT`.
    pub broker: String,
    /// The authority's certificate.
    pub authority: CertificateDer<'static>,
}

/// Who gets a token, and until when it is good.
#[derive(Debug, Clone)]
pub struct Invitation {
    /// Name of the grid.
    pub grid: String,
    /// The bearer's role.
    pub role: Role,
    /// The bearer's site.
    pub site: Option<Label>,
    /// The bearer's name; without one it chooses.
    pub name: Option<Label>,
    /// The bearer's owner.
    pub owner: Option<Owner>,
    /// Until when.
    pub expires: SystemTime,
    /// Where the broker is, `HOST:PORT`.
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
    /// If the invitation makes no sense (an agent without a site, say).
    pub fn mint(authority: &Authority, invitation: &Invitation) -> Result<String, TokenError> {
        if matches!(invitation.role, Role::Broker | Role::Admin) {
            let reason = format!("a {} does not join: `isthmus grid init` makes it", invitation.role);
            return Err(IdentityError::Parts(reason).into());
        }
        // A name that the bearer chooses later must not keep an otherwise
        // senseless invitation from being noticed here.
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

    /// Reads a token as its bearer does, who trusts whoever handed it over:
    /// checks that it is whole, by the authority it names itself.
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

    /// Reads a token as the broker does.
    ///
    /// # Errors
    /// If it isn't a token of this authority or has expired.
    pub fn verify(text: &str, authority: &Authority, now: SystemTime) -> Result<Self, TokenError> {
        let token = Self::read(text)?;
        if token.authority != *authority.certificate() {
            return Err(TokenError::Forged);
        }
        match now.duration_since(token.expires) {
            Ok(ago) if !ago.is_zero() => Err(TokenError::Expired { ago }),
            Ok(_) | Err(_) => Ok(token),
        }
    }

    /// The identity that its bearer gets, who wishes to be called `name`.
    ///
    /// # Errors
    /// If the token is for another name, or the name isn't allowed.
    pub fn identity(&self, name: Option<Label>) -> Result<Identity, TokenError> {
        let name = match (&self.name, name) {
            (Some(expected), Some(got)) if *expected != got => {
                return Err(TokenError::OtherName { expected: expected.clone(), got });
            }
            (Some(name), _) => Some(name.clone()),
            (None, name) => name,
        };
        Ok(Identity::new(self.role, self.site.clone(), name, self.owner.clone())?)
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
            grid: payload.grid,
            role: payload.role,
            site: label(payload.site)?,
            name: label(payload.name)?,
            owner: payload.owner.map(|owner| owner.parse()).transpose()?,
            expires,
            broker: payload.broker,
            authority: base64url(&payload.authority)?.into(),
        })
    }
}

fn base64url(text: &str) -> Result<Vec<u8>, TokenError> {
    URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::Malformed("it is not base64url"))
}

/// A duration as people say it, in its largest unit.
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn invitation(role: Role, site: Option<&str>, name: Option<&str>) -> Invitation {
        Invitation {
            grid: "demo".to_owned(),
            role,
            site: site.map(|site| site.parse().unwrap()),
            name: name.map(|name| name.parse().unwrap()),
            owner: None,
            expires: SystemTime::now() + Duration::from_secs(60),
            broker: "broker.example.org:7700".to_owned(),
        }
    }

    fn authority() -> Authority {
        Authority::create("demo", SystemTime::now()).unwrap()
    }

    #[test]
    fn a_token_says_what_it_was_made_for() {
        let authority = authority();
        let text = JoinToken::mint(&authority, &invitation(Role::Agent, Some("alpha"), Some("n1"))).unwrap();
        let token = JoinToken::read(&format!("{text}\n")).unwrap();
        assert_eq!(token.broker, "broker.example.org:7700");
        assert_eq!(JoinToken::verify(&text, &authority, SystemTime::now()), Ok(token.clone()));
        let n2: Label = "n2".parse().unwrap();
        assert_eq!(token.identity(None).unwrap().server_name(), "n1.alpha");
        assert!(matches!(token.identity(Some(n2)), Err(TokenError::OtherName { .. })));
    }

    #[test]
    fn a_token_without_a_name_leaves_the_choice() {
        let text = JoinToken::mint(&authority(), &invitation(Role::Agent, Some("alpha"), None)).unwrap();
        let token = JoinToken::read(&text).unwrap();
        assert_eq!(token.identity("n7".parse().ok()).unwrap().server_name(), "n7.alpha");
        assert!(token.identity(None).is_err());
        assert!(token.identity("gateway".parse().ok()).is_err());
    }

    #[test]
    fn expired_forged_and_changed_tokens() {
        let authority = authority();
        let text = JoinToken::mint(&authority, &invitation(Role::Gateway, Some("alpha"), None)).unwrap();
        let late = SystemTime::now() + Duration::from_secs(3 * 3600);
        let error = JoinToken::verify(&text, &authority, late).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the join token expired 2 h ago; ask for a new one (isthmus grid invite)"
        );

        let other = Authority::create("demo", SystemTime::now()).unwrap();
        assert_eq!(JoinToken::verify(&text, &other, SystemTime::now()), Err(TokenError::Forged));

        for changed in
            [&text[..text.len() - 3], &text.replace("token-1.e", "token-1.f"), "", "a.b.c", "isthmus-token-1"]
        {
            assert!(matches!(JoinToken::read(changed), Err(TokenError::Malformed(_))), "{changed}");
        }
    }

    #[test]
    fn senseless_invitations() {
        for (role, site, name) in [
            (Role::Agent, None, None),
            (Role::Gateway, None, None),
            (Role::Relay, Some("alpha"), None),
            (Role::Agent, Some("alpha"), Some("gateway")),
            (Role::Broker, None, None),
            (Role::Admin, None, None),
        ] {
            assert!(JoinToken::mint(&authority(), &invitation(role, site, name)).is_err(), "{role}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_token_or_none_without_panic(text in "(isthmus-token-1\\.)?[a-zA-Z0-9_.-]{0,80}") {
            prop_assert!(JoinToken::read(&text).is_err());
        }
    }
}
