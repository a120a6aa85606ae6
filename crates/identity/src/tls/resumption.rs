//! The sessions that a client resumes (RFC 8446, 2.2).

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use isthmus_service::lock;
use rustls::NamedGroup;
use rustls::client::{ClientSessionMemoryCache, ClientSessionStore};
use rustls::client::{Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::pki_types::ServerName;

use crate::credentials::material::Current;

/// Most servers whose sessions a client keeps.
const SERVERS: usize = 256;
/// How long sessions are resumed before a full handshake verifies both certificates anew. That is
/// far shorter than the time from a renewal to the end of the former certificate.
const RESUMED: Duration = Duration::from_secs(24 * 3600);

/// A client's TLS sessions. They are forgotten after [`RESUMED`]. They are forgotten, too, once the
/// client's own certificate has changed, since the server has them with the former certificate.
#[derive(Debug)]
pub(crate) struct Sessions {
    current: Arc<Current>,
    cache: Mutex<Cache>,
}

#[derive(Debug)]
struct Cache {
    sessions: Arc<ClientSessionMemoryCache>,
    /// How many times the client's certificate had been renewed when these sessions began.
    renewals: u64,
    since: Instant,
}

impl Cache {
    fn new(renewals: u64) -> Self {
        Self { sessions: Arc::new(ClientSessionMemoryCache::new(SERVERS)), renewals, since: Instant::now() }
    }
}

impl Sessions {
    pub(crate) fn new(current: Arc<Current>) -> Self {
        let renewals = current.renewals();
        Self { current, cache: Mutex::new(Cache::new(renewals)) }
    }

    /// Forgets all sessions, so that the next handshakes are full ones.
    pub(crate) fn forget(&self) {
        *lock(&self.cache) = Cache::new(self.current.renewals());
    }

    fn present(&self) -> Arc<ClientSessionMemoryCache> {
        let renewals = self.current.renewals();
        let mut cache = lock(&self.cache);
        if cache.renewals != renewals || cache.since.elapsed() > RESUMED {
            *cache = Cache::new(renewals);
        }
        cache.sessions.clone()
    }
}

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, server_name: ServerName<'static>, group: NamedGroup) {
        self.present().set_kx_hint(server_name, group);
    }

    fn kx_hint(&self, server_name: &ServerName<'_>) -> Option<NamedGroup> {
        self.present().kx_hint(server_name)
    }

    // TLS 1.3 alone is used.
    fn set_tls12_session(&self, _: ServerName<'static>, _: Tls12ClientSessionValue) {}

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        None
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {}

    fn insert_tls13_ticket(&self, server_name: ServerName<'static>, value: Tls13ClientSessionValue) {
        self.present().insert_tls13_ticket(server_name, value);
    }

    fn take_tls13_ticket(&self, server_name: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.present().take_tls13_ticket(server_name)
    }
}
