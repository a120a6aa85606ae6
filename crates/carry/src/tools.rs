//! What everything that one worker carries shares.

use crate::splice::PipePool;

/// Size of the shared buffer: four TLS records, or many small messages.
const BUFFER_BYTES: usize = 64 << 10;

/// The buffers and pipes of a worker. The buffers hold nothing between turns.
#[derive(Debug)]
pub(crate) struct Tools {
    pub(crate) buffer: Box<[u8]>,
    /// The buffer for sealed bytes.
    pub(crate) sealed: Vec<u8>,
    /// The buffer for opened bytes.
    pub(crate) opened: Vec<u8>,
    pub(crate) pipes: PipePool,
}

impl Tools {
    pub(crate) fn new() -> Self {
        Self {
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            sealed: Vec::new(),
            opened: Vec::new(),
            pipes: PipePool::default(),
        }
    }
}
