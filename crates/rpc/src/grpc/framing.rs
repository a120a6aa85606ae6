//! Where the messages of a call end (gRPC over HTTP/2, "Length-Prefixed-Message").

/// Bytes before each message: a flag byte, and the message's length.
const PREFIX: usize = 5;

/// Finds the ends of the messages in the bytes of a call.
#[derive(Debug, Default)]
pub(super) struct Framing {
    prefix: [u8; PREFIX],
    prefix_bytes: usize,
    /// How many bytes of the current message have arrived.
    arrived: usize,
    left: usize,
    has_message: bool,
}

impl Framing {
    /// Takes further bytes. Returns how many of the current message have arrived; 0
    /// if it is complete.
    pub(super) fn take(&mut self, mut bytes: &[u8]) -> usize {
        while let Some((first, rest)) = bytes.split_first() {
            if self.prefix_bytes < PREFIX {
                self.prefix[self.prefix_bytes] = *first;
                self.prefix_bytes += 1;
                bytes = rest;
                let [_, length @ ..] = self.prefix;
                self.left = u32::from_be_bytes(length) as usize;
            } else {
                let part = self.left.min(bytes.len());
                self.left -= part;
                self.arrived += part;
                bytes = &bytes[part..];
            }
            if self.prefix_bytes == PREFIX && self.left == 0 {
                *self = Self { has_message: true, ..Self::default() };
            }
        }
        self.arrived
    }

    /// Whether any message has arrived completely.
    pub(super) fn has_message(&self) -> bool {
        self.has_message
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// However the bytes are cut, only the bytes of the last, incomplete message count.
        #[test]
        fn messages_end_where_their_lengths_say(
            lengths in prop::collection::vec(0..40_usize, 0..8),
            rest in 0..40_usize,
            cuts in prop::collection::vec(1..20_usize, 0..200),
        ) {
            let mut bytes = Vec::new();
            for length in &lengths {
                bytes.extend([0, 0, 0, 0, u8::try_from(*length).unwrap()]);
                bytes.extend(vec![1; *length]);
            }
            bytes.extend([0, 0, 0, 0, 40]);
            bytes.extend(vec![1; rest]);
            let mut framing = Framing::default();
            let mut left = bytes.as_slice();
            for cut in cuts {
                let (part, after) = left.split_at(cut.min(left.len()));
                framing.take(part);
                left = after;
            }
            prop_assert_eq!(framing.take(left), rest);
            prop_assert_eq!(framing.has_message(), !lengths.is_empty());
        }
    }
}
