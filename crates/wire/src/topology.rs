//! What the MPI library is told of a job: a text file in the job's directory. Its format is
//! described in docs/collectives.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::settings::Host;
use crate::{GridName, Label};

/// Most levels that the grid's configuration may name between the grid and its sites.
pub const LEVELS_MAX: usize = 7;
/// Most sites of a job.
pub const SITES_MAX: usize = 1000;
/// Most paths between the sites of a job.
pub const PATHS_MAX: usize = 10_000;
/// Most groups of a job.
pub const GROUPS_MAX: usize = 1000;
/// The file name of the MPI library.
pub const LIBRARY: &str = "libisthmus_mpi.so";
/// The name of the topology's file in the job's directory.
pub const FILE_NAME: &str = "topology";
/// The directory, within the job's directory, in which ranks report.
pub const REPORTS: &str = "mpi";

/// A job's topology but for its nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Topology {
    /// Levels between the grid and its sites, the widest first.
    pub levels: Vec<Label>,
    /// The places of each site, one per level. A site that is missing is by itself.
    pub sites: BTreeMap<Label, Vec<Label>>,
    /// What was measured between sites.
    pub paths: Vec<Path>,
    /// The groups that the job's profile asks for, in the order of ranks.
    pub groups: Vec<Group>,
    /// Whether the program's topologies may have their ranks in another order.
    pub reorder: bool,
}

/// What was measured between two sites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Path {
    /// The two sites that the path joins.
    pub sites: [Label; 2],
    /// The round trip, in microseconds.
    pub round_trip_us: u64,
    /// The throughput of a single connection in one direction; 0 is not measured.
    pub bytes_per_second: u64,
}

/// Ranks that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Group {
    /// The name of the group.
    pub name: Label,
    /// How many ranks the group has. They follow the ranks of the groups before it.
    pub ranks: u32,
}

impl Topology {
    /// The file for the node `own` of a job with these nodes.
    pub fn file(&self, nodes: &[Host], own: &GridName) -> String {
        let mut text = String::from("isthmus topology 1\n");
        let mut line = |words: &[&str]| {
            // Into a string nothing fails.
            let _ = writeln!(text, "{}", words.join(" "));
        };
        if !self.levels.is_empty() {
            let levels = self.levels.iter().map(Label::as_str);
            line(&std::iter::once("levels").chain(levels).collect::<Vec<_>>());
        }
        let mut sites: Vec<&Label> = nodes.iter().map(|node| &node.name.site).collect();
        sites.sort();
        sites.dedup();
        for site in &sites {
            // No place has a point in its name. So a site without places is by itself.
            let alone = format!("site.{site}");
            let places = match self.sites.get(site) {
                Some(places) => places.iter().map(Label::as_str).collect(),
                None => vec![alone.as_str(); self.levels.len()],
            };
            line(&["site", site.as_str()].into_iter().chain(places).collect::<Vec<_>>());
        }
        for node in nodes {
            line(&["node", &node.name.to_string(), node.name.site.as_str()]);
        }
        for Path { sites: [a, b], round_trip_us, bytes_per_second } in &self.paths {
            if sites.binary_search(&a).is_ok() && sites.binary_search(&b).is_ok() {
                let (time, rate) = (round_trip_us.to_string(), bytes_per_second.to_string());
                line(&["path", a.as_str(), b.as_str(), &time, &rate]);
            }
        }
        for group in &self.groups {
            line(&["group", group.name.as_str(), &group.ranks.to_string()]);
        }
        if self.reorder {
            line(&["reorder"]);
        }
        line(&["self", &own.to_string()]);
        text
    }
}

#[cfg(feature = "grpc")]
mod wire {
    use super::{GROUPS_MAX, Group, LEVELS_MAX, PATHS_MAX, Path, SITES_MAX, Topology};
    use crate::{DecodeError, Label, proto};

    fn malformed(reason: impl Into<String>) -> DecodeError {
        DecodeError { message: "topology", reason: reason.into() }
    }

    fn label(text: &str) -> Result<Label, DecodeError> {
        text.parse().map_err(|error| malformed(format!("{text:?}: {error}")))
    }

    impl TryFrom<proto::Topology> for Topology {
        type Error = DecodeError;

