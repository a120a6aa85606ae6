//! Who is expected to come to the port outside, to show that it is reached.

use std::collections::HashMap;
use std::sync::Mutex;

use isthmus_net::lock;
use isthmus_wire::ConnectionId;
use tokio::sync::oneshot;

/// All of them.
#[derive(Debug, Default)]
pub struct ReachTests(Mutex<HashMap<ConnectionId, oneshot::Sender<()>>>);

/// One of them; nobody is expected any more once it is dropped.
#[derive(Debug)]
pub struct ReachTest<'a> {
    reach_tests: &'a ReachTests,
    number: ConnectionId,
    came_rx: oneshot::Receiver<()>,
}

impl ReachTests {
    /// Begins to expect somebody who knows this number.
    pub fn expect(&self, number: ConnectionId) -> ReachTest<'_> {
        let (came_tx, came_rx) = oneshot::channel();
        lock(&self.0).insert(number, came_tx);
        ReachTest { reach_tests: self, number, came_rx }
    }

    /// Somebody came; `false` if nobody was expected with this number.
    pub fn come(&self, number: ConnectionId) -> bool {
        lock(&self.0).remove(&number).is_some_and(|came_tx| came_tx.send(()).is_ok())
    }
}

impl ReachTest<'_> {
    /// Waits until they come; for ever, if need be.
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
    async fn only_who_is_expected_counts_and_once() {
        let reach_tests = ReachTests::default();
        let (right, wrong) = (ConnectionId([1; 16]), ConnectionId([2; 16]));
        let mut reach_test = reach_tests.expect(right);
        assert!(!reach_tests.come(wrong) && reach_tests.come(right) && !reach_tests.come(right));
        reach_test.came().await;
        drop(reach_tests.expect(wrong));
        assert!(!reach_tests.come(wrong), "nobody is expected any more");
    }
}
