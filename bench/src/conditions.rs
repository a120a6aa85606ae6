//! Where, when and with what it was measured.

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

/// The machine and the tools that results come from.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Conditions {
    /// How many cores the machine has.
    pub cores: usize,
    /// Name of the processor. Empty if the kernel doesn't tell it.
    pub cpu: String,
    /// Release of the kernel.
    pub kernel: String,
    /// TCP congestion control that connections use by default.
    pub congestion_control: String,
    /// When the results were written, in UTC.
    pub date: String,
    /// Load over 1, 5 and 15 minutes at the end (proc(5), /proc/loadavg), the
    /// benchmark's own included.
    pub load_average: String,
    /// Versions of isthmus and the tools that were measured, by their names.
    pub versions: BTreeMap<String, String>,
    /// What else a reader should know about the run.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub remarks: Vec<String>,
}

impl Conditions {
    /// The conditions of this machine at this moment. Each of `tools` has the argument that makes
    /// it print its version. It is listed without its directory.
    pub(crate) fn here(tools: &[(String, &str)]) -> Self {
        let cpu = read("/proc/cpuinfo").lines().find_map(|line| {
            line.strip_prefix("model name")?.split_once(": ").map(|(_, name)| name.to_owned())
        });
        let versions = std::iter::once(("isthmus".to_owned(), env!("CARGO_PKG_VERSION").to_owned()))
            .chain(tools.iter().map(|(tool, argument)| {
                let name = tool.rsplit_once('/').map_or(tool.as_str(), |(_, name)| name);
                (name.to_owned(), version(tool, argument))
            }))
            .collect();
        let mut conditions = Self {
            cores: cores(),
            cpu: cpu.unwrap_or_default(),
            kernel: read("/proc/sys/kernel/osrelease"),
            congestion_control: congestion_control(),
            date: String::new(),
            load_average: String::new(),
            versions,
            remarks: Vec::new(),
        };
        conditions.stamp();
        conditions
    }

    /// Whether these are of a machine alike, so that rounds on both add up.
    pub(crate) fn is_same_machine(&self, other: &Self) -> bool {
        self.cores == other.cores
            && self.cpu == other.cpu
            && self.congestion_control == other.congestion_control
    }

    /// Sets date and load to those of this moment.
    pub(crate) fn stamp(&mut self) {
        self.date = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
        self.load_average = read("/proc/loadavg").split(' ').take(3).collect::<Vec<_>>().join(" ");
    }
}

/// The congestion control of connections whose programs choose none.
pub(crate) fn congestion_control() -> String {
    read("/proc/sys/net/ipv4/tcp_congestion_control")
}

/// How many cores this machine has.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// The version of a tool: the first word with a digit in front that it prints.
fn version(tool: &str, argument: &str) -> String {
    let Ok(output) = Command::new(tool).arg(argument).output() else { return "unknown".into() };
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    text.split_whitespace()
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()) && word.contains('.'))
        .unwrap_or("unknown")
        .to_owned()
}
