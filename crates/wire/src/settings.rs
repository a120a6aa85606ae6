//! The shim's settings: a text file `shim.conf` beside the shim itself in the job's
//! directory. It is a file rather than the environment, because launchers clear the
//! environment.
//!
//! ```text
//! virtual 240.64.1.2
//! name n1.alpha
//! interface eth0
//! black-hole 40123
//! connect-limits 127 900
//! host 240.64.1.2 n1.alpha
//! host 240.64.2.1 n1.beta
//! ```
//!
//! One `key value…` per line; unknown keys are ignored.

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use crate::{DecodeError, GridName, NameError, VirtualAddress};

/// Name of the settings file within the job's directory.
pub const FILE_NAME: &str = "shim.conf";
/// File name, within a job's directory, of the cookies of connects over loopback.
pub const CONNECTS_NAME: &str = "connects";
/// How many cookies the file of connects has room for, of 8 bytes each.
pub const CONNECTS: usize = 8192;
/// Name of the job's Unix socket within the job's directory.
pub const SOCKET_NAME: &str = "agent.sock";

/// A shim's settings: its job and its node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The node's own virtual address.
    pub virtual_address: VirtualAddress,
    /// The node's grid name.
    pub name: GridName,
    /// Name of the network interface that appears to hold the virtual address.
    pub interface: String,
    /// Port of the agent's black-hole listener at
    /// [`BLACK_HOLE`](crate::address::BLACK_HOLE).
    pub black_hole_port: u16,
    /// How long connections to other nodes may take.
    pub connect_limits: ConnectLimits,
    /// The nodes of the job.
    pub hosts: Vec<Host>,
}

/// How long a connection to another node may take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectLimits {
    /// The usual limit: as long as the node's kernel would try, unless a program says otherwise.
    pub kernel: Duration,
    /// The limit while a cut lasts: how long the agent may try then. It is no less than `kernel`.
    pub cut: Duration,
}

impl Default for ConnectLimits {
    /// The limits of Linux (tcp(7), `tcp_syn_retries`). No cut is waited for.
    fn default() -> Self {
        let kernel = Duration::from_secs(127);
        Self { kernel, cut: kernel }
    }
}

/// A node of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// The node's virtual address.
    pub address: VirtualAddress,
    /// The node's grid name.
    pub name: GridName,
}

impl Host {
    /// A node by its grid name and virtual address, as messages have them.
    ///
    /// # Errors
    /// Why the name or the address is not valid.
    pub fn read(name: &str, virtual_address: u32) -> Result<Self, String> {
        let address = VirtualAddress::new(virtual_address.into()).ok_or("its address is not virtual")?;
        Ok(Self { address, name: name.parse().map_err(|error: NameError| error.to_string())? })
    }
}

impl Settings {
    /// The settings as the text of the file.
    pub fn encode(&self) -> String {
        let mut out = format!(
            "virtual {}\nname {}\ninterface {}\nblack-hole {}\nconnect-limits {} {}\n",
            self.virtual_address,
            self.name,
            self.interface,
            self.black_hole_port,
            self.connect_limits.kernel.as_secs(),
            self.connect_limits.cut.as_secs(),
        );
        for host in &self.hosts {
            // Writing to a String can't fail.
            let _ = writeln!(out, "host {} {}", host.address, host.name);
        }
        out
    }

    /// Reads the text of the file.
    ///
    /// # Errors
    /// If a line can't be read or a required key is missing.
    pub fn decode(text: &str) -> Result<Self, DecodeError> {
        let mut virtual_address = None;
        let mut name = None;
        let mut interface = None;
        let mut black_hole_port = None;
        let mut connect_limits = ConnectLimits::default();
        let mut hosts = Vec::new();
        for line in text.lines() {
            let wrong = || DecodeError::new("shim settings", format!("line {line:?}"));
            let mut words = line.split_ascii_whitespace();
            let mut word = || words.next().ok_or_else(wrong);
            let address =
                |text: &str| text.parse::<Ipv4Addr>().ok().and_then(VirtualAddress::new).ok_or_else(wrong);
            match word() {
                Ok("virtual") => virtual_address = Some(address(word()?)?),
                Ok("name") => name = Some(word()?.parse().map_err(|_| wrong())?),
                Ok("interface") => interface = Some(word()?.to_owned()),
                Ok("black-hole") => black_hole_port = Some(word()?.parse().map_err(|_| wrong())?),
                Ok("connect-limits") => {
                    let mut seconds = || Ok(Duration::from_secs(word()?.parse().map_err(|_| wrong())?));
                    connect_limits = ConnectLimits { kernel: seconds()?, cut: seconds()? };
                }
                Ok("host") => {
                    let address = address(word()?)?;
                    hosts.push(Host { address, name: word()?.parse().map_err(|_| wrong())? });
                }
                Ok(_) | Err(_) => {}
            }
        }
        let missing = |key: &str| DecodeError::new("shim settings", format!("no {key:?} line"));
        Ok(Self {
            virtual_address: virtual_address.ok_or_else(|| missing("virtual"))?,
            name: name.ok_or_else(|| missing("name"))?,
            interface: interface.ok_or_else(|| missing("interface"))?,
            black_hole_port: black_hole_port.ok_or_else(|| missing("black-hole"))?,
            connect_limits,
            hosts,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn settings() -> Settings {
        let host = |address: [u8; 4], name: &str| Host {
            address: VirtualAddress::new(address.into()).unwrap(),
            name: name.parse().unwrap(),
        };
        Settings {
            virtual_address: VirtualAddress::new([240, 64, 1, 2].into()).unwrap(),
            name: "n1.alpha".parse().unwrap(),
            interface: "eth0".to_owned(),
            black_hole_port: 40123,
            connect_limits: ConnectLimits { kernel: Duration::from_secs(63), cut: Duration::from_secs(900) },
            hosts: vec![host([240, 64, 1, 2], "n1.alpha"), host([240, 64, 2, 1], "n1.beta")],
        }
    }

    #[test]
    fn round_trip() {
        assert_eq!(Settings::decode(&settings().encode()), Ok(settings()));
    }

    #[test]
    fn unknown_keys_are_ignored() {
        let text = format!("future thing\n\n{}", settings().encode());
        assert_eq!(Settings::decode(&text), Ok(settings()));
    }

    #[test]
    fn errors_name_the_line_or_the_missing_key() {
        let without_name = settings().encode().replace("name n1.alpha\n", "");
        assert_eq!(
            Settings::decode(&without_name).unwrap_err().to_string(),
            "malformed shim settings: no \"name\" line"
        );
        let foreign = settings().encode().replace("virtual 240.64.1.2", "virtual 10.0.0.1");
        assert!(Settings::decode(&foreign).unwrap_err().to_string().contains("virtual 10.0.0.1"));
    }

    proptest! {
        #[test]
        fn any_text_decodes_or_fails_without_panic(text in "(?s).{0,200}") {
            let _ = Settings::decode(&text);
        }
    }
}
