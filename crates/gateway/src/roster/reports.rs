//! Agents' reports, and what of them the broker receives when.

use isthmus_rpc::seen::for_plans;
use isthmus_wire::GridName;
use isthmus_wire::bounds::{JOBS_PER_NODE, JOBS_PER_SITE, NODES_SEEN_BYTES, encoded_len, leaves_room};
use isthmus_wire::proto::{self, attach_up};

use super::{Agent, Effect, Refused, Roster, SessionId};

impl Roster {
    /// Passes on an agent's report of a measurement. The attachment identifies the agent.
    pub(crate) fn measured(&self, session: SessionId, report: proto::PathReport) -> Option<Effect> {
        let node = self.names.get(&session)?.clone();
        let from = GridName { node, site: self.site.clone() }.to_string();
        Some(Effect::ToBroker(attach_up::Kind::Measured(proto::PathReport { from, ..report })))
    }

    /// Takes in an agent's report of how its node is seen from outside. A change that plans depend
    /// on goes to the broker at once; others wait for [`Roster::seen_due`].
    pub(crate) fn seen(&mut self, session: SessionId, seen: proto::Seen) -> Vec<Effect> {
        let Some((name, agent)) = self.agent(session) else { return Vec::new() };
        let before = agent.contact.seen.replace(seen.clone());
        if for_plans(before.as_ref()) == for_plans(Some(&seen)) {
            self.unsent.insert(name);
            return Vec::new();
        }
        let contact = agent.contact.clone();
        self.unsent.remove(&name);
        vec![Effect::ToBroker(attach_up::Kind::NodeUp(contact))]
    }

    /// Takes in that an agent has signed anew where it is. The agent's findings come by themselves.
    pub(crate) fn announced(&mut self, session: SessionId, contact: proto::NodeUp) -> Vec<Effect> {
        let Some((name, agent)) = self.agent(session) else { return Vec::new() };
        let contact = proto::NodeUp { seen: agent.contact.seen.take(), ..contact };
        agent.contact = contact.clone();
        let known = self.addresses.get(&name).map(|address| Effect::Changed(*address));
        known.into_iter().chain([Effect::ToBroker(attach_up::Kind::NodeUp(contact))]).collect()
    }

    /// The findings that were not sent yet, in as few messages as they fit. So the number of
    /// messages to the broker does not grow with the nodes.
    pub(crate) fn seen_due(&mut self) -> Vec<Effect> {
        let mut messages = vec![proto::NodesSeen::default()];
        let mut bytes = 0;
        for name in std::mem::take(&mut self.unsent) {
            let Some(seen) = self.agents.get(&name).and_then(|agent| agent.contact.seen.clone()) else {
                continue;
            };
            let found = proto::NodeSeen { node: name.to_string(), seen: Some(seen) };
            bytes += encoded_len(&found) + 4;
            if bytes > NODES_SEEN_BYTES {
                bytes = encoded_len(&found) + 4;
                messages.push(proto::NodesSeen::default());
            }
            messages.last_mut().into_iter().for_each(|message| message.nodes.push(found.clone()));
        }
        let messages = messages.into_iter().filter(|message| !message.nodes.is_empty());
        messages.map(|message| Effect::ToBroker(attach_up::Kind::NodesSeen(message))).collect()
    }

    /// Takes in an agent's report of the state of a job.
    ///
    /// # Errors
    /// If the agent's node isn't the job's head, or if the node or its owner has too many jobs.
    pub(crate) fn job_report(
        &mut self,
        session: SessionId,
        report: proto::JobReport,
    ) -> Result<Vec<Effect>, Refused> {
        let site = self.site.clone();
        let room = self.has_room(session);
        let Some((name, agent)) = self.agent(session) else { return Ok(Vec::new()) };
        let own = GridName { node: name, site }.to_string();
        if report.nodes.first() != Some(&own) {
            return Err(Refused(format!("{own} is not the head of job {}", report.job)));
        }
        let is_new = !agent.jobs.contains_key(&report.job);
        if report.ended {
            agent.jobs.remove(&report.job);
        } else if is_new && agent.jobs.len() >= JOBS_PER_NODE {
            return Err(Refused(format!("{own} has {JOBS_PER_NODE} jobs already")));
        } else if is_new && !room {
            let owner = &agent.contact.owner;
            return Err(Refused(format!(
                "user {owner:?} has as many jobs at this gateway as leave room for other users"
            )));
        } else {
            agent.jobs.insert(report.job.clone(), report.clone());
        }
        Ok(vec![Effect::ToBroker(attach_up::Kind::Job(report))])
    }

    /// Whether a further job of an agent's owner leaves room for those of others.
    fn has_room(&self, session: SessionId) -> bool {
        let agent = self.names.get(&session).and_then(|name| self.agents.get(name));
        let Some(owner) = agent.map(|agent| &agent.contact.owner) else { return false };
        let jobs = |agents: &mut dyn Iterator<Item = &Agent>| agents.map(|agent| agent.jobs.len()).sum();
        let all = jobs(&mut self.agents.values());
        let own = jobs(&mut self.agents.values().filter(|agent| agent.contact.owner == *owner));
        leaves_room(own, all, JOBS_PER_SITE)
    }

    /// Whether an agent has reported this job, as the agent at its head.
    pub(crate) fn is_head(&mut self, session: SessionId, job: &str) -> bool {
        self.agent(session).is_some_and(|(_, agent)| agent.jobs.contains_key(job))
    }

    /// Takes in that the agent at a job's head is frozen, or isn't any more. The broker lists the
    /// job only while the agent runs.
    pub(crate) fn head_frozen(&mut self, session: SessionId, job: &str, is_frozen: bool) -> Option<Effect> {
        let report = self.agent(session)?.1.jobs.get(job)?.clone();
        Some(Effect::ToBroker(attach_up::Kind::Job(proto::JobReport { ended: is_frozen, ..report })))
    }

    /// All messages that a broker without state must receive.
    pub(crate) fn announcements(&self) -> Vec<attach_up::Kind> {
        let nodes = self.agents.values().map(|agent| attach_up::Kind::NodeUp(agent.contact.clone()));
        let jobs = self.agents.values().flat_map(|agent| agent.jobs.values());
        nodes.chain(jobs.cloned().map(attach_up::Kind::Job)).collect()
    }
}
