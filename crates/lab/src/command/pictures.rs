//! `isthmus lab presets` and `isthmus lab graph`.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use clap_complete::engine::ArgValueCandidates;

use super::{complete, output};
use crate::faults::FaultRecord;
use crate::graph;
use crate::grid::{Grid, GridError};
use crate::lab::Running;
use crate::presets::{PRESETS, Preset};

/// Where a grid comes from.
#[derive(Debug, clap::Args)]
pub struct Source {
    /// The grid file (TOML).
    #[arg(conflicts_with = "preset")]
    file: Option<PathBuf>,
    /// A ready-made grid instead of a file; `isthmus lab presets` lists them.
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::presets))]
    preset: Option<String>,
}

impl Source {
    /// The named grid. `None` if the options name none. `name` replaces the grid's own name of the
    /// lab.
    pub(super) fn grid(&self, name: Option<&isthmus_wire::Label>) -> anyhow::Result<Option<Grid>> {
        let grid = match (&self.file, &self.preset, name) {
            (Some(file), _, Some(name)) => Grid::load_as(file, name).map_err(|error| hinted(error, file))?,
            (Some(file), _, None) => Grid::load(file).map_err(|error| hinted(error, file))?,
            (None, Some(preset), name) => {
                let grid = Preset::find(preset)?.grid()?;
                Grid { name: name.map_or(grid.name.clone(), ToString::to_string), ..grid }
            }
            (None, None, _) => return Ok(None),
        };
        Ok(Some(grid))
    }
}

/// The error of a grid file. If the file can't be read and a preset has its name, the error
/// mentions the preset.
fn hinted(error: GridError, file: &Path) -> anyhow::Error {
    let preset = file.to_str().and_then(|name| Preset::find(name).ok());
    match (&error, preset) {
        (GridError::Read { .. }, Some(Preset { name, .. })) => {
            anyhow!("{error}; the preset of this name: --preset {name}")
        }
        _ => error.into(),
    }
}

/// Help text on ready-made grids.
#[derive(Debug, clap::Args)]
pub struct PresetsArgs {
    /// Print this one's grid file, to begin one's own with.
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(complete::presets))]
    show: Option<String>,
}

/// The grid to draw.
#[derive(Debug, clap::Args)]
pub struct GraphArgs {
    /// Where the grid comes from.
    #[command(flatten)]
    source: Source,
    /// A running lab, with what is cut or frozen in it [default: the only one, if no grid is given].
    #[arg(long = "lab", value_name = "NAME", conflicts_with_all = ["file", "preset"], value_parser = super::lab_name, add = ArgValueCandidates::new(complete::labs))]
    lab: Option<String>,
    /// Write to this file [default: standard output].
    #[arg(long, value_name = "FILE.svg")]
    out: Option<PathBuf>,
}

pub(super) fn presets(args: &PresetsArgs) -> anyhow::Result<ExitCode> {
    match &args.show {
        Some(name) => output::print(Preset::find(name)?.text)?,
        None => {
            let widest = PRESETS.iter().map(|preset| preset.name.len()).max().unwrap_or(0);
            let line = |preset: &Preset| format!("{:widest$}  {}\n", preset.name, preset.summary());
            output::print(PRESETS.iter().map(line).collect::<String>())?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn graph(args: &GraphArgs) -> anyhow::Result<ExitCode> {
    let (grid, faults) = match args.source.grid(None)? {
        Some(grid) => (grid, FaultRecord::default()),
        None => {
            let found = Running::find(args.lab.as_deref());
            let lab = match &args.lab {
                Some(_) => found?,
                None => found.context("nothing to draw: give a grid file, --preset NAME or --lab NAME")?,
            };
            let record = lab.record()?;
            (record.grid, record.faults)
        }
    };
    let picture = graph::svg(&grid, &faults);
    match &args.out {
        Some(path) => {
            let written = output::create(path, 0o666).and_then(|mut file| file.write_all(picture.as_bytes()));
            written.with_context(|| format!("cannot write {}", path.display()))?
        }
        None => output::print(picture)?,
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_without_its_option_is_hinted_at() {
        for (name, hinted) in [("two-nats", true), ("no-such-grid", false)] {
            let source = Source { file: Some(name.into()), preset: None };
            let error = source.grid(None).unwrap_err().to_string();
            assert!(error.starts_with(&format!("cannot read grid file {name}: ")), "{error}");
            assert_eq!(error.ends_with("; the preset of this name: --preset two-nats"), hinted, "{error}");
        }
    }
}
