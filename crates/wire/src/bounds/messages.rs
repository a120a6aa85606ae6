//! The bounds of each message.

use std::collections::HashSet;

use super::*;
use crate::proto::dial_answer::Result as Answer;
use crate::proto::{self, list_request::Records};
use crate::text;

/// A message of which other parties receive a part, so that its size is bounded.
pub trait Bounded {
    /// Checks that the whole message is within the bounds.
    ///
    /// # Errors
    /// The first field that isn't within its bound.
    fn check(&self) -> Result<(), NotAllowed>;
}

/// How many bytes a message takes once it is encoded.
pub fn encoded_len(message: &impl prost::Message) -> usize {
    message.encoded_len()
}

fn texts(what: &'static str, texts: &[&str]) -> Result<(), NotAllowed> {
    texts.iter().try_for_each(|text| text_within(what, text, TEXT))
}

fn text_within(what: &'static str, text: &str, limit: usize) -> Result<(), NotAllowed> {
    within(what, text.len(), limit)?;
    Ok(text::check(what.strip_prefix("bytes of ").unwrap_or(what), text)?)
}

impl Bounded for proto::NodeUp {
    fn check(&self) -> Result<(), NotAllowed> {
        texts("bytes of a node's name", &[&self.node])?;
        texts("bytes of a node's address", &[&self.address, &self.outside_address])?;
        texts("bytes of a node's host name", &[&self.host_name])?;
        texts(
            "bytes of a node's owner, version or machine",
            &[&self.owner, &self.version, &self.architecture],
        )?;
        texts("bytes of the addresses of an agent's connection", &[&self.from, &self.gateway_address])?;
        texts("bytes of a scheduler's name", &[&self.submits])?;
        within("bytes of a pilot's id", self.pilot.len(), PILOT_ID_BYTES)?;
        self.signed.iter().try_for_each(Bounded::check)?;
        self.seen.iter().try_for_each(Bounded::check)
    }
}

impl Bounded for proto::SignedContact {
    fn check(&self) -> Result<(), NotAllowed> {
        within("bytes that an agent signs", self.contact.len(), CONTACT_BYTES)?;
        within("certificates of an agent", self.certificates.len(), CERTIFICATES)?;
        let each =
            |certificate: &Vec<u8>| within("bytes of a certificate", certificate.len(), CERTIFICATE_BYTES);
        self.certificates.iter().try_for_each(each)?;
        Ok(within("bytes of a signature", self.signature.len(), SIGNATURE_BYTES)?)
    }
}

impl Bounded for proto::Seen {
    fn check(&self) -> Result<(), NotAllowed> {
        texts("bytes of the address that a node is seen at", &[&self.address, &self.look_failure])?;
        [&self.own, &self.outside].into_iter().flatten().try_for_each(Bounded::check)?;
        for (what, sights) in
            [("relays that a node reports", &self.relays), ("gateways that a node reports", &self.gateways)]
        {
            within(what, sights.len(), SIGHTS)?;
            for sight in sights {
                texts(
                    "bytes of a node's report of a relay",
                    &[&sight.relay, &sight.address, &sight.failure],
                )?;
            }
        }
        within("hosts whose ports a node reports", self.egress.len(), EGRESS_HOSTS)?;
        self.egress.iter().try_for_each(|host| {
            texts("bytes of a relay's name", &[&host.relay])?;
            within("ports that answer a node", host.answered.len(), EGRESS_PORTS)?;
            Ok(within("ports that don't answer a node", host.silent.len(), EGRESS_PORTS)?)
        })
    }
}

impl Bounded for proto::NodesSeen {
    fn check(&self) -> Result<(), NotAllowed> {
        within("bytes of findings of nodes", encoded_len(self), MESSAGE_BYTES)?;
        self.nodes.iter().try_for_each(|node| {
            texts("bytes of a node's name", &[&node.node])?;
            node.seen.iter().try_for_each(Bounded::check)
        })
    }
}

impl Bounded for proto::Reach {
    fn check(&self) -> Result<(), NotAllowed> {
        texts("bytes of the result of a reach test", &[&self.address, &self.relay, &self.detail])
    }
}

impl Bounded for proto::GatewayUp {
    fn check(&self) -> Result<(), NotAllowed> {
        let all = [&self.site, &self.address, &self.version, &self.outside_address, &self.likely_address];
        texts("bytes of a text of a gateway", &all.map(String::as_str))
    }
}

