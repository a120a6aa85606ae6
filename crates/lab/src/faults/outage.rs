//! A router that is off for a while. The kernel itself ends the outage: it
//! lasts no longer when the process that asked for it is killed.

use std::time::Duration;

use super::FaultError;
use crate::network;
use crate::state::MachineRecord;

/// Has a router drop all that comes in for `length`. From then on, the router drops every segment
/// of a TCP connection whose start it hasn't seen.
pub(super) fn begin(router: &MachineRecord, length: Duration) -> Result<(), FaultError> {
    network::run_in(router, "nft", &["-f", "-"], script(length))?;
    Ok(())
}

pub(super) fn end(router: &MachineRecord) -> Result<(), FaultError> {
    network::run_in(router, "nft", &["-f", "-"], "add table ip lab_off\ndelete table ip lab_off\n".into())?;
    Ok(())
}

/// The nft script of an outage. What is dropped before connections are tracked (raw) is not
/// remembered. By default Linux adopts connections whose start it hasn't seen
/// (nf_conntrack_tcp_loose). What it can't adopt, it sends out untranslated.
///
/// The outage is an element of a set, which the kernel removes in time. The element matches every
/// packet, as no packet has another mark than 0.
fn script(length: Duration) -> String {
    let milliseconds = length.as_millis().max(1);
    format!(
        "add table ip lab_off
delete table ip lab_off
table ip lab_off {{
  set off {{
    type mark; flags timeout;
    elements = {{ 0 timeout {milliseconds}ms }}
  }}
  chain incoming {{
    type filter hook prerouting priority raw; policy accept;
    meta mark @off drop
  }}
}}
add table ip lab_restarted
delete table ip lab_restarted
table ip lab_restarted {{
  chain forward {{
    type filter hook forward priority filter - 1; policy accept;
    ct state invalid drop
    ct state new tcp flags & syn == 0 drop
  }}
}}
"
    )
}
