//! Ready-made grids, to try something at once or to begin a grid file with.

use crate::grid::{Grid, GridError};

/// A ready-made grid that comes with the program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preset {
    /// Name of the preset, and of its lab.
    pub name: &'static str,
    /// Text of the grid file.
    pub text: &'static str,
}

/// No preset has the requested name.
#[derive(Debug, thiserror::Error)]
#[error("no preset {name:?}; there are: {known}", known = PRESETS.iter().map(|preset| preset.name).collect::<Vec<_>>().join(", "))]
pub(crate) struct UnknownPreset {
    /// The requested name, which no preset has.
    pub name: String,
}

macro_rules! presets {
    ($($name:literal)*) => {
        &[$(Preset { name: $name, text: include_str!(concat!("presets/", $name, ".toml")) }),*]
    };
}

/// All presets, the simplest first.
pub(crate) const PRESETS: &[Preset] = presets! {
    "two-nats"
    "symmetric-nats"
    "carrier-nat"
    "nat-and-firewall"
    "two-clusters"
    "three-sites"
    "lossy-wan"
    "intercontinental"
    "supercomputer"
    "multi-rail"
    "two-slurms"
};

impl Preset {
    /// The preset of this name.
    pub(crate) fn find(name: &str) -> Result<&'static Self, UnknownPreset> {
        PRESETS
            .iter()
            .find(|preset| preset.name == name)
            .ok_or_else(|| UnknownPreset { name: name.to_owned() })
    }

    /// What the preset is for, in one sentence: the first line of its file.
    pub(crate) fn summary(&self) -> &'static str {
        self.text.lines().next().unwrap_or_default().trim_start_matches(['#', ' '])
    }

    /// The preset's grid, for a lab that is called like the preset.
    pub(crate) fn grid(&self) -> Result<Grid, GridError> {
        Grid::parse(self.text, &format!("preset {}", self.name), self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grid::Role;

    #[test]
    fn every_preset_is_a_grid_with_all_that_isthmus_needs() {
        for preset in PRESETS {
            let grid = preset.grid().unwrap_or_else(|error| panic!("{error}"));
            assert_eq!(grid.name, preset.name);
            assert!(preset.text.starts_with("# "), "{}: no summary", preset.name);
            assert!(preset.summary().len() <= 95, "{}: {}", preset.name, preset.summary());
            let has = |role| grid.machines().any(|(_, roles)| roles.contains(&role));
            for role in [Role::Broker, Role::Relay, Role::Gateway, Role::Agent] {
                assert!(has(role), "{}: no {role:?}", preset.name);
            }
        }
    }

    #[test]
    fn an_unknown_preset_is_told_the_others() {
        let error = Preset::find("two-nuts").unwrap_err().to_string();
        assert!(error.contains("two-nats, symmetric-nats"), "{error}");
    }
}