impl Bounded for proto::RelayUp {
    fn check(&self) -> Result<(), NotAllowed> {
        texts("bytes of a text of a relay", &[&self.name, &self.address, &self.version])
    }
}

impl Bounded for proto::JobReport {
    fn check(&self) -> Result<(), NotAllowed> {
        texts("bytes of a text of a job", &[&self.job, &self.owner, &self.program])?;
        within("bytes of the names of a job's nodes", names_len(&self.nodes), JOB_NODES_BYTES)?;
        let names = self.nodes.iter();
        names
            .chain(self.joined.iter().map(|joined| &joined.relay))
            .try_for_each(|name| texts("bytes of a name in a job's report", &[name]))?;
        let joined: usize = self.joined.iter().map(record_len).sum();
        Ok(within("bytes of the connections between a job's nodes", joined, JOB_JOINED_BYTES)?)
    }
}

impl Bounded for proto::PathReport {
    fn check(&self) -> Result<(), NotAllowed> {
        texts("bytes of a text of a measurement", &[&self.from, &self.to, &self.relay])?;
        within("steps of a measurement", self.failed.len(), PATH_STEPS)?;
        for text in self.failed.iter().chain([&self.failure]) {
            text_within("bytes of the failures of a measurement", text, LONG_TEXT)?;
        }
        self.direct.iter().try_for_each(Bounded::check)
    }
}

impl Bounded for proto::DialAnswer {
    fn check(&self) -> Result<(), NotAllowed> {
        within("bytes of a signature", self.signature.len(), SIGNATURE_BYTES)?;
        match &self.result {
            Some(Answer::Address(address)) => texts("bytes of an answer to a request to dial", &[address]),
            Some(Answer::Failure(failure)) => {
                text_within("bytes of why a node doesn't dial", failure, LONG_TEXT)
            }
            Some(Answer::TakenIn(_)) | None => Ok(()),
        }
    }
}

impl Bounded for proto::ListRequest {
    fn check(&self) -> Result<(), NotAllowed> {
        within("bytes of a page token", self.page_token.len(), TEXT)?;
        match &self.records {
            Some(Records::Nodes(filter)) => {
                within("names in a request", filter.names.len() + filter.sites.len(), NAMES)?;
                texts("bytes of an owner", &[&filter.owner])?;
                filter
                    .names
                    .iter()
                    .chain(&filter.sites)
                    .try_for_each(|name| texts("bytes of a name", &[name]))
            }
            Some(Records::Sites(filter)) => {
                within("names in a request", filter.names.len(), NAMES)?;
                filter.names.iter().try_for_each(|name| texts("bytes of a name", &[name]))
            }
            Some(Records::Relays(proto::RelayFilter { asking_site: site }))
            | Some(Records::Paths(proto::PathFilter { site, .. })) => texts("bytes of a name", &[site]),
            Some(Records::Jobs(proto::JobFilter { site, job })) => texts("bytes of a name", &[site, job]),
            None => Ok(()),
        }
    }
}

/// Cuts a text for users, and escapes the characters that a terminal obeys or hides.
pub fn clean(text: &mut String, limit: usize) {
    if text.chars().any(text::is_unsafe) {
        *text = text::one_line(text);
    }
    cut_text(text, limit);
}

/// Cuts a node's findings to the bounds: the ends of lists, and texts for users. Returns `false` if
/// nothing had to be cut.
pub fn cut_seen(seen: &mut proto::Seen) -> bool {
    if seen.check().is_ok() {
        return false;
    }
    seen.relays.truncate(SIGHTS);
    seen.gateways.truncate(SIGHTS);
    for sight in seen.relays.iter_mut().chain(&mut seen.gateways) {
        clean(&mut sight.failure, TEXT);
    }
    for reach in [&mut seen.own, &mut seen.outside].into_iter().flatten() {
        clean(&mut reach.detail, TEXT);
    }
    clean(&mut seen.look_failure, TEXT);
    seen.egress.truncate(EGRESS_HOSTS);
    for host in &mut seen.egress {
        host.answered.truncate(EGRESS_PORTS);
        host.silent.truncate(EGRESS_PORTS);
    }
    true
}

/// Cuts the report of a measurement: the last steps, and texts for users.
pub fn cut_path(report: &mut proto::PathReport) {
    report.failed.truncate(PATH_STEPS);
    for text in report.failed.iter_mut().chain([&mut report.failure]) {
        clean(text, LONG_TEXT);
    }
    if let Some(reach) = &mut report.direct {
        clean(&mut reach.detail, TEXT);
    }
}

