//! Whether this user can run labs here: by running two small ones.

use serde::Serialize;

use crate::grid::Grid;
use crate::lab::{Lab, LabError, Options};
use crate::rootless;

/// What the check of this machine found.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    /// Whether labs run with root's rights. Otherwise they run in a user namespace.
    pub as_root: bool,
    /// Why this machine can have no labs. `None` if it can.
    pub labs: Option<String>,
    /// Why links can't have delay, rate or loss. `None` if they can.
    pub emulated_links: Option<String>,
}

impl Report {
    /// Whether labs and emulated links both work.
    pub(crate) fn all_works(&self) -> bool {
        self.labs.is_none() && self.emulated_links.is_none()
    }
}

/// Brings up a lab with what every lab has, and one with an emulated link.
pub(crate) fn check() -> Report {
    let as_root = rootless::has_root_rights();
    let labs = attempt("").err().map(|error| error.to_string());
    let emulated_links = match &labs {
        Some(_) => Some("there are no labs".to_owned()),
        None => attempt("link = { delay = \"1 ms\" }").err().map(|error| error.to_string()),
    };
    Report { as_root, labs, emulated_links }
}

fn attempt(link: &str) -> Result<(), LabError> {
    let text = format!(
        "[[site]]\nname = \"site\"\nkind = \"nat\"\nsubnet = \"192.168.1.0/24\"\n{link}\n\
         nodes = [{{ name = \"n1\" }}]\n"
    );
    let name = format!("check-{}", std::process::id());
    let grid = Grid::parse(&text, "check", &name).map_err(|error| LabError::Failed(error.to_string()))?;
    let options = Options { services: false, ..Options::default() };
    Lab::up_with(&grid, &options)?.down()
}
