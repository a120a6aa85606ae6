//! The first bytes of connections, which anybody can send.

use isthmus_wire::hello::{REACH_TEST, REACH_TEST_LEN, RENDEZVOUS, RENDEZVOUS_LEN};
use isthmus_wire::preamble::{ANSWER_LEN, Answer, PREAMBLE_LEN, Preamble};
use isthmus_wire::reflect;
use isthmus_wire::site_stream::{SITE_STREAM_LEN, SiteStream};
use isthmus_wire::ticket::{TICKET_LEN, Ticket};
use isthmus_wire::way::{CarrierWay, WAY_LEN};

/// Preambles, their answers, ways of carriers and nodes of streams: what is decoded gives the same
/// bytes when encoded again.
pub fn preamble(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<PREAMBLE_LEN>()
        && let Ok((preamble, mac)) = Preamble::decode(bytes)
    {
        assert_eq!(preamble.encode(&mac), *bytes);
    }
    if let Some(bytes) = bytes.first_chunk::<WAY_LEN>()
        && let Ok(way) = CarrierWay::decode(bytes)
    {
        assert_eq!(way.encode(), *bytes);
    }
    if let Some(bytes) = bytes.first_chunk::<SITE_STREAM_LEN>()
        && let Ok(stream) = SiteStream::decode(bytes)
    {
        assert_eq!(stream.encode(), *bytes);
    }
    if let Some(bytes) = bytes.first_chunk::<ANSWER_LEN>()
        && let Ok((answer, mac)) = Answer::decode(bytes)
    {
        assert_eq!(Answer::decode(&answer.encode(&mac)), Ok((answer, mac)));
    }
}

/// Tickets: what is decoded gives the same bytes when encoded again.
pub fn ticket(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<TICKET_LEN>()
        && let Ok((ticket, mac)) = Ticket::decode(bytes)
    {
        assert_eq!(ticket.encode(&mac), *bytes);
    }
}

/// Messages that carry only an id: what is decoded gives the same bytes when encoded again.
pub fn hello(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<RENDEZVOUS_LEN>()
        && let Ok(id) = RENDEZVOUS.decode(bytes)
    {
        assert_eq!(RENDEZVOUS.encode(id), *bytes);
    }
    if let Some(bytes) = bytes.first_chunk::<REACH_TEST_LEN>()
        && let Ok(id) = REACH_TEST.decode(bytes)
    {
        assert_eq!(REACH_TEST.encode(id), *bytes);
    }
}

/// Questions for the outside address, and relays' answers. A question that is decoded gives the
/// same bytes when encoded again. An answer then means the same.
pub fn reflect(bytes: &[u8]) {
    if let Some(bytes) = bytes.first_chunk::<{ reflect::QUESTION_LEN }>()
        && let Ok(test) = reflect::decode_question(bytes)
    {
        assert_eq!(reflect::encode_question(test), *bytes);
    }
    if let Some(bytes) = bytes.first_chunk::<{ reflect::ANSWER_LEN }>()
        && let Ok(seen) = reflect::decode_answer(bytes)
    {
        assert_eq!(reflect::decode_answer(&reflect::encode_answer(seen)), Ok(seen));
    }
}
