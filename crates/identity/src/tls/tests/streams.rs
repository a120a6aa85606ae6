use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::Poll;

use tokio::io::{AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::handshake::shake;
use super::super::{Stream, accept, connect};
use super::*;

async fn sockets() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let connecting = TcpStream::connect(listener.local_addr().unwrap());
    let (connected, accepted) = tokio::join!(connecting, listener.accept());
    (connected.unwrap(), accepted.unwrap().0)
}

async fn streams() -> (Stream, Stream) {
    let (client, server) = configs();
    let (a, b) = sockets().await;
    let (client, server) = tokio::join!(connect(client, name(), a), accept(server, b));
    (client.unwrap(), server.unwrap())
}

#[tokio::test]
async fn a_handshake_over_a_pipe_of_one_byte() {
    let (mut client, mut server) = new(&configs());
    let (mut near, mut far) = tokio::io::duplex(1);
    let reading = async {
        // The server's tickets come after the client's handshake.
        let mut tickets = Vec::new();
        let early = shake(&mut near, &mut client).await.unwrap();
        near.read_to_end(&mut tickets).await.unwrap();
        client.open(&mut [early.unopened, tickets].concat(), &mut Vec::new(), |_| {}).unwrap()
    };
    let serving = async {
        shake(&mut far, &mut server).await.unwrap();
        drop(far);
    };
    tokio::join!(reading, serving);
    assert!(!client.is_handshaking() && !server.is_handshaking());
}

#[tokio::test]
async fn data_with_the_last_message_of_the_handshake_is_kept() {
    // The second record comes in whole, or its second half later.
    for cut in [0, 10] {
        let (client, server) = configs();
        let (mut raw, tcp) = sockets().await;
        let mut session = Session::client(client, name()).unwrap();
        let playing = async {
            let (mut out, mut buffer) = (Vec::new(), Vec::new());
            while session.is_handshaking() {
                let opened = session.open(&mut buffer, &mut out, |_| {}).unwrap();
                buffer.drain(..opened.consumed);
                if session.is_handshaking() {
                    raw.write_all(&out).await.unwrap();
                    out.clear();
                    raw.read_buf(&mut buffer).await.unwrap();
                }
            }
            session.seal(&filled(100), &mut out).unwrap();
            session.seal(&filled(50), &mut out).unwrap();
            let rest = out.split_off(out.len() - cut);
            raw.write_all(&out).await.unwrap();
            rest
        };
        let (rest, stream) = tokio::join!(playing, accept(server, tcp));
        let mut stream = stream.unwrap();
        let mut got = vec![0; 100];
        stream.read_exact(&mut got).await.unwrap();
        assert_eq!(got, filled(100));
        raw.write_all(&rest).await.unwrap();
        stream.read_exact(&mut got[..50]).await.unwrap();
        assert_eq!(got[..50], filled(50));
    }
}

#[tokio::test]
async fn much_arrives_both_ways_and_a_stream_at_rest_holds_nothing() {
    const SIZE: usize = 5_000_000;
    let (mut client, mut server) = streams().await;
    let exchange = async |stream: &mut Stream| {
        let (mut reading, mut writing) = tokio::io::split(stream);
        let mut got = vec![0; SIZE];
        let write = async {
            for part in filled(SIZE).chunks(100_001) {
                writing.write_all(part).await.unwrap();
            }
            writing.flush().await.unwrap();
        };
        tokio::join!(write, async { reading.read_exact(&mut got).await.unwrap() });
        assert!(got == filled(SIZE));
    };
    tokio::join!(exchange(&mut client), exchange(&mut server));
    for stream in [client, server] {
        let parts = stream.into_parts();
        let held = [&parts.unopened, &parts.unread, &parts.unsent].map(Vec::capacity);
        assert_eq!(held, [0; 3]);
    }
}

