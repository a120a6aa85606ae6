//! Changing what a link does to packets while it runs.

use super::FaultError;
use crate::emulator::control;
use crate::grid::{Grid, Link};
use crate::lab::Running;

impl Running {
    /// Changes what a link does, in the terms of a grid file's link table. Each change is
    /// `KEY=VALUE` for both directions, or `up.KEY=VALUE` or `down.KEY=VALUE` for one direction.
    /// What isn't named stays. Returns the link as it is afterwards.
    pub fn set_link(&self, name: &str, changes: &[impl AsRef<str>]) -> Result<Link, FaultError> {
        self.reshape(name, |link| Ok(link.changed(changes)?))
    }

    fn reshape(
        &self,
        name: &str,
        change: impl FnOnce(&Link) -> Result<Link, FaultError>,
    ) -> Result<Link, FaultError> {
        self.change(|record| {
            let links = || record.lines.iter().filter(|line| line.to_wan);
            let Some(line) = links().find(|line| line.name.eq_ignore_ascii_case(name)) else {
                return Err(FaultError::UnknownLink {
                    lab: record.grid.name.clone(),
                    name: name.to_owned(),
                    known: links().map(|line| line.name.clone()).collect(),
                });
            };
            // A link without a shape has no emulator that could change it.
            let (line, emulated) = (line.name.clone(), line.emulated);
            let Some(link) = link_mut(&mut record.grid, &line).filter(|_| emulated) else {
                return Err(FaultError::Plain(line));
            };
            let changed = change(link)?;
            control::set(&self.directory().emulator_socket(), &line, &changed)?;
            *link = changed;
            Ok(changed)
        })
    }
}

/// The link to the wide area that has the name `HOST`, `SITE` or `SITE/RAIL`. `None` if the grid
/// has none.
fn link_mut<'a>(grid: &'a mut Grid, name: &str) -> Option<&'a mut Link> {
    if let Some(host) = grid.hosts.iter_mut().find(|host| host.name == name) {
        return Some(&mut host.link);
    }
    let (site, rail) = match name.split_once('/') {
        Some((site, rail)) => (site, Some(rail)),
        None => (name, None),
    };
    let site = grid.sites.iter_mut().find(|other| other.name == site)?;
    match rail {
        None => Some(&mut site.link),
        Some(rail) => {
            let rail = site.rails.iter_mut().find(|other| other.name == rail)?;
            Some(&mut rail.uplink.as_mut()?.link)
        }
    }
}
