//! HTTP/2 frames (RFC 9113) as a client may send them that no library would send.
#![allow(dead_code, reason = "each test uses a part")]

pub(crate) const DATA: u8 = 0;
pub(crate) const HEADERS: u8 = 1;
pub(crate) const RST_STREAM: u8 = 3;
pub(crate) const SETTINGS: u8 = 4;
pub(crate) const PING: u8 = 6;
pub(crate) const GOAWAY: u8 = 7;
pub(crate) const CONTINUATION: u8 = 9;

const END_HEADERS: u8 = 4;

pub(crate) fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut bytes = u32::try_from(payload.len()).unwrap_or_default().to_be_bytes()[1..].to_vec();
    bytes.extend([kind, flags]);
    bytes.extend(stream.to_be_bytes());
    bytes.extend(payload);
    bytes
}

/// The bytes that a client sends first.
pub(crate) fn preface() -> Vec<u8> {
    [b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), frame(SETTINGS, 0, 0, &[])].concat()
}

/// The beginning of a gRPC call. No header is in the dynamic table (RFC 7541, 6.2.2).
pub(crate) fn call(stream: u32, path: &str) -> Vec<u8> {
    frame(HEADERS, END_HEADERS, stream, &headers(path))
}

/// The headers of a gRPC call.
pub(crate) fn headers(path: &str) -> Vec<u8> {
    // :method POST, :scheme http
    let mut block = vec![0x83, 0x86];
    for (name, value) in [(":path", path), (":authority", "x"), ("content-type", "application/grpc")] {
        block.extend(header(name, value));
    }
    block
}

/// A header of a call; both texts have less than 127 bytes.
pub(crate) fn header(name: &str, value: &str) -> Vec<u8> {
    let mut bytes = vec![0];
    for text in [name, value] {
        bytes.push(u8::try_from(text.len()).unwrap_or_default());
        bytes.extend(text.as_bytes());
    }
    bytes
}

/// A call that is cancelled at once.
pub(crate) fn cancelled(stream: u32, path: &str) -> Vec<u8> {
    [call(stream, path), frame(RST_STREAM, 0, stream, &[0, 0, 0, 8])].concat()
}

/// Headers without an end, as if further ones would follow.
pub(crate) fn endless_headers(frames: usize) -> Vec<u8> {
    let mut bytes = frame(HEADERS, 0, 1, &headers("/x"));
    let part: Vec<u8> = (0..16).flat_map(|_| header("a", &"b".repeat(60))).collect();
    (0..frames).for_each(|_| bytes.extend(frame(CONTINUATION, 0, 1, &part)));
    bytes
}
