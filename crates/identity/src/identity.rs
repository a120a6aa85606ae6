//! Identities, and their form in certificates.
//!
//! A certificate of the grid has exactly two subject alternative names (RFC 5280
//! section 4.2.1.6). TLS clients check the DNS name of the server. Authorisation
//! reads the URI, `isthmus:///ROLE/SITE/NAME/OWNER`, with empty parts where they
//! don't apply.
//!
//! | role | DNS name | URI |
//! |---|---|---|
//! | broker | `broker` | `isthmus:///broker//broker/` |
//! | gateway | `gateway.alpha` | `isthmus:///gateway/alpha/gateway/` |
//! | one of several gateways | `gateway.alpha` | `isthmus:///gateway/alpha/login1/` |
//! | agent | `n1.alpha` | `isthmus:///agent/alpha/n1/anna` |
//! | relay | `r1.relay` | `isthmus:///relay//r1/` |
//! | admin | `admin` | `isthmus:///admin//admin/` |
//! | further admin | `anna.admin` | `isthmus:///admin//anna/` |
//!
//! All gateways of a site have one DNS name, so that an agent trusts any of them.

use std::fmt;
use std::str::FromStr;

use isthmus_wire::{GridName, Label};
use x509_parser::prelude::{FromDer, GeneralName, X509Certificate};

/// The part that a certificate's holder has in the grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The rendezvous service of the grid.
    Broker,
    /// The service on a site's front-end.
    Gateway,
    /// The service on a node.
    Agent,
    /// A service that splices two outgoing connections.
    Relay,
    /// A person who runs the grid.
    Admin,
}

impl Role {
    /// All roles of the grid.
    pub const ALL: [Self; 5] = [Self::Broker, Self::Gateway, Self::Agent, Self::Relay, Self::Admin];

    /// The role's name in certificates and configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Broker => "broker",
            Self::Gateway => "gateway",
            Self::Agent => "agent",
            Self::Relay => "relay",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Role {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        Self::ALL
            .into_iter()
            .find(|role| role.as_str() == text)
            .ok_or_else(|| IdentityError::UnknownRole(text.to_owned()))
    }
}

/// A user name of the grid: 1 to 64 letters, digits, dots, underscores and hyphens.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(String);

impl Owner {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for Owner {
    type Err = IdentityError;

    fn from_str(text: &str) -> Result<Self, IdentityError> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if (1..=64).contains(&text.len()) && text.bytes().all(allowed) {
            Ok(Self(text.to_owned()))
        } else {
            Err(IdentityError::Owner(text.to_owned()))
        }
    }
}

/// Why an identity is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum IdentityError {
    /// A text is the name of no role.
    #[error("unknown role {0:?}: expected broker, gateway, agent, relay or admin")]
    UnknownRole(String),
    /// A name is reserved for services.
    #[error("the name {0} is reserved: choose another one")]
    Reserved(Label),
    /// A text is no valid user name.
    #[error("{0:?} is not a user name: use 1 to 64 letters, digits, dots, underscores and hyphens")]
    Owner(String),
    /// A part of the identity is missing, or not allowed for the role.
    #[error("{0}")]
    Parts(String),
    /// The certificate can't be read, or isn't a grid's.
    #[error("not a certificate of a grid: {0}")]
    Certificate(String),
}

/// The identity of a service, a node's agent or an administrator. Only valid
/// combinations of its parts can be built.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Identity {
    role: Role,
    site: Option<Label>,
    name: Label,
    owner: Option<Owner>,
}

impl Identity {
    /// Puts an identity together.
    ///
    /// `name` is required for agents and relays. A site's only gateway, the broker
    /// and the first administrator need none; their name is that of their role. `owner` is
    /// required for agents.
    ///
    /// # Errors
    /// If a part is missing, superfluous or reserved.
    pub fn new(
        role: Role,
        site: Option<Label>,
        name: Option<Label>,
        owner: Option<Owner>,
    ) -> Result<Self, IdentityError> {
        let parts = |text: &str| IdentityError::Parts(text.to_owned());
        match (role, &site) {
            (Role::Gateway | Role::Agent, None) => return Err(parts("a gateway or an agent needs a site")),
            (Role::Broker | Role::Relay | Role::Admin, Some(_)) => {
                return Err(IdentityError::Parts(format!("the role {role} belongs to no site")));
            }
            (Role::Agent, Some(_)) if owner.is_none() => {
                return Err(parts("an agent needs an owner: the user whose processes it may start"));
            }
            (Role::Gateway | Role::Agent, Some(site)) if is_reserved(site) => {
                return Err(IdentityError::Reserved(site.clone()));
            }
            _ => {}
        }
        let name = match (role, name) {
            (Role::Agent | Role::Relay, None) => {
                return Err(IdentityError::Parts(format!("the role {role} needs a name")));
            }
            (Role::Agent | Role::Relay, Some(name)) if is_reserved(&name) => {
                return Err(IdentityError::Reserved(name));
            }
            (Role::Agent | Role::Relay, Some(name)) => name,
            (Role::Gateway | Role::Admin, Some(name)) if name.as_str() != role.as_str() => {
                if is_reserved(&name) {
                    return Err(IdentityError::Reserved(name));
                }
                name
            }
            (Role::Broker | Role::Gateway | Role::Admin, name) => {
                let own: Label =
                    role.as_str().parse().map_err(|_| IdentityError::UnknownRole(role.to_string()))?;
                if name.as_ref().is_some_and(|name| *name != own) {
                    return Err(IdentityError::Parts(format!("a {role} has no name of its own")));
                }
                own
            }
        };
        Ok(Self { role, site, name, owner })
    }

