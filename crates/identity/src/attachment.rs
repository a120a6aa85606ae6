//! Whether a service is attached to the next one, for those who ask the process: its
//! tasks tell, and `isthmus up` reads.

use tokio::sync::watch;

/// The state of a service's attachment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct State {
    /// Whether the service is attached.
    pub attached: bool,
    /// Why the service isn't attached. Empty before the first attempt has failed.
    pub reason: String,
    /// Whether the service's certificate is revoked: only a new token helps.
    pub revoked: bool,
}

/// The attachment of a process's service. Cheap to clone; all clones share the state.
#[derive(Debug, Clone, Default)]
pub struct Attachment(watch::Sender<State>);

impl Attachment {
    /// Notes that the service has attached.
    pub fn begun(&self) {
        self.set(State { attached: true, ..State::default() });
    }

    /// Notes that the service could not attach, or that the attachment has ended. `revoked` is
    /// whether its certificate was refused as revoked. That stays noted until the service attaches:
    /// not every attempt learns of it.
    pub fn failed(&self, reason: &str, revoked: bool) {
        if revoked || !self.0.borrow().revoked {
            self.set(State { attached: false, reason: reason.to_owned(), revoked });
        }
    }

    /// The state of the attachment, now and later.
    pub fn watch(&self) -> watch::Receiver<State> {
        self.0.subscribe()
    }

    fn set(&self, state: State) {
        self.0.send_if_modified(|was| {
            let is_new = *was != state;
            *was = state;
            is_new
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_changed_is_told() {
        let attachment = Attachment::default();
        let mut watch = attachment.clone().watch();
        assert_eq!(*watch.borrow_and_update(), State::default());
        attachment.failed("no answer", false);
        assert!(watch.has_changed().unwrap());
        assert_eq!(watch.borrow_and_update().reason, "no answer");
        attachment.failed("no answer", false);
        assert!(!watch.has_changed().unwrap());
        attachment.begun();
        assert!(watch.borrow_and_update().attached);
        attachment.failed("the certificate is revoked", true);
        assert!(watch.borrow_and_update().revoked);
        attachment.failed("the connection broke", false);
        assert!(watch.borrow_and_update().revoked, "an attempt may not learn it");
        attachment.begun();
        assert!(!watch.borrow_and_update().revoked);
    }
}
