//! Reach tests that the port outside expects.

use std::collections::HashMap;
use std::sync::Mutex;

use isthmus_service::lock;
use isthmus_wire::ConnectionId;
use tokio::sync::oneshot;

/// The reach tests that are expected, by their numbers.
#[derive(Debug, Default)]
pub struct ReachTests(Mutex<HashMap<ConnectionId, oneshot::Sender<()>>>);

/// A reach test that is expected, until this is dropped.
#[derive(Debug)]
pub struct ReachTest<'a> {
    reach_tests: &'a ReachTests,
    number: ConnectionId,
    came_rx: oneshot::Receiver<()>,
}

impl ReachTests {
    /// Begins to expect a reach test with this number.
    pub fn expect(&self, number: ConnectionId) -> ReachTest<'_> {
        let (came_tx, came_rx) = oneshot::channel();
        lock(&self.0).insert(number, came_tx);
        ReachTest { reach_tests: self, number, came_rx }
    }

    /// Takes a reach test that has arrived; `false` if its number was not expected.
    pub fn come(&self, number: ConnectionId) -> bool {
        lock(&self.0).remove(&number).is_some_and(|came_tx| came_tx.send(()).is_ok())
    }
}

impl ReachTest<'_> {
    /// Waits until the reach test has arrived, or for ever if it is not expected any more.
    pub async fn came(&mut self) {
        if (&mut self.came_rx).await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

impl Drop for ReachTest<'_> {
    fn drop(&mut self) {
        lock(&self.reach_tests.0).remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_an_expected_reach_test_counts_and_once() {
        let reach_tests = ReachTests::default();
        let (right, wrong) = (ConnectionId([1; 16]), ConnectionId([2; 16]));
        let mut reach_test = reach_tests.expect(right);
        assert!(!reach_tests.come(wrong) && reach_tests.come(right) && !reach_tests.come(right));
        reach_test.came().await;
        drop(reach_tests.expect(wrong));
        assert!(!reach_tests.come(wrong), "it is not expected any more");
    }
}
