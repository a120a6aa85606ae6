//! Which listeners are kept over an upgrade.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Mutex;

use isthmus_wire::upgrade::Listener;
use tokio::net::TcpListener;

use super::replace::number;
use crate::lock;

/// For each wanted address, the index of the held listener to use for it, by the addresses that
/// listeners were configured for. `None` has a new listener opened. Held listeners that aren't
/// named are closed.
pub fn choose(held: &[SocketAddr], wanted: &[SocketAddr]) -> Vec<Option<usize>> {
    let mut free: Vec<_> = held.iter().map(Some).collect();
    let take = |address: &SocketAddr| {
        let found = free.iter().position(|held| *held == Some(address))?;
        free[found] = None;
        Some(found)
    };
    wanted.iter().map(take).collect()
}

/// The listeners of a process that is replaced in place.
#[derive(Debug, Default)]
pub struct Listeners {
    /// Listeners of the former program that aren't used yet.
    inherited: Mutex<Vec<(SocketAddr, std::net::TcpListener)>>,
    /// Duplicates of the listeners in use, by which they are handed on.
    used: Mutex<Vec<(SocketAddr, OwnedFd)>>,
}

impl Listeners {
    /// Begins with the listeners of a former program, and closes those that aren't wanted.
    pub fn new(inherited: Vec<(SocketAddr, std::net::TcpListener)>, wanted: &[SocketAddr]) -> Self {
        let held: Vec<_> = inherited.iter().map(|(address, _)| *address).collect();
        let chosen = choose(&held, wanted);
        let kept = inherited.into_iter().enumerate().filter(|(number, _)| chosen.contains(&Some(*number)));
        Self { inherited: Mutex::new(kept.map(|(_, one)| one).collect()), used: Mutex::default() }
    }

    /// Listens on a configured address.
    ///
    /// # Errors
    /// As `bind(2)`.
    pub fn listen(&self, configured: SocketAddr) -> io::Result<TcpListener> {
        let mut inherited = lock(&self.inherited);
        let found = inherited.iter().position(|(address, _)| *address == configured);
        let listener = match found {
            Some(place) => TcpListener::from_std(inherited.swap_remove(place).1)?,
            None => crate::listen(configured)?,
        };
        lock(&self.used).push((configured, listener.as_fd().try_clone_to_owned()?));
        Ok(listener)
    }

    /// The configured addresses of the listeners in use.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        lock(&self.used).iter().map(|(address, _)| *address).collect()
    }

    /// Passes the listeners in use to `hand`, which hands them over.
    pub fn with_used<T>(&self, hand: impl FnOnce(Vec<Listener>, Vec<std::os::fd::BorrowedFd<'_>>) -> T) -> T {
        let used = lock(&self.used);
        let described = used.iter().map(|(configured, descriptor)| Listener {
            descriptor: number(descriptor.as_fd()),
            configured: *configured,
        });
        hand(described.collect(), used.iter().map(|(_, descriptor)| descriptor.as_fd()).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_kept_where_its_address_is_still_wanted() {
        let [inside, outside, other, any] = ["0.0.0.0:7710", "0.0.0.0:7740", "10.0.0.1:7710", "127.0.0.1:0"]
            .map(|text| text.parse::<SocketAddr>().unwrap());
        for (held, wanted, want) in [
            (&[][..], &[inside][..], &[None][..]),
            (&[inside], &[inside], &[Some(0)]),
            (&[inside, outside], &[outside, inside], &[Some(1), Some(0)]),
            (&[inside], &[inside, outside], &[Some(0), None]),
            (&[inside, outside], &[inside], &[Some(0)]),
            (&[inside], &[other], &[None]),
            // One listener has one use.
            (&[any], &[any, any], &[Some(0), None]),
            (&[any, any], &[any, any], &[Some(0), Some(1)]),
            (&[inside], &[], &[]),
        ] {
            assert_eq!(choose(held, wanted), want, "{held:?} {wanted:?}");
        }
    }

    #[tokio::test]
    async fn what_is_not_wanted_is_closed_and_can_be_opened_anew() {
        let listener = || std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let (kept, closed) = (listener(), listener());
        let addresses = [kept.local_addr().unwrap(), closed.local_addr().unwrap()];
        kept.set_nonblocking(true).unwrap();
        let inherited = vec![(addresses[0], kept), (addresses[1], closed)];
        let listeners = Listeners::new(inherited, &addresses[..1]);
        std::net::TcpStream::connect(addresses[1]).unwrap_err();
        let client = std::net::TcpStream::connect(addresses[0]).unwrap();
        let accepted = listeners.listen(addresses[0]).unwrap().accept().await.unwrap().1;
        assert_eq!(accepted, client.local_addr().unwrap());
        let again = listeners.listen(addresses[1]).unwrap();
        assert_eq!(again.local_addr().unwrap(), addresses[1]);
        assert_eq!(listeners.addresses(), addresses);
        listeners.with_used(|described, descriptors| {
            assert_eq!(described.len(), descriptors.len());
            assert_eq!(described[1].configured, addresses[1]);
        });
    }
}
