//! Fuzz targets for HTTP/2 header blocks.

use fields::{FieldName, Rules, Scheme};
use h2::hpack::{DecodeError, Decoder, Encoder};
use http::{Head, ParseOptions, ParseStatus};

/// A decoded field: its name, its value, and whether it is secret.
type Field = (Vec<u8>, Vec<u8>, bool);

fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Field>, DecodeError> {
    let mut fields = Vec::new();
    decoder.decode(block, &mut |field| {
        let name = field.name.bytes();
        // One-byte indices may stand for kilobytes, so no more is kept than a message may have.
        fields.push((name.to_vec(), field.value.to_vec(), field.never_indexed));
        fields.len() < 1000
    })?;
    Ok(fields)
}

/// Splits the input into blocks, each preceded by its length in two bytes.
fn blocks(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut found = Vec::new();
    while let [high, low, rest @ ..] = bytes {
        let (block, left) = rest.split_at(rest.len().min(usize::from(*high) << 8 | usize::from(*low)));
        found.push(block);
        bytes = left;
    }
    found
}

/// Checks that blocks decode the same whether their fields are wanted or not, and that encoded fields decode to themselves. The
/// first byte sets the table size.
pub fn hpack(bytes: &[u8]) {
    let Some((size, bytes)) = bytes.split_first() else { return };
    let size = u32::from(*size) * 32;
    let (mut decoder, mut deaf) = (Decoder::new(size), Decoder::new(size));
    let (mut encoder, mut again) = (Encoder::new(), Decoder::new(4096));
    for block in blocks(bytes) {
        let fields = decode(&mut decoder, block);
        let unwanted = deaf.decode(block, &mut |_| false);
        assert_eq!(fields.as_ref().err(), unwanted.as_ref().err(), "{}", block.escape_ascii());
        let Ok(fields) = fields else { return };
        let mut out = Vec::new();
        encoder.set_limit(size, 4096);
        for (name, value, secret) in &fields {
            let lower = name.to_ascii_lowercase();
            let name = match http::KnownName::from_token(&lower) {
                http::KnownName::Other => FieldName::Other(name),
                known => FieldName::Known(known),
            };
            if *secret { encoder.secret(name, value, &mut out) } else { encoder.field(name, value, &mut out) }
        }
        let read = decode(&mut again, &out).unwrap_or_else(|error| panic!("{error:?} in what we wrote"));
        assert_eq!(read.len(), fields.len());
        for (one, other) in read.iter().zip(&fields) {
            assert!(one.0 == other.0.to_ascii_lowercase() && one.1 == other.1, "the same fields");
            assert!(one.2 || !other.2, "what is secret stays so");
        }
    }
}

/// Checks that an accepted request is the same request in HTTP/1, to the last byte, and again in HTTP/2. The first byte has flags:
/// end of stream, relaxed, no extended CONNECT.
pub fn h2_request(bytes: &[u8]) {
    let Some((flags, block)) = bytes.split_first() else { return };
    let end = flags & 1 != 0;
    let rules = Rules {
        max_bytes: 16_384,
        max_fields: 100,
        relaxed: flags & 2 != 0,
        connect_protocol: flags & 4 == 0,
    };
    let mut head = Head::new();
    let read = fields::read_request(Decoder::new(4096).block(block), end, &rules, &mut head);
    let Ok(request) = read else { return };
    let mut written = Vec::new();
    head.write_to(&mut written);
    // Bytes above 127 pass as in HAProxy, and the WebSocket key is added later.
    let options = ParseOptions {
        relaxed: true,
        max_bytes: usize::MAX,
        max_fields: 200,
        lone_lf: false,
        folding: false,
        any_method_payload: true,
        ..ParseOptions::default()
    };
    let mut again = Head::new();
    let status = http::parse_request(&written, &mut again, &options);
    assert_eq!(status, Ok(ParseStatus::Complete { len: written.len() }), "{}", written.escape_ascii());
    assert!(head.fields().eq(again.fields()), "the same fields in {}", written.escape_ascii());
    assert_eq!((head.method(), head.plain_target()), (again.method(), again.target()));
    assert_eq!(head.content_length(), again.content_length(), "{}", written.escape_ascii());
    assert!(head.has_upgrade() == request.protocol && again.has_upgrade() == request.protocol);
    let mut block = Vec::new();
    fields::write_request(&mut Encoder::new().writer(&mut block), &head, Scheme::Https);
    let mut back = Head::new();
    let rules = Rules { relaxed: true, max_bytes: usize::MAX, max_fields: 200, connect_protocol: true };
    let read = fields::read_request(Decoder::new(4096).block(&block), end, &rules, &mut back);
    assert!(read.is_ok(), "{read:?} of {}", written.escape_ascii());
    let mut rewritten = Vec::new();
    back.write_to(&mut rewritten);
    assert_eq!((head.method(), head.plain_target()), (back.method(), back.plain_target()));
}

/// Checks that an accepted response is the same when serialised in HTTP/1 and in HTTP/2, and so are trailers. The first byte has
/// flags: end of stream, relaxed, trailers.
pub fn h2_response(bytes: &[u8]) {
    let Some((flags, block)) = bytes.split_first() else { return };
    let end = flags & 1 != 0;
    let rules =
        Rules { max_bytes: 16_384, max_fields: 100, relaxed: flags & 2 != 0, connect_protocol: false };
    let mut head = Head::new();
    if flags & 4 != 0 {
        return trailers(block, &rules);
    }
    if fields::read_response(Decoder::new(4096).block(block), end, &rules, &mut head).is_err() {
        return;
    }
    assert!((100..1000).contains(&head.status()));
    let mut written = Vec::new();
    head.write_to(&mut written);
    let options =
        ParseOptions { relaxed: true, max_bytes: usize::MAX, max_fields: 200, ..ParseOptions::default() };
    let mut again = Head::new();
    let status = http::parse_response(&written, &mut again, &options);
    assert_eq!(status, Ok(ParseStatus::Complete { len: written.len() }), "{}", written.escape_ascii());
    assert_eq!(head.status(), again.status());
    assert!(head.fields().eq(again.fields()), "the same fields in {}", written.escape_ascii());
    let mut block = Vec::new();
    fields::write_response(&mut Encoder::new().writer(&mut block), &head);
    let mut back = Head::new();
    let rules = Rules { relaxed: true, max_bytes: usize::MAX, max_fields: 200, connect_protocol: false };
    let read = fields::read_response(Decoder::new(4096).block(&block), end, &rules, &mut back);
    assert!(read.is_ok(), "{read:?} of {}", written.escape_ascii());
    assert_eq!(head.status(), back.status());
    assert!(head.fields().eq(back.fields()), "the same fields in {}", written.escape_ascii());
}

fn trailers(block: &[u8], rules: &Rules) {
    let (mut head, mut back) = (Head::new(), Head::new());
    if fields::read_trailers(Decoder::new(4096).block(block), rules, &mut head).is_err() {
        return;
    }
    let mut written = Vec::new();
    fields::write_trailers(&mut Encoder::new().writer(&mut written), &head);
    let rules = Rules { relaxed: true, max_bytes: usize::MAX, max_fields: 200, connect_protocol: false };
    let read = fields::read_trailers(Decoder::new(4096).block(&written), &rules, &mut back);
    assert!(read.is_ok() && head.fields().eq(back.fields()), "{read:?} of {}", block.escape_ascii());
}
