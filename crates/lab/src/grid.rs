//! The description of an emulated grid: a grid file, read and checked.
//!
//! ```toml
//! [[host]]                          # a machine directly on the internet
//! name = "hub"
//! roles = ["broker", "relay"]
//!
//! [[site]]
//! name = "alpha"
//! kind = "nat"
//! link = { delay = "2.5 ms", rate = "1 Gbit/s", queue = "256 KiB" }
//! nodes = [{ name = "n1", roles = ["gateway", "agent"] }, { name = "n2", roles = ["agent"] }]
//! ```
//! `docs/lab.md` describes every key.

mod build;
mod change;
mod check;
mod error;
mod file;
mod links;
mod model;
mod ports;
mod slow;

use std::path::Path;

use isthmus_wire::Label;

pub use isthmus_common::quantity::{BitRate, ByteSize, Delay, QuantityError, Share};

pub use build::{GridBuilder, HostBuilder, LinkBuilder, NodeBuilder, RailBuilder, SiteBuilder};
pub use change::ChangeError;
pub(crate) use change::LINK_KEYS;
pub use error::GridError;
pub use model::{
    Forward, Grid, Host, Link, LinkShape, Loss, Node, Rail, Role, Site, SiteKind, Unsolicited, Uplink, Wan,
};
pub use ports::{PortRange, PortRangeError};
pub(crate) use slow::KERNEL_TIMES;
pub use slow::{Slow, SlowError};

use error::Fault;

impl Grid {
    /// Reads and checks a grid file. If the file doesn't name its lab, the lab has the file's name
    /// without its extension.
    pub fn load(path: &Path) -> Result<Self, GridError> {
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
        Self::parse(&Self::read(path)?, &path.display().to_string(), &stem)
    }

    /// Reads and checks a grid file for a lab that is called `name`, whatever the file says.
    pub(crate) fn load_as(path: &Path, name: &Label) -> Result<Self, GridError> {
        let grid = Self::parse(&Self::read(path)?, &path.display().to_string(), name.as_str())?;
        Ok(Self { name: name.to_string(), ..grid })
    }

    fn read(path: &Path) -> Result<String, GridError> {
        std::fs::read_to_string(path).map_err(|cause| GridError::Read { path: path.to_owned(), cause })
    }

    /// Reads and checks a grid file's text. Messages call the file `origin`. If the text doesn't
    /// name its lab, the lab is called `default_name`.
    pub fn parse(text: &str, origin: &str, default_name: &str) -> Result<Self, GridError> {
        toml::from_str(text)
            .map_err(|error| Fault::of_syntax(&error))
            .and_then(|file| check::check(file, default_name))
            .map_err(|fault| GridError::of(fault, origin, text))
    }
}

#[cfg(test)]
mod tests;