        fn try_from(message: proto::Topology) -> Result<Self, DecodeError> {
            let proto::Topology { levels, sites, paths, groups, reorder } = message;
            for (what, got, limit) in [
                ("levels", levels.len(), LEVELS_MAX),
                ("sites", sites.len(), SITES_MAX),
                ("paths", paths.len(), PATHS_MAX),
                ("groups", groups.len(), GROUPS_MAX),
            ] {
                if got > limit {
                    return Err(malformed(format!("{got} {what}, at most {limit} may be sent")));
                }
            }
            let labels =
                |texts: &[String]| texts.iter().map(|text| label(text)).collect::<Result<Vec<_>, _>>();
            let levels = labels(&levels)?;
            let site = |site: &proto::SitePlace| {
                let places = labels(&site.places)?;
                if places.len() == levels.len() {
                    Ok((label(&site.site)?, places))
                } else {
                    Err(malformed(format!("{} places of {levels:?} for {:?}", places.len(), site.site)))
                }
            };
            let path = |path: &proto::SitePath| {
                let sites = [label(&path.from)?, label(&path.to)?];
                let proto::SitePath { round_trip_us, bytes_per_second, .. } = *path;
                Ok(Path { sites, round_trip_us, bytes_per_second })
            };
            let group = |group: &proto::Group| Ok(Group { name: label(&group.name)?, ranks: group.ranks });
            Ok(Self {
                sites: sites.iter().map(site).collect::<Result<_, _>>()?,
                paths: paths.iter().map(path).collect::<Result<_, DecodeError>>()?,
                groups: groups.iter().map(group).collect::<Result<_, DecodeError>>()?,
                levels,
                reorder,
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VirtualAddress;

    fn label(text: &str) -> Label {
        text.parse().unwrap()
    }

    #[test]
    fn the_file_names_what_the_job_has() {
        let hosts: Vec<_> = ["n1.beta", "n1.alpha", "n2.alpha"]
            .iter()
            .zip(1..)
            .map(|(name, last)| Host {
                address: VirtualAddress::new([240, 64, 1, last].into()).unwrap(),
                name: name.parse().unwrap(),
            })
            .collect();
        let path = |a, b| Path { sites: [label(a), label(b)], round_trip_us: 10_600, bytes_per_second: 0 };
        let topology = Topology {
            levels: vec![label("region"), label("campus")],
            sites: [(label("alpha"), vec![label("eu"), label("orsay")])].into(),
            paths: vec![path("alpha", "beta"), path("alpha", "gamma")],
            groups: vec![Group { name: label("workers"), ranks: 3 }],
            reorder: true,
        };
        let want = "isthmus topology 1\nlevels region campus\nsite alpha eu orsay\nsite beta site.beta site.beta\n\
             node n1.beta beta\nnode n1.alpha alpha\nnode n2.alpha alpha\npath alpha beta 10600 0\n\
             group workers 3\nreorder\nself n2.alpha\n";
        assert_eq!(topology.file(&hosts, &"n2.alpha".parse().unwrap()), want);
        let want = "isthmus topology 1\nsite beta\nnode n1.beta beta\nself n1.beta\n";
        assert_eq!(Topology::default().file(&hosts[..1], &"n1.beta".parse().unwrap()), want);
    }

    #[cfg(feature = "grpc")]
    #[test]
    fn messages_are_checked() {
        use crate::proto;
        let good = proto::Topology {
            levels: vec!["region".to_owned()],
            sites: vec![proto::SitePlace { site: "alpha".to_owned(), places: vec!["eu".to_owned()] }],
            paths: vec![proto::SitePath {
                from: "alpha".to_owned(),
                to: "beta".to_owned(),
                round_trip_us: 7,
                bytes_per_second: 9,
            }],
            groups: vec![proto::Group { name: "masters".to_owned(), ranks: 1 }],
            reorder: true,
        };
        let read = Topology::try_from(good.clone()).unwrap();
        assert_eq!(read.sites.get(&label("alpha")).unwrap(), &[label("eu")]);
        assert_eq!((read.paths[0].round_trip_us, read.paths[0].bytes_per_second), (7, 9));
        assert_eq!(read.groups, [Group { name: label("masters"), ranks: 1 }]);
        assert!(read.reorder);
        let bad: [fn(&mut proto::Topology); 6] = [
            |topology| topology.levels = vec!["a".to_owned(); LEVELS_MAX + 1],
            |topology| topology.groups = vec![proto::Group::default(); GROUPS_MAX + 1],
            |topology| topology.levels[0] = "eu\nself n1.alpha".to_owned(),
            |topology| topology.sites[0].places.clear(),
            |topology| topology.paths[0].to = "b c".to_owned(),
            |topology| topology.groups[0].name = String::new(),
        ];
        for spoil in bad {
            let mut message = good.clone();
            spoil(&mut message);
            assert!(Topology::try_from(message.clone()).is_err(), "{message:?}");
        }
    }
}
