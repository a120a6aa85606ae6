//! How the queue of plain hosts moves.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::parse;
use super::record::{self, Answers, Record};
use super::{Held, Hosts, MOST_RECORD, now, remote, ssh};
use crate::command::Output;
use crate::{BatchError, End, Word, script};

/// Most hosts that are asked at once.
const AT_ONCE: usize = 16;
/// Most bytes of a pilot's log here.
const MOST_LOG: u64 = 1 << 20;
/// For how long it is known how a pilot ended.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

/// What an advance of the queue has found.
pub(super) struct Advanced {
    pub(super) looked: Answers,
    pub(super) running: BTreeMap<Word, Vec<String>>,
}

impl Hosts {
    /// Runs a script on a host.
    async fn on(&self, address: &str, text: String) -> Result<Output, BatchError> {
        ssh::on(&self.runner, &self.options, address, text).await
    }

    /// Looks at all hosts. `None` stands for one that doesn't answer.
    async fn look(&self) -> Answers {
        let places = Arc::new(Semaphore::new(AT_ONCE));
        let mut asked = JoinSet::new();
        for host in &self.hosts {
            let (runner, options, places) = (self.runner.clone(), self.options.clone(), places.clone());
            let (address, text) = (host.address.to_string(), remote::look(&host.address));
            asked.spawn(async move {
                let _place = places.acquire_owned().await;
                let output = ssh::on(&runner, &options, &address, text).await.ok().filter(Output::is_ok);
                (address, output.and_then(|output| parse::looked(&output.out).ok()))
            });
        }
        let mut looked: BTreeMap<_, _> =
            self.hosts.iter().map(|host| (host.address.to_string(), None)).collect();
        while let Some(answer) = asked.join_next().await {
            if let Ok((address, answer)) = answer {
                looked.insert(address, answer);
            }
        }
        looked
    }

    /// Takes note of what the hosts say, removes what has ended, and starts who is next. Returns the
    /// hosts' answers, and on which hosts each pilot runs.
    pub(super) async fn advance(&self, held: &mut Held) -> Result<Advanced, BatchError> {
        let looked = self.look().await;
        let mut running = BTreeMap::new();
        for (name, record) in &mut held.records {
            let before = record.clone();
            if record.runs() {
                running.insert(name.clone(), record.heard(now(), &looked));
            }
            self.clean(name, record, Some(&looked)).await?;
            if *record != before {
                self.keep(name, record)?;
            }
        }
        let old = |record: &Record| {
            let gone = |at| now().saturating_sub(at) > KEPT.as_secs();
            record.unclean.is_empty() && record.end.as_ref().is_some_and(|end| gone(end.at))
        };
        let old: Vec<_> =
            held.records.iter().filter(|(_, record)| old(record)).map(|(name, _)| name.clone()).collect();
        for name in old {
            held.records.remove(&name);
            self.private.remove(&name, &["pilot", "secret", "log"])?;
        }
        let mut waiting: Vec<_> = held
            .records
            .iter()
            .filter(|(_, record)| record.waits())
            .map(|(name, record)| (record.number, name.clone()))
            .collect();
        waiting.sort_unstable();
        for (_, name) in waiting {
            let all = held.all();
            let Some(record) = held.records.get_mut(&name) else { continue };
            // Who comes later waits, even if there is room for it.
            let Some(places) = record::places(record, &self.hosts, &looked, &all) else { break };
            self.start(&name, record, places).await?;
            running.insert(name.clone(), record.hosts.clone());
        }
        Ok(Advanced { looked, running })
    }

    /// Starts a pilot on all of these hosts, or on none.
    async fn start(&self, name: &Word, record: &mut Record, places: Vec<String>) -> Result<(), BatchError> {
        let secret = self.private.read(name, "secret", MOST_RECORD)?.unwrap_or_default();
        record.hosts = places;
        record.started = Some(now());
        // Kept before anything starts: what is started is never forgotten.
        self.keep(name, record)?;
        let mut started = JoinSet::new();
        let places = Arc::new(Semaphore::new(AT_ONCE));
        for address in &record.hosts {
            let Some(host) = self.hosts.iter().find(|known| known.address.as_str() == address) else {
                continue;
            };
            let path = remote::secret_path(&host.address, name);
            let script = script::of_node(&record.script, (!secret.is_empty()).then_some(path.as_str()));
            let text = remote::start(&host.address, name, record.number, record.seconds, &script, &secret);
            let (runner, options, places) = (self.runner.clone(), self.options.clone(), places.clone());
            let address = address.clone();
            started.spawn(async move {
                let _place = places.acquire_owned().await;
                let said = match ssh::on(&runner, &options, &address, text).await {
                    Ok(output) if output.is_ok() => return None,
                    Ok(output) => output.reason(),
                    Err(error) => error.to_string(),
                };
                Some(format!("it could not be started on {address}: {said}"))
            });
        }
        while let Some(answer) = started.join_next().await {
            let said = answer.unwrap_or_else(|error| Some(error.to_string()));
            if let Some(said) = said.filter(|_| record.end.is_none()) {
                record.ended(now(), &End::Other { said });
            }
        }
        if record.end.is_some() {
            self.clean(name, record, None).await?;
        }
        self.keep(name, record)
    }

    /// Ends what runs of a pilot that has ended, and removes its files. Of hosts that were looked at,
    /// only those that answered are asked.
    pub(super) async fn clean(
        &self,
        name: &Word,
        record: &mut Record,
        looked: Option<&Answers>,
    ) -> Result<(), BatchError> {
        let mut left = Vec::new();
        for address in std::mem::take(&mut record.unclean) {
            // A host that was taken from the list is left as it is.
            let Some(host) = self.hosts.iter().find(|host| host.address.as_str() == address) else {
                continue;
            };
            if looked.is_some_and(|looked| matches!(looked.get(&address), Some(None))) {
                left.push(address);
                continue;
            }
            match self.on(&address, remote::stop(&host.address, name)).await {
                Ok(output) if output.is_ok() => self.log(name, &address, &output.out)?,
                _ => left.push(address),
            }
        }
        record.unclean = left;
        if record.end.is_some() {
            self.private.remove(name, &["secret"])?;
        }
        Ok(())
    }

    /// Adds what a pilot wrote on a host to its log here.
    fn log(&self, name: &Word, address: &str, text: &str) -> Result<(), BatchError> {
        if text.is_empty() {
            return Ok(());
        }
        let mut log = self.private.read(name, "log", MOST_LOG)?.unwrap_or_default();
        log.extend_from_slice(format!("{address}:\n{text}\n").as_bytes());
        // More hosts than this has room for say nothing new.
        log.truncate(MOST_LOG as usize);
        self.private.write(name, "log", &log).map(drop)
    }
}
