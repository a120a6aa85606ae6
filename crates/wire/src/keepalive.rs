//! The signs of life on connections that leave a site: TCP keepalives. Agents, gateways
//! and relays set them; the shim hides them from programs.
//!
//! Firewalls and NATs forget a connection that is idle for long, some after 60 s, though
//! RFC 5382 (REQ-5) requires 2 h.

/// Seconds between two signs of life of an idle connection. Four fit in 60 s, so that a lost sign
/// does no harm.
pub const INTERVAL_SECONDS: u32 = 15;
/// After how many unanswered signs the kernel ends an idle connection: the most that Linux takes
/// (`MAX_TCP_KEEPCNT`). So an idle connection survives a cut of 32 min. That is longer than a
/// connection with unacknowledged data survives (tcp(7), `tcp_retries2`).
pub const PROBES: u32 = 127;
