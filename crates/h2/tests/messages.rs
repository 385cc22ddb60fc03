//! Messages through HPACK: decoding errors, limits and the table, and secret fields.

mod common;

use common::{block, literal};
use fields::{Cause, CodingError, Refusal, Rules, Scheme, read_request, write_request};
use h2::hpack::{DecodeError, Decoder, Encoder};
use http::Head;

const RULES: Rules = Rules { max_bytes: 15_360, max_fields: 100, relaxed: false, connect_protocol: true };

const USUAL: [(&str, &str); 4] =
    [(":method", "GET"), (":scheme", "https"), (":authority", "h"), (":path", "/")];

#[test]
fn repeated_references_exceed_the_limit_with_the_table_in_sync() {
    let mut bomb = block(&USUAL);
    literal(0x40, b"x", &[b'y'; 4000], &mut bomb);
    bomb.resize(16_000, 0xbe);
    let (mut decoder, mut head) = (Decoder::new(4096), Head::new());
    let refused = read_request(decoder.block(&bomb), true, &RULES, &mut head);
    assert_eq!(refused, Err(Refusal::Message(Cause::TooLarge)));
    bomb.truncate(block(&USUAL).len());
    bomb.push(0xbe);
    assert!(read_request(decoder.block(&bomb), true, &RULES, &mut head).is_ok());
    assert_eq!(head.get(&http::Name::new(b"x")).map(<[u8]>::len), Some(4000));
}

#[test]
fn undecodable_blocks_are_not_malformed_messages() {
    for (bytes, error) in
        [(&[0xff][..], DecodeError::Coding(CodingError::Truncated)), (&[0x80], DecodeError::Index)]
    {
        // The message before the error is malformed, too.
        for mut broken in [Vec::new(), block(&[("x", "y")])] {
            broken.extend_from_slice(bytes);
            let read = read_request(Decoder::new(4096).block(&broken), true, &RULES, &mut Head::new());
            assert_eq!(read, Err(Refusal::Coding(error)));
        }
    }
}

#[test]
fn secret_fields_stay_out_of_all_tables() {
    let mut plain = block(&USUAL);
    literal(0x10, b"x-key", b"secret", &mut plain);
    literal(0x10, b"server", b"secret", &mut plain);
    let mut head = Head::new();
    read_request(Decoder::new(4096).block(&plain), true, &RULES, &mut head).unwrap();
    let (mut encoder, mut decoder) = (Encoder::new(), Decoder::new(4096));
    for _ in 0..4 {
        let mut out = Vec::new();
        write_request(&mut encoder.writer(&mut out), &head, Scheme::Https);
        assert_eq!(out[..2], [0x82, 0x87], "static entries");
        let mut marks = Vec::new();
        let each = &mut |field: fields::Field<'_>| {
            marks.push(field.never_indexed);
            true
        };
        decoder.decode(&out, each).unwrap();
        assert_eq!(marks[4..], [true, true]);
    }
}
