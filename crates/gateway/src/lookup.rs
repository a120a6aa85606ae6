//! Lookups of nodes, answered from the roster, the cache or the broker.

use std::net::Ipv4Addr;
use std::time::Instant;

use isthmus_identity::Identity;
use isthmus_plan::{Plan, plan};
use isthmus_registry::contact;
use isthmus_rpc::contact::{known, plan_from_facts};
use isthmus_rpc::grpc::Repeat;
use isthmus_service::lock;
use isthmus_wire::proto::{self, registry_client::RegistryClient};
use isthmus_wire::{GridName, Label};
use tonic::Status;

use crate::gateway::Gateway;
use crate::upstream::WAIT;

impl Gateway {
    /// The contact of a node, with the plan for this caller.
    pub(crate) async fn lookup(
        &self,
        caller: &Identity,
        request: &proto::LookupRequest,
    ) -> Result<proto::LookupReply, Status> {
        let mut reply = self.find(request).await?;
        if let Some(facts) = reply.facts.take() {
            let initiator = self.initiator(caller.name(), facts.initiator_site.clone());
            reply.plan = Some(plan_from_facts(&initiator, &facts));
        }
        Ok(reply)
    }

    /// The gateway of another site that carries the connections that `node`, of this site, opens to
    /// the node with address `other`. The plan of the two must have the trunk of their gateways.
    ///
    /// # Errors
    /// `UNAVAILABLE` if the plan hasn't the trunk, or the reason why the other node isn't found.
    pub(crate) async fn over_trunk(&self, node: &Label, other: Ipv4Addr) -> Result<GridName, Status> {
        self.far_gateway(node, other, Plan::has_site_trunk).await
    }

    /// The gateway of another site that carries the connections that the node with address `other`
    /// opens to `node`, of this site.
    ///
    /// # Errors
    /// As of [`over_trunk`](Self::over_trunk).
    pub(crate) async fn taken_over_trunk(&self, node: &Label, other: Ipv4Addr) -> Result<GridName, Status> {
        self.far_gateway(node, other, |plan| plan.takes_site_trunk).await
    }

    async fn far_gateway(
        &self,
        node: &Label,
        other: Ipv4Addr,
        is_allowed: fn(&Plan) -> bool,
    ) -> Result<GridName, Status> {
        let request =
            proto::LookupRequest { virtual_address: other.into(), ..proto::LookupRequest::default() };
        let facts = self.find(&request).await?.facts;
        let facts = facts.ok_or_else(|| Status::unavailable("there is no plan for that node"))?;
        let initiator = self.initiator(node, facts.initiator_site.clone());
        let (from, to, pair) = known(&initiator, &facts);
        if !is_allowed(&plan(&from, &to, &pair)) {
            return Err(Status::unavailable("the trunk of the two sites' gateways is not in the plan"));
        }
        let acceptor = facts.acceptor.unwrap_or_default();
        let unnamed = |_| Status::internal("the broker names no gateway of that node");
        let node = acceptor.gateway.parse().map_err(unnamed)?;
        let other: GridName = acceptor.node.parse().map_err(unnamed)?;
        Ok(GridName { node, site: other.site })
    }

    async fn find(&self, request: &proto::LookupRequest) -> Result<proto::LookupReply, Status> {
        let own = self.roster().find(request);
        if let Some(node) = own {
            let reply = own_contact(node);
            self.lookups.cache().sent_own(&reply);
            return Ok(reply);
        }
        let reply = match self.lookups.known(request) {
            Some(reply) => reply,
            None => self.lookups.together(request, self.ask(request)).await?,
        };
        self.lookups.cache().sent(&reply);
        Ok(reply)
    }

    async fn ask(&self, request: &proto::LookupRequest) -> Result<proto::LookupReply, Status> {
        let mut asked = self.lookups.cache().asking();
        let mut reply = self.ask_once(request).await?;
        if !self.lookups.cache().insert(asked, &reply) {
            // A contact changed before the answer arrived.
            asked = self.lookups.cache().asking();
            reply = self.ask_once(request).await?;
            self.lookups.cache().insert(asked, &reply);
        }
        if let Some(node) = &reply.node {
            lock(&self.told).take_node(node, Instant::now());
        }
        Ok(reply)
    }

    async fn ask_once(&self, request: &proto::LookupRequest) -> Result<proto::LookupReply, Status> {
        const WHAT: &str = "look a node up";
        self.upstream.reached().await.map_err(|_| self.upstream.absent(WHAT))?;
        let lookup = |channel, request| async move { RegistryClient::new(channel).lookup(request).await };
        let budget = (Repeat::IfUnavailable, WAIT.into());
        self.upstream.call(WHAT, budget, request.clone(), lookup).await
    }

    /// The initiator's end of a plan, for an agent of this site. `site` has the facts
    /// of all the site's gateways together, if the broker sent them.
    pub(crate) fn initiator(&self, agent: &Label, site: Option<proto::SiteFacts>) -> proto::End {
        let own = || proto::SiteFacts {
            inbound: self.hello.inbound,
            gateway_outside: self.outside_address(),
            gateway_reach: self.outside.reach(),
            site_trunk: self.hello.site_trunk,
            gateway_mapping: self.seen_outside().unwrap_or_default().mapping,
        };
        let contact = self.roster().contact(agent).cloned().unwrap_or_default();
        let name = GridName { node: agent.clone(), site: self.site.clone() };
        contact::end(&name, &contact, site.unwrap_or_else(own))
    }
}

/// The answer to a lookup of a node of this site. Its plan depends on nothing else.
pub(crate) fn own_contact(node: proto::Node) -> proto::LookupReply {
    let end = proto::End { node: node.name.clone(), ..proto::End::default() };
    let facts = proto::Facts { acceptor: Some(end.clone()), ..proto::Facts::default() };
    proto::LookupReply { node: Some(node), plan: Some(plan_from_facts(&end, &facts)), facts: None }
}