/// Cuts the lists of a job's report, and sets their former lengths. Of the nodes, the head stays,
/// and a node of each site as far as they fit. The broker needs the sites on which jobs run.
pub fn cut_job(report: &mut proto::JobReport) {
    let count = |listed: usize, before: u32| u32::try_from(listed).unwrap_or(u32::MAX).max(before);
    report.node_count = count(report.nodes.len(), report.node_count);
    report.joined_count = count(report.joined.len(), report.joined_count);
    clean(&mut report.program, TEXT);
    if names_len(&report.nodes) > JOB_NODES_BYTES {
        let mut sites = HashSet::new();
        let site = |name: &str| name.split_once('.').map_or(String::new(), |(_, site)| site.to_owned());
        let (mut kept, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut report.nodes).into_iter().partition(|name| sites.insert(site(name)));
        kept.extend(rest);
        report.nodes = fitting(kept, JOB_NODES_BYTES, |name| name_len(name));
    }
    report.joined = fitting(std::mem::take(&mut report.joined), JOB_JOINED_BYTES, record_len);
}

/// The first items that together take at most `limit` bytes.
fn fitting<T>(items: Vec<T>, limit: usize, len: impl Fn(&T) -> usize) -> Vec<T> {
    let mut total = 0;
    let fits = |item: &T| {
        total += len(item);
        total <= limit
    };
    items.into_iter().take_while(fits).collect()
}

/// Bytes of a name in an encoded list, with its tag and its length (two bytes up to 16 KiB).
fn name_len(name: &str) -> usize {
    name.len() + 3
}

fn names_len(names: &[String]) -> usize {
    names.iter().map(|name| name_len(name)).sum()
}

