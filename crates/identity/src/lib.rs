//! Who a party is, and how it proves that: certificates, tokens, signatures, and TLS by them.
//!
//! | module | what |
//! |---|---|
//! | [`identity`] | identities: role, site, name, owner, as certificates name them |
//! | [`authority`] | the grid's certificate authority |
//! | [`token`] | join tokens: the right to one certificate |
//! | [`pilot`] | tokens that an agent mints for the nodes of one batch job |
//! | [`credentials`] | a service's own certificate and key, and TLS configurations made of them |
//! | [`tls`], [`secured`] | TLS connections; the check of their peers' certificates |
//! | [`peers`] | whose certificates hold, and which are revoked |
//! | [`signed`] | statements that a party has signed by the key of its certificate |
//! | [`audit`] | who was refused what |
//! | [`attachment`] | whether a service is attached, for who asks its process |
#![deny(unsafe_code)]

pub mod attachment;
pub mod audit;
pub mod authority;
pub mod credentials;
mod cryptography;
pub mod identity;
pub mod peers;
pub mod pilot;
pub mod secured;
pub mod signed;
pub mod tls;
pub mod token;

pub use authority::{Authority, CLOCK_SKEW};
pub use credentials::Credentials;
pub use identity::{Identity, Owner, Role};
