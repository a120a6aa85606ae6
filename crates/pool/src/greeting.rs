//! How both ends of a connection show that they know the pool's key: HMAC-SHA256 (RFC 2104) of a random
//! value of each. Who doesn't know the key, such as another user of the machine, gets no further.

use bytes::{Buf as _, BytesMut};
use isthmus_workers::MemberId;
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

/// Bytes of a key, a random value, or an HMAC.
pub(crate) const KEY_BYTES: usize = 32;
const MAGIC: &[u8; 16] = b"isthmus-pool/1\r\n";

/// A key that all members of a pool know. `Debug` doesn't show it.
#[derive(Clone)]
pub(crate) struct Key([u8; KEY_BYTES]);

impl Key {
    pub(crate) fn random() -> Result<Self, GreetingError> {
        Ok(Self(random()?))
    }

    pub(crate) fn new(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    pub(crate) fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    fn sign(&self, signed: &[u8]) -> hmac::Tag {
        hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), signed)
    }

    fn verify(&self, signed: &[u8], tag: &[u8]) -> Result<(), GreetingError> {
        hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, &self.0), signed, tag)
            .map_err(|_| GreetingError::OtherKey)
    }
}

impl std::fmt::Debug for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Key(..)")
    }
}

fn random<const N: usize>() -> Result<[u8; N], GreetingError> {
    let mut bytes = [0; N];
    SystemRandom::new().fill(&mut bytes).map_err(|_| GreetingError::NoRandom)?;
    Ok(bytes)
}

/// Who of both ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Dialer,
    Acceptor,
}

/// Why both ends don't become one pool's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum GreetingError {
    /// The other end isn't a member of any pool.
    #[error("what answers there is no pool of isthmus, or one of another release")]
    NoPool,
    /// The other end has another key, or is another member than was asked for.
    #[error("the other end has another key, or is another member: it is of another pool")]
    OtherKey,
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    NoRandom,
}

/// The greeting at one end.
#[derive(Debug)]
pub(crate) struct Greeting {
    key: Key,
    side: Side,
    /// The acceptor: whoever else passes the greeting on to it isn't taken for it.
    acceptor: MemberId,
    own: [u8; KEY_BYTES],
    /// The other end's random value, once it is known.
    other: Option<[u8; KEY_BYTES]>,
}

impl Greeting {
    /// Begins with a connection to the member `acceptor`. Returns what is to be sent first.
    pub(crate) fn begin(key: Key, side: Side, acceptor: MemberId) -> Result<(Self, Vec<u8>), GreetingError> {
        let own = random()?;
        let first = match side {
            Side::Dialer => [&MAGIC[..], &own].concat(),
            Side::Acceptor => Vec::new(),
        };
        Ok((Self { key, side, acceptor, own, other: None }, first))
    }

    /// What `side` signs.
    fn signed(&self, side: Side, [dialer, acceptor]: &[[u8; KEY_BYTES]; 2]) -> Vec<u8> {
        let name: &[u8] = match side {
            Side::Dialer => b"dialer",
            Side::Acceptor => b"acceptor",
        };
        [MAGIC, name, &self.acceptor.0.to_be_bytes(), dialer, acceptor].concat()
    }

