//! What a worker needs to know to find its pool, as a line of text.

use std::fmt;
use std::str::FromStr;

use crate::greeting::{KEY_BYTES, Key};

/// Where a pool's master is reached, and the pool's key. Who has it takes part: it is a secret.
#[derive(Clone, Debug)]
pub(crate) struct Ticket {
    pub host: String,
    pub port: u16,
    pub key: Key,
}

/// The text isn't a ticket. It isn't shown, since it may be one nearly.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this is no pool's ticket; one is HOST:PORT:KEY, with a key of 64 hexadecimal digits")]
pub struct NoTicket;

impl FromStr for Ticket {
    type Err = NoTicket;

    fn from_str(text: &str) -> Result<Self, NoTicket> {
        let (rest, key) = text.trim().rsplit_once(':').ok_or(NoTicket)?;
        let (host, port) = rest.rsplit_once(':').ok_or(NoTicket)?;
        let port = port.parse().map_err(|_| NoTicket)?;
        if host.is_empty()
            || key.len() != 2 * KEY_BYTES
            || !key.bytes().all(|digit| digit.is_ascii_hexdigit())
        {
            return Err(NoTicket);
        }
        let mut bytes = [0; KEY_BYTES];
        for (at, byte) in bytes.iter_mut().enumerate() {
            let digits = key.get(2 * at..2 * at + 2).ok_or(NoTicket)?;
            *byte = u8::from_str_radix(digits, 16).map_err(|_| NoTicket)?;
        }
        Ok(Self { host: host.to_owned(), port, key: Key::new(bytes) })
    }
}

/// The whole ticket, with its key.
impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port, key } = self;
        write!(f, "{host}:{port}:")?;
        key.expose().iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_as_text() {
        let ticket = Ticket { host: "n1.alpha".into(), port: 7790, key: Key::new([0xab; 32]) };
        let text = ticket.to_string();
        assert_eq!(text, format!("n1.alpha:7790:{}", "ab".repeat(32)));
        let read: Ticket = text.parse().unwrap();
        assert_eq!((read.host, read.port, *read.key.expose()), ("n1.alpha".into(), 7790, [0xab; 32]));
        let key = "0".repeat(64);
        for wrong in [
            "",
            "a:1",
            ":1:00",
            "a:1:00",
            &format!(":1:{key}"),
            &format!("a:b:{key}"),
            &format!("a:1:+{}", &key[1..]),
        ] {
            assert!(wrong.parse::<Ticket>().is_err(), "{wrong}");
        }
    }
}
