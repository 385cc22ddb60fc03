//! Fuzz targets for HTTP/3 field sections.

use fields::{FieldName, FieldSink, Rules, Scheme};
use h3::qpack::{DecodeError, QpackDecoder, QpackEncoder};
use http::{Head, ParseOptions, ParseStatus};

/// A decoded field: its name, its value, and whether it is secret.
type Field = (Vec<u8>, Vec<u8>, bool);

fn decode(decoder: &mut QpackDecoder, section: &[u8]) -> Result<Vec<Field>, DecodeError> {
    let mut fields = Vec::new();
    decoder.decode(section, &mut |field| {
        let name = field.name.bytes();
        // One-byte indices may stand for kilobytes: no more is kept than a message may have.
        fields.push((name.to_vec(), field.value.to_vec(), field.never_indexed));
        fields.len() < 1000
    })?;
    Ok(fields)
}

/// Encodes fields, and the instructions that belong to them.
fn encode(encoder: &mut QpackEncoder, stream: u64, fields: &[Field], instructions: &mut Vec<u8>) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut writer = encoder.section(stream, &mut lines, instructions);
    for (name, value, secret) in fields {
        let lower = name.to_ascii_lowercase();
        let name = match http::KnownName::from_token(&lower) {
            http::KnownName::Other => FieldName::Other(name),
            known => FieldName::Known(known),
        };
        if *secret { writer.secret(name, value) } else { writer.field(name, value) }
    }
    [writer.finish().bytes(), &lines].concat()
}

/// Checks that instructions may be cut anywhere, that sections decode the same whether their fields are wanted or not, and that
/// encoded fields decode to themselves. The first byte sets the capacity of the tables; then follow pieces of the encoder stream and
/// sections in turn, each preceded by its length in two bytes.
pub fn qpack(bytes: &[u8]) {
    let Some((capacity, mut bytes)) = bytes.split_first() else { return };
    let capacity = u32::from(*capacity) * 32;
    let (mut decoder, mut deaf) = (QpackDecoder::new(capacity), QpackDecoder::new(capacity));
    let (mut encoder, mut again) = (QpackEncoder::new(capacity % 64 == 0), QpackDecoder::new(capacity));
    let mut instructions = Vec::new();
    encoder.set_capacity(capacity.into(), 2000, &mut instructions);
    assert_eq!(again.instructions(&instructions), Ok(instructions.len()));
    let (mut pending, mut deaf_pending, mut stream) = (Vec::new(), Vec::new(), 0);
    while let [high, low, rest @ ..] = bytes {
        let (piece, left) = rest.split_at(rest.len().min(usize::from(*high) << 8 | usize::from(*low)));
        bytes = left;
        stream += 4;
        if stream % 8 == 4 {
            pending.extend_from_slice(piece);
            let Ok(used) = decoder.instructions(&pending) else { return };
            pending.drain(..used);
            assert!(pending.len() <= capacity as usize * 4 + 32, "{} bytes are left", pending.len());
            for byte in piece {
                feed(&mut deaf, &mut deaf_pending, *byte);
            }
            continue;
        }
        let fields = decode(&mut decoder, piece);
        let unwanted = deaf.decode(piece, &mut |_| false);
        assert_eq!(fields.as_ref().err(), unwanted.as_ref().err(), "{}", piece.escape_ascii());
        let Ok(fields) = fields else { continue };
        round_trip(&mut encoder, &mut again, stream, &fields);
    }
}

/// Passes a byte of the encoder stream to a decoder, in front of which `pending` has the bytes of an incomplete instruction.
fn feed(decoder: &mut QpackDecoder, pending: &mut Vec<u8>, byte: u8) {
    pending.push(byte);
    match decoder.instructions(pending) {
        Ok(used) => drop(pending.drain(..used)),
        Err(error) => panic!("{error:?}, which is no error as a whole"),
    }
}

/// Checks that fields decode to themselves, without waiting for instructions that their section does not need.
fn round_trip(encoder: &mut QpackEncoder, decoder: &mut QpackDecoder, stream: u64, fields: &[Field]) {
    let mut instructions = Vec::new();
    let section = encode(encoder, stream, fields, &mut instructions);
    let read = decode(decoder, &section).unwrap_or_else(|error| panic!("{error:?} in what we wrote"));
    assert_eq!(read.len(), fields.len());
    for (one, other) in read.iter().zip(fields) {
        assert!(one.0 == other.0.to_ascii_lowercase() && one.1 == other.1, "the same fields");
        assert!(one.2 || !other.2, "what is secret stays so");
    }
    assert_eq!(decoder.instructions(&instructions), Ok(instructions.len()));
    let mut answers = Vec::new();
    decoder.acknowledge_insertions(&mut answers);
    if QpackDecoder::is_dynamic(&section) {
        QpackDecoder::acknowledge_section(stream, &mut answers);
    }
    assert_eq!(encoder.instructions(&answers), Ok(answers.len()));
}

/// Checks that an accepted request is the same request in HTTP/1, to the last byte, and again in HTTP/3. The first byte has flags:
/// end of stream, relaxed, no extended CONNECT.
pub fn h3_request(bytes: &[u8]) {
    let Some((flags, section)) = bytes.split_first() else { return };
    let end = flags & 1 != 0;
    let rules = Rules {
        max_bytes: 16_384,
        max_fields: 100,
        relaxed: flags & 2 != 0,
        connect_protocol: flags & 4 == 0,
    };
    let mut head = Head::new();
    let read = fields::read_request(QpackDecoder::new(0).section(section), end, &rules, &mut head);
    let Ok(request) = read else { return };
    assert_eq!(head.version(), http::Version::Other(3, 0));
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
    let (mut encoder, mut lines, mut instructions) = (QpackEncoder::new(true), Vec::new(), Vec::new());
    let mut writer = encoder.section(0, &mut lines, &mut instructions);
    fields::write_request(&mut writer, &head, Scheme::Https);
    let section = [writer.finish().bytes(), &lines].concat();
    let mut back = Head::new();
    let rules = Rules { relaxed: true, max_bytes: usize::MAX, max_fields: 200, connect_protocol: true };
    let read = fields::read_request(QpackDecoder::new(0).section(&section), end, &rules, &mut back);
    if head.get_known(http::KnownName::Host).is_none_or(<[u8]>::is_empty) {
        // The request had another scheme. With `https`, it needs a host.
        assert!(read.is_err(), "{}", written.escape_ascii());
        return;
    }
    assert!(read.is_ok(), "{read:?} of {}", written.escape_ascii());
    assert_eq!((head.method(), head.plain_target()), (back.method(), back.plain_target()));
}