    /// Takes what has come. Returns what is to be sent, and whether the greeting is over.
    pub(crate) fn take(&mut self, input: &mut BytesMut) -> Result<(Vec<u8>, bool), GreetingError> {
        let known = input.len().min(MAGIC.len());
        if self.other.is_none() && input[..known] != MAGIC[..known] {
            return Err(GreetingError::NoPool);
        }
        match (self.side, self.other) {
            (Side::Dialer, _) => {
                if input.len() < MAGIC.len() + 2 * KEY_BYTES {
                    return Ok((Vec::new(), false));
                }
                input.advance(MAGIC.len());
                let values = [self.own, take_value(input)];
                self.other = Some(values[1]);
                self.key.verify(&self.signed(Side::Acceptor, &values), &input.split_to(KEY_BYTES))?;
                let tag = self.key.sign(&self.signed(Side::Dialer, &values));
                Ok((tag.as_ref().to_vec(), true))
            }
            (Side::Acceptor, None) => {
                if input.len() < MAGIC.len() + KEY_BYTES {
                    return Ok((Vec::new(), false));
                }
                input.advance(MAGIC.len());
                let values = [take_value(input), self.own];
                self.other = Some(values[0]);
                let tag = self.key.sign(&self.signed(Side::Acceptor, &values));
                Ok(([&MAGIC[..], &self.own, tag.as_ref()].concat(), false))
            }
            (Side::Acceptor, Some(other)) => {
                if input.len() < KEY_BYTES {
                    return Ok((Vec::new(), false));
                }
                let signed = self.signed(Side::Dialer, &[other, self.own]);
                self.key.verify(&signed, &input.split_to(KEY_BYTES))?;
                Ok((Vec::new(), true))
            }
        }
    }
}

fn take_value(input: &mut BytesMut) -> [u8; KEY_BYTES] {
    let mut value = [0; KEY_BYTES];
    input.copy_to_slice(&mut value);
    value
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lets two ends greet each other, byte by byte. Returns what each finds.
    fn greet(keys: [Key; 2], acceptors: [u32; 2]) -> [Result<(), GreetingError>; 2] {
        let [dialer, acceptor] = keys;
        let [asked, is] = acceptors.map(MemberId);
        let (dialer, first) = Greeting::begin(dialer, Side::Dialer, asked).unwrap();
        let (acceptor, none) = Greeting::begin(acceptor, Side::Acceptor, is).unwrap();
        assert!(none.is_empty());
        let mut ends = [dialer, acceptor];
        let mut inputs = [BytesMut::new(), BytesMut::new()];
        let mut wires = [Vec::new(), first];
        let mut over = [false; 2];
        while let Some(to) = (0..2).find(|to| !wires[*to].is_empty()) {
            inputs[to].extend_from_slice(&[wires[to].remove(0)]);
            if over[to] {
                continue;
            }
            match ends[to].take(&mut inputs[to]) {
                Ok((send, is_over)) => {
                    wires[1 - to].extend(send);
                    over[to] = is_over;
                }
                Err(error) => {
                    let mut found = over.map(|over| if over { Ok(()) } else { Err(GreetingError::NoPool) });
                    found[to] = Err(error);
                    return found;
                }
            }
        }
        over.map(|over| if over { Ok(()) } else { Err(GreetingError::NoPool) })
    }

    #[test]
    fn only_who_has_the_key_gets_in() {
        let [one, other] = [(); 2].map(|()| Key::random().unwrap());
        assert_eq!(greet([one.clone(), one.clone()], [3, 3]), [Ok(()), Ok(())]);
        assert_eq!(greet([one.clone(), one.clone()], [3, 0])[0], Err(GreetingError::OtherKey));
        assert_eq!(greet([one, other], [3, 3])[0], Err(GreetingError::OtherKey));
    }

    #[test]
    fn what_is_no_pool_is_told_at_once() {
        let (mut acceptor, _) = Greeting::begin(Key::new([1; 32]), Side::Acceptor, MemberId(0)).unwrap();
        assert_eq!(acceptor.take(&mut BytesMut::from("GET")), Err(GreetingError::NoPool));
        let (mut dialer, _) = Greeting::begin(Key::new([1; 32]), Side::Dialer, MemberId(0)).unwrap();
        assert_eq!(dialer.take(&mut BytesMut::from("SSH-2.0-")), Err(GreetingError::NoPool));
        assert_eq!(dialer.take(&mut BytesMut::from("isthmus-p")), Ok((Vec::new(), false)));
        assert!(!format!("{:?}", Key::new([7; 32])).contains('7'));
    }
}
