//! What a node of a batch job is told that is to run an agent: one line of JSON.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::PilotId;

/// Most characters that are told of what a node says.
const LONGEST: usize = 600;

/// What a node of a batch job is told. It holds a token, and so is a secret.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Order {
    /// Name of the cluster; may be empty.
    pub cluster: String,
    /// The state directory that the agents' own are in; `None` for each node's default.
    pub state: Option<PathBuf>,
    /// A join token for nodes that aren't members of the grid yet.
    pub token: Option<String>,
    /// Where such nodes enrol, and attach from then on.
    pub via: Option<String>,
    /// Whether the agents end with the standard input on which the order came. Otherwise they end
    /// with the batch job.
    pub tethered: bool,
    /// The pilot that the node is of; `None` in a batch job that the user has submitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pilot: Option<Of>,
}

/// The pilot that a node is of.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Of {
    /// Names the pilot.
    pub id: PilotId,
    /// Grid name of the node whose agent has submitted the pilot. The pilot's nodes tell it that they
    /// are there.
    pub submitter: String,
    /// The virtual address of that node.
    pub address: Ipv4Addr,
}

/// What a node of a batch job says of its agent: one line of JSON.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Word {
    /// The node's agent is attached.
    Ready(AllocatedNode),
    /// There is no agent.
    Failed {
        /// The node's name at the scheduler.
        host: String,
        /// Why there is none.
        reason: String,
    },
}

/// An agent on a node of a batch job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AllocatedNode {
    /// The node's name at the scheduler.
    pub host: String,
    /// The node's name in the grid.
    pub name: String,
    /// The agent's Unix socket, as the node sees it.
    pub socket: PathBuf,
}

/// The first node that has written that it has no agent, and why.
pub(crate) fn failure(written: &str) -> Option<(String, String)> {
    let short = |text: String| text.chars().take(LONGEST).collect();
    written.lines().find_map(|line| match serde_json::from_str(line) {
        Ok(Word::Failed { host, reason }) => Some((short(host), short(reason))),
        _ => None,
    })
}

/// The script that a pilot runs on each of its nodes: `isthmus` at this path becomes the node's agent.
/// It finds its [`Order`] in the pilot's [secret](isthmus_batch::pilot::SECRET_VARIABLE).
pub fn script(isthmus: &Path) -> String {
    let path = isthmus.display().to_string().replace('\'', r"'\''");
    format!("exec '{path}' allocated\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_one_word_of_the_script() {
        for (path, want) in [
            ("/usr/bin/isthmus", "exec '/usr/bin/isthmus' allocated\n"),
            ("/home/o'b $x/isthmus", "exec '/home/o'\\''b $x/isthmus' allocated\n"),
        ] {
            assert_eq!(script(Path::new(path)), want);
        }
    }

    #[test]
    fn a_node_that_fails_says_why() {
        let failed = r#"{"failed":{"host":"n2","reason":"no room"}}"#;
        let ready = r#"{"ready":{"host":"n1","name":"n1-ada-p1.alpha","socket":"/x"}}"#;
        let written = format!("srun: noise\n{ready}\n{failed}\n");
        assert_eq!(failure(&written), Some(("n2".to_owned(), "no room".to_owned())));
        assert_eq!(failure(ready), None);
    }

    #[test]
    fn an_order_is_one_line() {
        let pilot = Some(Of {
            id: PilotId([7; 16]),
            submitter: "login1-ada.alpha".to_owned(),
            address: Ipv4Addr::new(240, 64, 1, 2),
        });
        let token = Some("isthmus-pilot-1.a\nb".to_owned());
        let (cluster, state, via) = ("alpha".to_owned(), None, Some("login1:7710".to_owned()));
        let order = Order { cluster, state, token, via, tethered: false, pilot };
        let line = serde_json::to_string(&order).unwrap();
        assert!(!line.contains('\n'), "{line}");
        let read: Order = serde_json::from_str(&line).unwrap();
        assert_eq!((read.pilot, read.token), (order.pilot, order.token));
    }
}
