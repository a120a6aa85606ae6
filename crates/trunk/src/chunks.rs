//! A queue of bytes that keeps large pieces as they are and copies small ones together.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// Pieces of fewer bytes are copied.
///
/// A piece may hold the whole buffer that it is a part of: of 16 KiB, if buffers are TLS records.
/// By copying small ones, memory is at most twice the bytes that are queued. What one byte costs
/// doesn't depend on its frame.
pub(crate) const SMALL: usize = 8 << 10;

/// Pieces of bytes in order. Two neighbours together have at least [`SMALL`] bytes.
#[derive(Debug, Default)]
pub(crate) struct Chunks {
    pieces: VecDeque<Bytes>,
    length: usize,
}

impl Chunks {
    /// How many bytes all pieces have.
    pub(crate) fn len(&self) -> usize {
        self.length
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.length == 0
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Bytes> {
        self.pieces.iter()
    }

    pub(crate) fn push_back(&mut self, piece: Bytes) {
        if piece.is_empty() {
            return;
        }
        self.length += piece.len();
        match self.pieces.back_mut() {
            Some(back) if back.len() + piece.len() < SMALL => {
                let joined = join(std::mem::take(back), &piece);
                *back = joined;
            }
            _ => self.pieces.push_back(own(piece)),
        }
    }

    /// Copies bytes to the end.
    pub(crate) fn push_copy(&mut self, bytes: &[u8]) {
        match self.pieces.back_mut() {
            Some(back) if back.len() + bytes.len() < SMALL => {
                self.length += bytes.len();
                *back = join(std::mem::take(back), bytes);
            }
            _ if bytes.is_empty() => {}
            _ => {
                self.length += bytes.len();
                self.pieces.push_back(Bytes::copy_from_slice(bytes));
            }
        }
    }

    fn push_front(&mut self, piece: Bytes) {
        self.length += piece.len();
        match self.pieces.front_mut() {
            Some(front) if front.len() + piece.len() < SMALL => *front = join(piece, front),
            _ => self.pieces.push_front(own(piece)),
        }
    }

    /// Puts `other` behind these bytes, in time of the smaller of both.
    pub(crate) fn append(&mut self, mut other: Self) {
        if self.pieces.len() >= other.pieces.len() {
            for piece in other.pieces {
                self.push_back(piece);
            }
        } else {
            while let Some(piece) = self.pieces.pop_back() {
                other.push_front(piece);
            }
            *self = other;
        }
    }

    /// Takes up to `max` bytes off the front, all from the first piece.
    pub(crate) fn pop_front(&mut self, max: usize) -> Bytes {
        let Some(front) = self.pieces.front_mut() else { return Bytes::new() };
        let taken = if front.len() <= max {
            self.pieces.pop_front().unwrap_or_default()
        } else {
            front.split_to(max)
        };
        self.length -= taken.len();
        self.release_if_empty();
        taken
    }

    /// Drops `count` bytes off the front, or all if there are fewer.
    pub(crate) fn skip(&mut self, count: usize) {
        let mut left = count.min(self.length);
        while left > 0 {
            left -= self.pop_front(left).len();
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// Gives memory back if nothing is queued: an idle stream holds none.
    fn release_if_empty(&mut self) {
        if self.pieces.is_empty() {
            self.pieces = VecDeque::new();
        }
    }
}

/// The piece, copied if it is small: otherwise it would hold all of its buffer.
fn own(piece: Bytes) -> Bytes {
    if piece.len() < SMALL { Bytes::copy_from_slice(&piece) } else { piece }
}

/// Joins two pieces to one. Appends in place if nobody else holds the first.
fn join(first: Bytes, second: &[u8]) -> Bytes {
    let mut first = first.try_into_mut().unwrap_or_else(|shared| BytesMut::from(&shared[..]));
    first.extend_from_slice(second);
    first.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes_of(chunks: &Chunks) -> Vec<u8> {
        chunks.iter().flatten().copied().collect()
    }

    fn neighbours_are_large(chunks: &Chunks) -> bool {
        chunks.pieces.iter().zip(chunks.pieces.iter().skip(1)).all(|(a, b)| a.len() + b.len() >= SMALL)
    }

    #[test]
    fn a_large_piece_is_not_copied_and_a_small_one_holds_no_large_buffer() {
        let buffer = Bytes::from(vec![7; 2 * SMALL]);
        let mut chunks = Chunks::default();
        chunks.push_back(buffer.slice(..SMALL));
        assert_eq!(chunks.pop_front(SMALL).as_ptr(), buffer.as_ptr());
        chunks.push_back(buffer.slice(..10));
        assert_ne!(chunks.pop_front(SMALL).as_ptr(), buffer.as_ptr());
    }

    proptest! {
        #[test]
        fn behaves_like_a_plain_queue(steps in prop::collection::vec((0..4_u8, 0..3 * SMALL), 1..60)) {
            let (mut chunks, mut plain) = (Chunks::default(), Vec::new());
            for (number, (step, size)) in steps.into_iter().enumerate() {
                let size = if number % 3 == 0 { size } else { size % 40 };
                let piece = vec![number as u8; size];
                match step {
                    0 if size % 2 == 0 => { chunks.push_copy(&piece); plain.extend(piece); }
                    0 => { chunks.push_back(piece.clone().into()); plain.extend(piece); }
                    1 => {
                        let mut front = Chunks::default();
                        for part in piece.chunks(7) { front.push_back(Bytes::copy_from_slice(part)); }
                        let rest = std::mem::take(&mut chunks);
                        front.append(rest);
                        chunks = front;
                        plain.splice(..0, piece);
                    }
                    2 => {
                        let taken = chunks.pop_front(size);
                        prop_assert!(taken.len() <= size);
                        prop_assert_eq!(&plain.drain(..taken.len()).collect::<Vec<_>>()[..], &taken[..]);
                    }
                    _ => { chunks.skip(size); plain.drain(..size.min(plain.len())); }
                }
                prop_assert_eq!(chunks.len(), plain.len());
                prop_assert_eq!(bytes_of(&chunks), plain.clone());
            }
        }

        #[test]
        fn many_small_pieces_become_few(sizes in prop::collection::vec((1..50_usize, any::<bool>()), 1..2000)) {
            let mut chunks = Chunks::default();
            for (size, front) in sizes {
                let piece = Bytes::from(vec![1; size]);
                match (front, size % 2) {
                    (true, _) => chunks.push_front(piece),
                    (false, 0) => chunks.push_back(piece),
                    (false, _) => chunks.push_copy(&piece),
                }
            }
            prop_assert!(neighbours_are_large(&chunks));
        }
    }
}