/// Bytes of a message in an encoded list, with its tag and its length.
fn record_len(message: &impl prost::Message) -> usize {
    message.encoded_len() + 3
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn sight(text: usize) -> proto::RelaySight {
        let text = "é".repeat(text / 2);
        proto::RelaySight { relay: "r".into(), address: "r:1".into(), failure: text, ..Default::default() }
    }

    fn host(ports: usize) -> proto::PortAnswers {
        let ports = vec![60_000; ports];
        proto::PortAnswers { relay: "r".into(), answered: ports.clone(), silent: ports }
    }

    #[test]
    fn each_bound_of_a_nodes_findings() {
        type Change = fn(&mut proto::Seen);
        let cases: [(&str, Change, bool); 7] = [
            ("within", |seen| seen.relays = vec![sight(TEXT); SIGHTS], false),
            ("relays", |seen| seen.relays = vec![sight(1); SIGHTS + 1], true),
            ("gateways", |seen| seen.gateways = vec![sight(1); SIGHTS + 1], true),
            ("a failure", |seen| seen.relays = vec![sight(TEXT + 3)], true),
            ("hosts", |seen| seen.egress = vec![host(1); EGRESS_HOSTS + 1], true),
            ("ports", |seen| seen.egress = vec![host(EGRESS_PORTS + 1)], true),
            (
                "a detail",
                |seen| seen.own = Some(proto::Reach { detail: "x".repeat(9999), ..Default::default() }),
                true,
            ),
        ];
        for (name, change, cut) in cases {
            let mut seen = proto::Seen::default();
            change(&mut seen);
            assert_eq!(seen.check().is_err(), cut, "{name}");
            assert_eq!(cut_seen(&mut seen), cut, "{name}");
            assert_eq!(seen.check(), Ok(()), "{name}");
        }
    }

    #[test]
    fn each_bound_of_what_an_agent_signs() {
        let within = proto::SignedContact {
            contact: vec![1; CONTACT_BYTES],
            certificates: vec![vec![1; CERTIFICATE_BYTES]; CERTIFICATES],
            signature: vec![1; SIGNATURE_BYTES],
        };
        type Change = fn(&mut proto::SignedContact);
        let cases: [(&str, Change, bool); 5] = [
            ("within", |_| {}, true),
            ("a long contact", |signed| signed.contact.push(1), false),
            ("a long certificate", |signed| signed.certificates[3].push(1), false),
            ("many certificates", |signed| signed.certificates.push(Vec::new()), false),
            ("a long signature", |signed| signed.signature.push(1), false),
        ];
        for (name, change, want) in cases {
            let mut signed = within.clone();
            change(&mut signed);
            assert_eq!(signed.check().is_ok(), want, "{name}");
            let up = proto::NodeUp { signed: Some(signed), ..Default::default() };
            assert_eq!(up.check().is_ok(), want, "{name}");
        }
        assert!(encoded_len(&within) < 11 * 1024);
    }

    #[test]
    fn the_largest_records_fit_a_page_and_a_message() {
        let long = || "x".repeat(TEXT);
        let reach = || Some(proto::Reach { address: long(), relay: long(), detail: long(), result: 9 });
        let sights = vec![
            proto::RelaySight {
                relay: long(),
                address: long(),
                round_trip_us: u64::MAX,
                failure: long()
            };
            SIGHTS
        ];
        let seen = proto::Seen {
            address: long(),
            own: reach(),
            outside: reach(),
            relays: sights.clone(),
            gateways: sights,
            egress: vec![proto::PortAnswers { relay: long(), ..host(EGRESS_PORTS) }; EGRESS_HOSTS],
            ..Default::default()
        };
        assert_eq!(seen.check(), Ok(()));
        assert!(encoded_len(&seen) < NODES_SEEN_BYTES, "{}", encoded_len(&seen));
        // A lookup has the findings of one node, an explained plan those of two.
        assert!(2 * encoded_len(&seen) + 8 * 1024 < MESSAGE_BYTES);
        let entry = proto::DirectoryEntry { name: long(), address: long() };
        let directory = proto::Directory {
            relays: vec![entry.clone(); DIRECTORY_RELAYS],
            gateways: vec![entry; DIRECTORY_GATEWAYS],
            ..Default::default()
        };
        assert!(encoded_len(&directory) < MESSAGE_BYTES / 4);
        let path = proto::PathReport {
            failed: vec!["x".repeat(LONG_TEXT); PATH_STEPS],
            failure: "x".repeat(LONG_TEXT),
            direct: reach(),
            ..Default::default()
        };
        assert_eq!(path.check(), Ok(()));
        assert!(encoded_len(&path) < PAGE_BYTES);
    }

    #[test]
    fn requests_for_records() {
        let nodes = |names: usize, len: usize| {
            let filter = proto::NodeFilter { names: vec!["n".repeat(len); names], ..Default::default() };
            proto::ListRequest { records: Some(Records::Nodes(filter)), ..Default::default() }
        };
        for (names, len, want) in [(NAMES, TEXT, true), (NAMES + 1, 1, false), (1, TEXT + 1, false)] {
            assert_eq!(nodes(names, len).check().is_ok(), want, "{names} names of {len}");
        }
        let token = proto::ListRequest { page_token: vec![b'x'; TEXT + 1], ..Default::default() };
        let error = token.check().unwrap_err().to_string();
        assert_eq!(error, "bytes of a page token: 264 is too many, at most 263 may be sent");
    }

    proptest! {
        #[test]
        fn a_cut_job_is_within_the_bounds_and_names_its_head_and_sites(
            sites in 1_usize..50, nodes in 1_usize..6000, pairs in 0_usize..3000, letters in 1_usize..100,
        ) {
            let name = |node: usize| format!("{}{node}.s{}", "n".repeat(letters), node % sites);
            let joined = |pair: usize| proto::Joined {
                initiator: name(pair), acceptor: name(pair + 1), connections: 7, ..Default::default()
            };
            let mut report = proto::JobReport {
                nodes: (0..nodes).map(name).collect(),
                joined: (0..pairs).map(joined).collect(),
                ..Default::default()
            };
            cut_job(&mut report);
            prop_assert_eq!(report.check(), Ok(()));
            prop_assert_eq!(report.nodes.first(), Some(&name(0)));
            prop_assert_eq!((report.node_count, report.joined_count), (nodes as u32, pairs as u32));
            let listed: HashSet<_> = report.nodes.iter().map(|name| name.split_once('.').unwrap().1).collect();
            prop_assert_eq!(listed.len(), sites.min(nodes));
            prop_assert!(encoded_len(&report) < PAGE_BYTES);
            let again = report.clone();
            cut_job(&mut report);
            prop_assert_eq!(report, again);
        }

        #[test]
        fn a_text_is_cut_between_characters(text in vec(any::<char>(), 0..40), limit in 0_usize..50) {
            let text: String = text.into_iter().collect();
            let mut cut = text.clone();
            cut_text(&mut cut, limit);
            prop_assert!(cut.len() <= limit && text.starts_with(&cut));
            prop_assert!(text.len() - cut.len() < text.len().saturating_sub(limit) + 4);
        }
    }
}