#[tokio::test]
async fn nothing_between_the_parts_is_lost() {
    let (mut client, server) = streams().await;
    // The server reads nothing: the client's last records remain with it.
    let full = filled(64 * 1024);
    let mut written = 0;
    poll_fn(|cx| {
        while let Poll::Ready(count) = Pin::new(&mut client).poll_write(cx, &full) {
            assert_eq!(count.unwrap(), full.len());
            written += full.len();
        }
        Poll::Ready(())
    })
    .await;
    let client = client.into_parts();
    assert!(!client.unsent.is_empty());
    let mut server = server.into_parts();
    let sending = async {
        let mut tcp = client.tcp;
        tcp.write_all(&client.unsent).await.unwrap();
        tcp.shutdown().await.unwrap();
        // Closed with the server's tickets unread, it would be reset.
        tcp
    };
    let receiving = async {
        let mut records = server.unopened;
        server.tcp.read_to_end(&mut records).await.unwrap();
        records
    };
    let (_, mut records) = tokio::join!(sending, receiving);
    let mut plain = server.unread;
    let opened = server.session.open(&mut records, &mut Vec::new(), |part| plain.extend_from_slice(part));
    assert_eq!(opened.unwrap().consumed, records.len());
    assert_eq!(plain.len(), written);
    assert!(plain.chunks(full.len()).all(|part| part == full));
}

#[tokio::test]
async fn small_reads_get_all_of_a_record() {
    let (mut client, mut server) = streams().await;
    client.write_all(&filled(1000)).await.unwrap();
    let parts = [io::IoSlice::new(b"ab"), io::IoSlice::new(b""), io::IoSlice::new(b"cd")];
    assert_eq!(client.write_vectored(&parts).await.unwrap(), 4);
    client.shutdown().await.unwrap();
    let mut got = Vec::new();
    let mut part = [0; 7];
    loop {
        match server.read(&mut part).await.unwrap() {
            0 => break,
            read => got.extend_from_slice(&part[..read]),
        }
    }
    assert_eq!(got, [&filled(1000)[..], b"abcd"].concat());
    let error = client.write_all(b"more").await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    server.write_all(b"answer").await.unwrap();
    server.shutdown().await.unwrap();
    let mut answer = String::new();
    client.read_to_string(&mut answer).await.unwrap();
    assert_eq!(answer, "answer");
}

#[tokio::test]
async fn a_cut_is_an_error_after_the_data() {
    let (mut client, mut server) = streams().await;
    client.write_all(b"last").await.unwrap();
    client.into_parts().tcp.shutdown().await.unwrap();
    let mut got = Vec::new();
    let error = server.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((&got[..], error.kind()), (&b"last"[..], io::ErrorKind::UnexpectedEof));
}

#[tokio::test]
async fn data_before_a_broken_record_is_read_first() {
    let (mut client, server) = streams().await;
    let mut server = server.into_parts();
    let mut records = Vec::new();
    server.session.seal(b"good", &mut records).unwrap();
    records.extend([23, 3, 3, 0, 30]);
    records.extend([0; 30]);
    server.tcp.write_all(&records).await.unwrap();
    let mut got = Vec::new();
    let error = client.read_to_end(&mut got).await.unwrap_err();
    assert_eq!((&got[..], error.kind()), (&b"good"[..], io::ErrorKind::InvalidData));
    // The peer is told.
    let mut alert = vec![0; 24];
    server.tcp.read_exact(&mut alert).await.unwrap();
    server.session.open(&mut alert, &mut Vec::new(), |_| {}).unwrap_err();
}

#[tokio::test]
async fn a_failed_handshake_s_alert_reaches_the_client() {
    let (client, server) = strangers();
    let (a, b) = sockets().await;
    let (client, served) = tokio::join!(connect(client, name(), a), accept(server, b));
    let (error, _tcp) = served.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::InvalidData);
    let error = client.unwrap().read_u8().await.unwrap_err();
    let alert = error.get_ref().and_then(|error| error.downcast_ref::<rustls::Error>());
    assert!(matches!(alert, Some(rustls::Error::AlertReceived(_))), "{error}");
}

#[tokio::test]
async fn a_handshake_that_ends_early_fails() {
    let (client, _) = configs();
    let (a, b) = sockets().await;
    drop(b);
    let error = connect(client, name(), a).await.unwrap_err();
    assert!(matches!(error.kind(), io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset), "{error}");
}
