//! What the fuzz targets run on one input. An input that breaks a rule panics.
//!
//! Each case is a target of the same name in `fuzz/fuzz_targets`, with seeds in
//! `fuzz/corpus`. The tests of this crate replay all of these, and every input that
//! was once found to break a rule (`fuzz/crashes`).
#![forbid(unsafe_code)]

mod handshakes;
mod lab;
mod local;
mod members;
mod profile;
mod protocol;
mod schedulers;
mod staging;
mod tls;
mod trunk;
mod workers;

/// A target of fuzzing.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// Name of the target and of its directories.
    pub name: &'static str,
    /// Runs the target on an input. Panics if the input shows a fault.
    pub run: fn(&[u8]),
}

macro_rules! cases {
    ($($module:ident::$name:ident),* $(,)?) => {
        /// All targets, in the order of their declaration.
        pub const CASES: &[Case] = &[$(Case { name: stringify!($name), run: $module::$name }),*];
        $(pub use $module::$name;)*
    };
}

cases!(
    handshakes::hello,
    handshakes::preamble,
    handshakes::reflect,
    handshakes::ticket,
    lab::grid_file,
    lab::packet,
    local::settings,
    local::shim,
    local::syn,
    local::upgrade,
    members::grid_name,
    members::identity,
    members::join_token,
    profile::profile,
    protocol::protocol,
    protocol::status,
    schedulers::schedulers,
    staging::staging,
    tls::tls,
    trunk::trunk,
    trunk::trunk_frame,
    workers::workers,
    workers::workers_message,
);

/// The input as text. Empty if it isn't UTF-8.
fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap_or_default()
}
