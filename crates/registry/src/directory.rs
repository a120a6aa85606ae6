//! The directory: the relays and gateways that agents and gateways measure against.
//! It is one small record for the whole grid. Gateways receive it when they attach
//! and when it has changed, and pass it on to their agents.

use isthmus_wire::bounds::{DIRECTORY_GATEWAYS, DIRECTORY_RELAYS};
use isthmus_wire::proto::{self, attach_down};

use super::site::grid_name;
use super::{Effect, Party, Registry};

impl Registry {
    /// The present directory, with the revision that was sent last.
    fn directory(&self) -> proto::Directory {
        let relays = self.attached_relays().map(|(name, relay)| entry(name.to_string(), &relay.address));
        let gateways = self.sites.iter().flat_map(|(site, entry)| {
            entry.attached().map(move |(name, gateway)| (grid_name(name, site), &gateway.outside_address))
        });
        let gateways = gateways.filter(|(_, address)| !address.is_empty());
        proto::Directory {
            revision: self.directory.revision,
            relays: relays.take(DIRECTORY_RELAYS).collect(),
            gateways: gateways.map(|(name, at)| entry(name, at)).take(DIRECTORY_GATEWAYS).collect(),
            probe_interval_s: 0,
            relay_places: Vec::new(),
        }
    }

    /// The directory for a gateway that has just attached.
    pub(super) fn directory_for(&self, to: Party) -> Effect {
        Effect::Send { to, message: attach_down::Kind::Directory(self.directory.clone()) }
    }

    /// Sends the directory to all gateways if it has changed since it was last sent. To be called a
    /// few times a second, so that changes at almost the same time are sent together.
    pub fn directory_due(&mut self) -> Vec<Effect> {
        let directory = self.directory();
        if directory == self.directory {
            return Vec::new();
        }
        self.directory = proto::Directory { revision: directory.revision + 1, ..directory };
        let gateways = self.sites.iter().flat_map(|(site, entry)| entry.parties(site));
        gateways.map(|to| self.directory_for(to)).collect()
    }
}

fn entry(name: String, address: &str) -> proto::DirectoryEntry {
    proto::DirectoryEntry { name, address: address.to_owned() }
}
