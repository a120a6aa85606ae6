//! One step of rustls's unbuffered API, for clients and servers.

use std::fmt;

use rustls::Error;
use rustls::unbuffered::{ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic};

/// How far a step of rustls got.
pub(super) enum Step {
    More,
    PeerEnded,
    Blocked,
}

/// Does what rustls asks for. Also returns how many bytes of the buffer it has used.
pub(super) fn step<Data>(
    status: UnbufferedStatus<'_, '_, Data>,
    out: &mut Vec<u8>,
    each: &mut impl FnMut(&[u8]),
) -> (usize, Result<Step, Error>) {
    let mut discard = status.discard;
    let step = match status.state {
        Ok(ConnectionState::ReadTraffic(mut traffic)) => {
            let mut step = Ok(Step::More);
            while let Some(record) = traffic.next_record() {
                match record {
                    Ok(record) => {
                        discard += record.discard;
                        each(record.payload);
                    }
                    Err(error) => step = Err(error),
                }
            }
            step
        }
        Ok(ConnectionState::EncodeTlsData(mut record)) => {
            let start = out.len();
            if let Err(EncodeError::InsufficientSize(size)) = record.encode(&mut []) {
                out.resize(start + size.required_size, 0);
            }
            record.encode(&mut out[start..]).map(|_| Step::More).map_err(general)
        }
        Ok(ConnectionState::TransmitTlsData(transmitted)) => {
            transmitted.done();
            Ok(Step::More)
        }
        Ok(ConnectionState::PeerClosed) => Ok(Step::PeerEnded),
        Ok(
            ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) | ConnectionState::Closed,
        ) => Ok(Step::Blocked),
        // Early data is not configured.
        Ok(other) => Err(Error::General(format!("TLS is in an unexpected state: {other:?}"))),
        Err(error) => Err(error),
    };
    (discard, step)
}

/// The state in which rustls seals; an error if it isn't in that state.
pub(super) fn writing<'c, Data>(
    status: UnbufferedStatus<'c, '_, Data>,
) -> Result<WriteTraffic<'c, Data>, Error> {
    match status.state? {
        ConnectionState::WriteTraffic(traffic) => Ok(traffic),
        other => Err(Error::General(format!("TLS can't seal in this state: {other:?}"))),
    }
}

pub(super) fn encrypt<Data>(
    mut traffic: WriteTraffic<'_, Data>,
    plain: &[u8],
    out: &mut [u8],
) -> Result<usize, Error> {
    traffic.encrypt(plain, out).map_err(|error| match error {
        EncryptError::EncryptExhausted => Error::EncryptError,
        error => general(error),
    })
}

/// Writes a `close_notify` to `out`. Returns its length; zero if none may be sent.
pub(super) fn end<Data>(traffic: Result<WriteTraffic<'_, Data>, Error>, out: &mut [u8]) -> usize {
    traffic.ok().and_then(|mut traffic| traffic.queue_close_notify(out).ok()).unwrap_or(0)
}

fn general(error: impl fmt::Display) -> Error {
    Error::General(error.to_string())
}
