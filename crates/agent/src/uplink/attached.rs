//! An open attachment, and the contacts that were looked up over it.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex};

use isthmus_wire::VirtualAddress;
use isthmus_wire::proto;
use isthmus_wire::proto::enrolment_client::EnrolmentClient;
use isthmus_wire::proto::own_gateway_client::OwnGatewayClient;
use isthmus_wire::proto::registry_client::RegistryClient;
use tonic::transport::Channel;

pub(crate) type Contacts = Arc<Mutex<HashMap<Ipv4Addr, Arc<proto::LookupReply>>>>;

#[derive(Debug, Clone)]
pub(crate) struct Attached {
    /// The number of this attachment, counted from 1 in the order in which they began.
    pub(crate) number: u64,
    pub(crate) address: VirtualAddress,
    /// The gateway's address, `HOST:PORT`.
    pub(crate) gateway: Arc<str>,
    pub(crate) client: RegistryClient<Channel>,
    /// The client for calls that the gateway itself answers.
    pub(crate) own_gateway: OwnGatewayClient<Channel>,
    /// The client for what becomes of identities.
    pub(crate) enrolment: EnrolmentClient<Channel>,
}
