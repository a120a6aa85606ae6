//! From the bytes of a carrier, in whatever pieces they come, to frames.

use bytes::{Bytes, BytesMut};

use crate::ProtocolError;
use crate::frame::decode::frame_length;
use crate::frame::{Frame, HEAD};

/// The beginning of a frame whose rest has not come: at most one frame.
#[derive(Debug, Default)]
pub(crate) struct Input {
    partial: BytesMut,
}

impl Input {
    /// Takes the next frame off the front of `bytes`. A frame that `bytes` has as a whole is not
    /// copied. Returns `None` if more bytes are needed.
    pub(crate) fn next(&mut self, bytes: &mut Bytes) -> Result<Option<Frame>, ProtocolError> {
        if self.partial.is_empty() {
            let frame = Frame::decode(bytes)?;
            if frame.is_none() {
                self.keep(bytes, usize::MAX);
            }
            return Ok(frame);
        }
        self.keep(bytes, HEAD.saturating_sub(self.partial.len()));
        let Some(head) = self.partial.first_chunk::<HEAD>() else { return Ok(None) };
        let length = frame_length(*head)?;
        self.partial.reserve(length.saturating_sub(self.partial.len()));
        self.keep(bytes, length.saturating_sub(self.partial.len()));
        if self.partial.len() < length {
            return Ok(None);
        }
        Frame::decode(&mut std::mem::take(&mut self.partial).freeze())
    }

    /// Moves up to `count` bytes off the front of `bytes`, by a copy.
    fn keep(&mut self, bytes: &mut Bytes, count: usize) {
        let kept = bytes.split_to(count.min(bytes.len()));
        self.partial.extend_from_slice(&kept);
    }

    /// How many bytes wait for the rest of their frame.
    #[cfg(test)]
    fn waiting(&self) -> usize {
        self.partial.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamId;
    use crate::frame::MAX_FRAME;
    use proptest::prelude::*;

    fn frames() -> Vec<Frame> {
        let payload = Bytes::from(vec![5; 300]);
        vec![
            Frame::Open { stream: StreamId(0) },
            Frame::Data { stream: StreamId(0), offset: 0, end: false, payload },
            Frame::Ping { answer: true, nonce: 9, carriers: 0 },
            Frame::Data { stream: StreamId(0), offset: 300, end: true, payload: Bytes::new() },
        ]
    }

    proptest! {
        #[test]
        fn frames_come_out_however_the_bytes_are_cut(cuts in prop::collection::vec(1..40_usize, 1..200)) {
            let whole: Vec<u8> = frames().iter().flat_map(|frame| frame.encode().to_vec()).collect();
            let (mut input, mut got, mut rest) = (Input::default(), Vec::new(), Bytes::from(whole));
            let mut cuts = cuts.into_iter().cycle();
            while !rest.is_empty() {
                let mut piece = rest.split_to(cuts.next().unwrap().min(rest.len()));
                while let Some(frame) = input.next(&mut piece).unwrap() {
                    got.push(frame);
                }
                prop_assert!(piece.is_empty() && input.waiting() < MAX_FRAME);
            }
            prop_assert_eq!(got, frames());
            prop_assert_eq!(input.waiting(), 0);
        }
    }

    #[test]
    fn a_whole_frame_is_not_copied() {
        let payload = Bytes::from(vec![5; 3000]);
        let frame = Frame::Data { stream: StreamId(0), offset: 0, end: false, payload };
        let buffer = Bytes::from(frame.encode().to_vec());
        let Ok(Some(Frame::Data { payload, .. })) = Input::default().next(&mut buffer.clone()) else {
            panic!()
        };
        assert_eq!(payload.as_ptr(), buffer[crate::frame::DATA_HEAD..].as_ptr());
    }

    #[test]
    fn a_length_is_refused_before_its_bytes_are_kept() {
        let mut bytes = Bytes::from_static(&[3, 0, 0xff, 0xff]);
        assert!(Input::default().next(&mut bytes).is_err());
        let mut input = Input::default();
        assert_eq!(input.next(&mut Bytes::from_static(&[3, 0])), Ok(None));
        assert!(input.next(&mut Bytes::from_static(&[0xff, 0xff])).is_err());
    }
}
