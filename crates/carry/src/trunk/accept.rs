//! A carrier that the other end has dialed: which trunk it is for.

use std::io;
use std::time::Duration;

use isthmus_identity::secured::Secured;
use isthmus_trunk::{Frame, Hello, Reason, Scope};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::time::timeout;

/// How long a carrier's first HELLO may take.
const HELLO: Duration = Duration::from_secs(10);
/// Most bytes that are read for the first HELLO, more than the longest has.
const HELLO_BYTES: usize = 512;

/// The first HELLO of a carrier, and all bytes that were read.
///
/// # Errors
/// If the first frame is another one, or doesn't come in time.
pub async fn hello(tls: &mut Secured) -> io::Result<(Hello, Vec<u8>)> {
    timeout(HELLO, read(tls)).await.map_err(|_| io::ErrorKind::TimedOut)?
}

async fn read(tls: &mut Secured) -> io::Result<(Hello, Vec<u8>)> {
    let mut bytes = Vec::with_capacity(HELLO_BYTES);
    loop {
        if let Some(hello) = Hello::peek(&bytes).map_err(io::Error::other)? {
            return Ok((hello, bytes));
        }
        if bytes.len() >= HELLO_BYTES {
            return Err(io::Error::other("the first frame is not a HELLO"));
        }
        let mut more = (&mut *tls).take((HELLO_BYTES - bytes.len()) as u64);
        if more.read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Tells the other end of a carrier why its trunk is refused.
///
/// # Errors
/// Always: the text, or why it could not be told.
pub async fn refuse(mut tls: Secured, reason: Reason, text: String) -> io::Result<()> {
    let close = Frame::Close { scope: Scope::Trunk, reason, text: text.clone() };
    let mut bytes = Vec::new();
    close.encode().write_to(&mut bytes);
    let telling = async {
        tls.write_all(&bytes).await?;
        tls.shutdown().await
    };
    timeout(HELLO, telling).await.map_err(|_| io::ErrorKind::TimedOut)??;
    // Closed with something unread, the kernel would reset the connection, and the other end might
    // never read this. What it sends now is of no use, and so is how it ends.
    let _ = timeout(HELLO, tokio::io::copy(&mut tls, &mut tokio::io::sink())).await;
    Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
}
