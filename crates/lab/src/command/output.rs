//! Printing for people who may stop reading.

use std::io::{self, Write};

/// Writes to standard output. A reader that has left, such as `head`, has
/// seen enough: that is no error.
pub(super) fn print(text: impl AsRef<[u8]>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_ref()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
