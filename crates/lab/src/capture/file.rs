//! The pcap format, with times in nanoseconds (draft-ietf-opsawg-pcap, section 4
//! and 5). Readers learn the byte order from the magic number.

use std::time::Duration;

const MAGIC_NANOSECONDS: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];

/// Largest packet that is written whole, as tcpdump has it.
pub(crate) const LARGEST_PACKET: usize = 262_144;

/// The header that each packet begins with. The values are those of pcap's LINKTYPE_….
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DataLink {
    Ethernet = 1,
    Ip = 101,
}

/// The header of a pcap file.
pub(super) fn header(link: DataLink) -> [u8; 24] {
    let mut header = [0; 24];
    let version = u32::from(VERSION[0]) | u32::from(VERSION[1]) << 16;
    // The third and the fourth word are reserved.
    let words = [MAGIC_NANOSECONDS, version, 0, 0, LARGEST_PACKET as u32, link as u32];
    put(&mut header, &words);
    header
}

/// The header of a packet in a pcap file. `time` is since 1970, `captured` counts the bytes in the
/// file, `length` those on the line.
pub(super) fn record(time: Duration, captured: usize, length: usize) -> [u8; 16] {
    let mut header = [0; 16];
    put(&mut header, &[time.as_secs() as u32, time.subsec_nanos(), captured as u32, length as u32]);
    header
}

fn put(header: &mut [u8], words: &[u32]) {
    for (place, word) in header.chunks_exact_mut(4).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The headers are those that `tcpdump -r` reads.
    #[test]
    fn headers_are_laid_out_as_in_the_format() {
        let want = "4d3cb2a1 02000400 00000000 00000000 00000400 01000000";
        assert_eq!(hexadecimal(&header(DataLink::Ethernet)), want);
        let time = Duration::new(0x0102_0304, 5);
        assert_eq!(hexadecimal(&record(time, 60, 0x1234)), "04030201 05000000 3c000000 34120000");
    }

    fn hexadecimal(bytes: &[u8]) -> String {
        let word = |word: &[u8]| word.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        bytes.chunks(4).map(word).collect::<Vec<_>>().join(" ")
    }
}