    /// The role of its holder.
    pub fn role(&self) -> Role {
        self.role
    }

    /// The site, which gateways and agents have.
    pub fn site(&self) -> Option<&Label> {
        self.site.as_ref()
    }

    /// The name. For gateways and agents it is unique within their site.
    pub fn name(&self) -> &Label {
        &self.name
    }

    /// The user who may start processes on the node. Every agent has an owner.
    pub fn owner(&self) -> Option<&Owner> {
        self.owner.as_ref()
    }

    /// The grid name `node.site`, which agents have.
    pub fn grid_name(&self) -> Option<GridName> {
        match (self.role, &self.site) {
            (Role::Agent, Some(site)) => Some(GridName { node: self.name.clone(), site: site.clone() }),
            _ => None,
        }
    }

    /// The DNS name in the identity's certificate, which TLS clients check.
    pub fn server_name(&self) -> String {
        match (self.role, &self.site) {
            (Role::Relay, _) => format!("{}.{}", self.name, Role::Relay),
            (Role::Admin, _) if self.name.as_str() != Role::Admin.as_str() => {
                format!("{}.{}", self.name, Role::Admin)
            }
            (Role::Gateway, Some(site)) => Self::gateway_server_name(site),
            (_, Some(site)) => format!("{}.{site}", self.name),
            (_, None) => self.name.to_string(),
        }
    }

    /// The TLS name of the service that the holder attaches to and enrols at. For an agent it is
    /// the gateway of its site; for all others it is the broker.
    pub fn upstream_server_name(&self) -> String {
        match (self.role, &self.site) {
            (Role::Agent, Some(site)) => Self::gateway_server_name(site),
            _ => Role::Broker.to_string(),
        }
    }

    /// The DNS name in the certificates of all gateways of a site.
    pub fn gateway_server_name(site: &Label) -> String {
        format!("{}.{site}", Role::Gateway)
    }

    /// The URI in the identity's certificate, which authorisation reads.
    pub fn uri(&self) -> String {
        let text = |part: Option<&str>| part.unwrap_or_default().to_owned();
        format!(
            "{URI_PREFIX}{}/{}/{}/{}",
            self.role,
            text(self.site.as_ref().map(Label::as_str)),
            self.name,
            text(self.owner.as_ref().map(Owner::as_str)),
        )
    }

    /// Reads a URI as [`Identity::uri`] makes it.
    ///
    /// # Errors
    /// If the text is anything else.
    pub fn from_uri(uri: &str) -> Result<Self, IdentityError> {
        let wrong = || IdentityError::Certificate(format!("its URI name is {uri:?}"));
        let parts = uri.strip_prefix(URI_PREFIX).ok_or_else(wrong)?;
        let parts: Vec<&str> = parts.split('/').collect();
        let [role, site, name, owner] = parts[..] else { return Err(wrong()) };
        let label =
            |text: &str| (!text.is_empty()).then(|| text.parse::<Label>()).transpose().map_err(|_| wrong());
        let owner = (!owner.is_empty()).then(|| owner.parse::<Owner>()).transpose()?;
        Self::new(role.parse()?, label(site)?, label(name)?, owner)
    }

    /// Reads a certificate in DER, which TLS has verified before. This checks no signature.
    ///
    /// # Errors
    /// If the certificate has other names than a grid's has.
    pub fn from_certificate(der: &[u8]) -> Result<Self, IdentityError> {
        let wrong = |reason: &str| IdentityError::Certificate(reason.to_owned());
        let (_, certificate) = X509Certificate::from_der(der).map_err(|_| wrong("it can't be parsed"))?;
        let names = certificate
            .subject_alternative_name()
            .map_err(|_| wrong("its alternative names can't be parsed"))?
            .ok_or_else(|| wrong("it has no alternative names"))?;
        let [GeneralName::DNSName(dns), GeneralName::URI(uri)] = names.value.general_names[..] else {
            return Err(wrong("it has other alternative names than one DNS name and one URI"));
        };
        let identity = Self::from_uri(uri)?;
        if identity.server_name() == dns {
            Ok(identity)
        } else {
            Err(IdentityError::Certificate(format!("its names disagree: {dns} and {uri}")))
        }
    }
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.role {
            Role::Gateway if self.name.as_str() != Role::Gateway.as_str() => {
                let site = self.site.as_ref().map(Label::as_str).unwrap_or_default();
                f.pad(&format!("gateway {}.{site}", self.name))
            }
            Role::Admin if self.name.as_str() != Role::Admin.as_str() => {
                f.pad(&format!("admin {}", self.name))
            }
            // The TLS names of these roles start with the role.
            Role::Broker | Role::Admin | Role::Gateway => f.pad(&self.server_name()),
            Role::Agent => f.pad(&format!("agent {}", self.server_name())),
            Role::Relay => f.pad(&format!("relay {}", self.name)),
        }
    }
}

const URI_PREFIX: &str = "isthmus:///";

/// Whether a name is reserved for services. No node, relay or site may have it.
fn is_reserved(name: &Label) -> bool {
    Role::ALL.iter().any(|role| *role != Role::Agent && role.as_str() == name.as_str())
}

#[cfg(test)]
mod tests;
