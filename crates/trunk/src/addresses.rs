//! The addresses at which an end of a trunk is reached, one for each of its rails.

use std::net::{Ipv4Addr, SocketAddrV4};

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};

/// The most rails that an end may have.
pub const MAX_RAILS: usize = 8;
/// Length in bytes of one address: IPv4 and port.
const ADDRESS: usize = 6;

/// Addresses at which an end is reached by TCP, at most [`MAX_RAILS`]. An end whose only address is
/// known to those who dial it tells none. The core only passes them on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Addresses([Option<SocketAddrV4>; MAX_RAILS]);

impl Addresses {
    /// The addresses, in the order in which the end tells them.
    pub fn iter(&self) -> impl Iterator<Item = SocketAddrV4> {
        self.0.iter().copied().flatten()
    }

    /// The addresses as they stand in HELLO: their number, and each with its port. Without
    /// addresses, nothing.
    pub(crate) fn encode(&self) -> Bytes {
        let mut out = BytesMut::new();
        let count = self.iter().count();
        if count > 0 {
            // There are eight addresses at most.
            out.put_u8(count as u8);
        }
        for address in self.iter() {
            out.put_slice(&address.ip().octets());
            out.put_u16(address.port());
        }
        out.freeze()
    }

    /// Reads the addresses from the end of HELLO. Bytes behind them are of a later version. Returns
    /// `None` if there are too many addresses, or fewer than their number says.
    pub(crate) fn decode(mut body: Bytes) -> Option<Self> {
        if body.is_empty() {
            return Some(Self::default());
        }
        let count = usize::from(body.get_u8());
        if count > MAX_RAILS || body.len() < count * ADDRESS {
            return None;
        }
        let mut address = || SocketAddrV4::new(Ipv4Addr::from(body.get_u32()), body.get_u16());
        Some((0..count).map(|_| address()).collect())
    }
}

impl FromIterator<SocketAddrV4> for Addresses {
    /// Takes the first [`MAX_RAILS`] of the addresses.
    fn from_iter<T: IntoIterator<Item = SocketAddrV4>>(addresses: T) -> Self {
        let mut all = [None; MAX_RAILS];
        all.iter_mut().zip(addresses).for_each(|(place, address)| *place = Some(address));
        Self(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_they_were_written() {
        for count in 0..=MAX_RAILS {
            let addresses: Addresses =
                (0..count).map(|at| SocketAddrV4::new([192, 0, 2, at as u8].into(), 7711)).collect();
            let bytes = addresses.encode();
            assert_eq!(bytes.len(), if count == 0 { 0 } else { 1 + count * ADDRESS });
            assert_eq!(Addresses::decode(bytes.clone()), Some(addresses));
            // A later version appends.
            let longer = [&bytes[..], &[9; 5]].concat();
            assert_eq!(Addresses::decode(longer.into()).is_some_and(|read| read == addresses), count > 0);
            if count > 0 {
                assert_eq!(Addresses::decode(bytes.slice(..bytes.len() - 1)), None, "cut");
            }
        }
        assert_eq!(Addresses::decode([&[9], &[1; 54][..]].concat().into()), None, "too many");
    }
}
