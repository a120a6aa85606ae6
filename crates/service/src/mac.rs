//! Message authentication and random values.

use isthmus_wire::preamble::{Answer, Mac, Preamble};
use isthmus_wire::ticket::Ticket;
use isthmus_wire::{JobId, Nonce};
use ring::hmac;
use ring::rand::{SecureRandom as _, SystemRandom};

/// A secret of 32 bytes that signs with HMAC-SHA256 (RFC 2104): a job's token,
/// or the key between the broker and a relay. `Debug` doesn't show it.
#[derive(Clone)]
pub struct Secret {
    key: hmac::Key,
    bytes: [u8; 32],
}

impl Secret {
    /// Takes 32 secret bytes.
    pub fn new(bytes: [u8; 32]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, &bytes), bytes }
    }

    /// Takes bytes that must be 32 secret bytes; `None` if they are of another number.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self::new)
    }

    /// A new random secret.
    pub fn random() -> Self {
        Self::new(random())
    }

    /// The bytes, to be sent to the party that shares the secret.
    pub fn expose(&self) -> [u8; 32] {
        self.bytes
    }

    /// The HMAC of some bytes.
    pub fn sign(&self, bytes: &[u8]) -> Mac {
        let mut mac = [0; 32];
        mac.copy_from_slice(hmac::sign(&self.key, bytes).as_ref());
        mac
    }

    /// Whether this is the HMAC of these bytes. The check takes the same time either way.
    pub fn verify(&self, bytes: &[u8], mac: &Mac) -> bool {
        hmac::verify(&self.key, bytes, mac).is_ok()
    }

    /// A preamble with its HMAC.
    pub fn seal_preamble(&self, preamble: &Preamble) -> [u8; isthmus_wire::preamble::PREAMBLE_LEN] {
        preamble.encode(&self.sign(&preamble.signed_bytes()))
    }

    /// An answer to the preamble with this nonce, with its HMAC.
    pub fn seal_answer(&self, answer: Answer, nonce: &Nonce) -> [u8; isthmus_wire::preamble::ANSWER_LEN] {
        answer.encode(&self.sign(&answer.signed_bytes(nonce)))
    }

    /// A ticket with its HMAC.
    pub fn seal_ticket(&self, ticket: &Ticket) -> [u8; isthmus_wire::ticket::TICKET_LEN] {
        ticket.encode(&self.sign(&ticket.signed_bytes()))
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Random bytes from the operating system.
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    // Linux's getrandom fails only if the system call is forbidden. Without it no
    // secret can be made, so the process ends.
    #[allow(clippy::expect_used)]
    SystemRandom::new().fill(&mut bytes).expect("the operating system gives random bytes");
    bytes
}

/// The bytes to sign: the purpose, then each part with its length (8 bytes, network order) before
/// it. So no two lists of parts give the same bytes. A signature for one purpose is not valid for
/// another.
pub fn parts(purpose: &str, parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("{purpose}\n").into_bytes();
    for part in parts {
        bytes.extend((part.len() as u64).to_be_bytes());
        bytes.extend(*part);
    }
    bytes
}

/// A new job id.
pub fn new_job() -> JobId {
    JobId(random())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4231 section 4.2 has a key of 20 bytes. Padded with zeroes to 32, it gives the same HMAC
    /// (RFC 2104 section 2).
    #[test]
    fn hmac_sha256_test_case_1() {
        let mut key = [0; 32];
        key[..20].fill(0x0b);
        let mac = Secret::new(key).sign(b"Hi There");
        assert_eq!(mac[..8], [0xb0, 0x34, 0x4c, 0x61, 0xd8, 0xdb, 0x38, 0x53]);
    }

    #[test]
    fn a_secret_does_not_show_in_debug_output() {
        assert_eq!(format!("{:?}", Secret::new([7; 32])), "Secret(…)");
    }

    #[test]
    fn verification() {
        let secret = Secret::random();
        let mac = secret.sign(b"x");
        assert!(secret.verify(b"x", &mac));
        assert!(!secret.verify(b"y", &mac));
        assert!(!Secret::random().verify(b"x", &mac));
    }
}
