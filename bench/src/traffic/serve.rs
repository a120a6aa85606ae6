//! The program that answers.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use anyhow::Context as _;
use isthmus_wire::ticket::TICKET_LEN;

use super::{CHUNK_BYTES, PING_PONG, STOP, dial, prepare};

/// Answers every connection. With a relay, also dials it for each ticket on the standard input, and
/// answers there.
pub(super) fn serve(listen: SocketAddr, relay: Option<SocketAddr>) -> anyhow::Result<()> {
    let listener = TcpListener::bind(listen).with_context(|| format!("cannot listen on {listen}"))?;
    if let Some(relay) = relay {
        thread::spawn(move || {
            let mut ticket = [0; TICKET_LEN];
            while io::stdin().read_exact(&mut ticket).is_ok() {
                report(dial(relay).and_then(|mut stream| {
                    stream.write_all(&ticket)?;
                    Ok(stream)
                }));
            }
        });
    }
    for stream in listener.incoming() {
        report(stream);
    }
    Ok(())
}

/// Answers on a connection, in a thread of its own, and prints errors.
fn report(stream: io::Result<TcpStream>) {
    thread::spawn(move || {
        if let Err(error) = stream.and_then(answer) {
            eprintln!("a connection failed: {error}");
        }
    });
}

fn answer(mut stream: TcpStream) -> io::Result<()> {
    prepare(&stream)?;
    let mut header = [0; 8];
    match stream.read_exact(&mut header) {
        // A test connection, only to see whether there is a listener.
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
        outcome => outcome?,
    }
    let [kind, _, _, _, size @ ..] = header;
    if kind == STOP {
        std::process::exit(0);
    }
    if kind == PING_PONG {
        let mut message = vec![0; u32::from_be_bytes(size) as usize];
        loop {
            match stream.read_exact(&mut message) {
                Err(error) if error.kind() == ErrorKind::UnexpectedEof => return Ok(()),
                outcome => outcome?,
            }
            stream.write_all(&message)?;
        }
    }
    let mut chunk = vec![0; CHUNK_BYTES];
    let mut arrived = 0;
    loop {
        match stream.read(&mut chunk)? {
            0 => break,
            read => arrived += read as u64,
        }
    }
    stream.write_all(&u64::to_be_bytes(arrived))
}
