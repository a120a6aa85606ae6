//! How late a test lets come what the product promises.

use std::time::Duration;

/// Environment variable that the longer run of the tests sets.
const ALL: &str = "ISTHMUS_TEST_ALL";

/// The time at which a test fails if the product promises something within `within`.
///
/// That is twice the time, because other processes of the machine may make everything late. With
/// `ISTHMUS_TEST_ALL` in the environment, the result is the time itself: the longer run holds the
/// product to its word. A test that asserts a time has the machine alone.
#[allow(unreachable_pub, reason = "tests of crates include this file")]
pub fn promised(within: Duration) -> Duration {
    let is_long = std::env::var_os(ALL).is_some_and(|value| !value.is_empty());
    if is_long { within } else { 2 * within }
}
