//! QPACK against the examples of RFC 9204, two other implementations, and invalid input.

mod common;

use common::script::indexed;
use fields::CodingError::{Huffman, Integer, Padding, Truncated};
use fields::{FieldName, FieldSink, NameKind};
use h3::qpack::{DecodeError, QpackDecoder, QpackEncoder};
use shiguredo_http3::qpack as other;

type Pair = (Vec<u8>, Vec<u8>);

fn decode(decoder: &mut QpackDecoder, section: &[u8]) -> Result<Vec<Pair>, DecodeError> {
    let mut fields = Vec::new();
    decoder.decode(section, &mut |field| {
        if let FieldName::Other(name) = field.name {
            assert_eq!(NameKind::of(name), NameKind::Other, "a known name goes by number");
        }
        fields.push((field.name.bytes().to_vec(), field.value.to_vec()));
        true
    })?;
    Ok(fields)
}

fn lines(fields: &[Pair]) -> String {
    let line = |(name, value): &Pair| format!("{}: {}\n", name.escape_ascii(), value.escape_ascii());
    fields.iter().map(line).collect()
}

/// Parses hexadecimal digits, optionally with blanks.
fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}

fn encode(encoder: &mut QpackEncoder, stream: u64, fields: &[Pair], instructions: &mut Vec<u8>) -> Vec<u8> {
    let mut lines = Vec::new();
    let mut writer = encoder.section(stream, &mut lines, instructions);
    for (name, value) in fields {
        writer.field(NameKind::of(name).name(name), value);
    }
    [writer.finish().bytes(), &lines].concat()
}

/// Fields of all kinds: static ones, static names with other values, known names and others.
fn random_fields(rng: &mut fastrand::Rng) -> Vec<Pair> {
    let mut fields = Vec::new();
    for _ in 0..rng.usize(..12) {
        let entry = &other::STATIC_TABLE[rng.usize(..other::STATIC_TABLE_LEN)];
        let value: Vec<u8> = match rng.u8(..4) {
            0 => (0..rng.usize(..200)).map(|_| rng.u8(b' '..0x7f)).collect(),
            1 => (0..rng.usize(..20)).map(|_| rng.u8(1..)).collect(),
            _ => format!("value {}", rng.u8(..4)).into(),
        };
        fields.push(match rng.u8(..4) {
            0 => (entry.name().to_vec(), entry.value().to_vec()),
            1 => (entry.name().to_vec(), value),
            2 => (b"sec-fetch-mode".to_vec(), value),
            _ => (format!("x-own-{}", rng.u8(..5)).into(), value),
        });
    }
    fields
}

#[test]
fn the_static_table_is_that_of_others() {
    for (index, entry) in other::STATIC_TABLE.iter().enumerate() {
        let section = [&[0, 0][..], &indexed(0xc0, 0x3f, index)].concat();
        let field = (entry.name().to_vec(), entry.value().to_vec());
        assert_eq!(decode(&mut QpackDecoder::new(0), &section), Ok(vec![field.clone()]), "{index}");
        let read = qpack::decode_stateless(&mut &section[..], u64::MAX).expect("a static entry").fields;
        assert_eq!((&read[0].name[..], &read[0].value[..]), (&field.0[..], &field.1[..]));
        let written = encode(&mut QpackEncoder::new(false), 0, &[field], &mut Vec::new());
        assert_eq!(written, section);
    }
}

#[test]
fn the_examples_of_appendix_b_decode() {
    let mut decoder = QpackDecoder::new(220);
    let mut answers = Vec::new();
    let mut apply = |decoder: &mut QpackDecoder, text: &str, answer: &str| {
        let bytes = hex(text);
        assert_eq!(decoder.instructions(&bytes), Ok(bytes.len()));
        answers.clear();
        decoder.acknowledge_insertions(&mut answers);
        assert_eq!(answers, hex(answer));
    };
    let read =
        |decoder: &mut QpackDecoder, text: &str| decode(decoder, &hex(text)).map(|fields| lines(&fields));
    let path = read(&mut decoder, "0000 510b 2f69 6e64 6578 2e68 746d 6c");
    assert_eq!(path.as_deref(), Ok(":path: /index.html\n"));

    assert_eq!(decoder.is_blocked(&hex("0381 10 11")), Ok(true));
    let authority = "c00f 7777 772e 6578 616d 706c 652e 636f 6d";
    apply(&mut decoder, &format!("3fbd01 {authority} c10c 2f73 616d 706c 652f 7061 7468"), "02");
    assert_eq!(decoder.is_blocked(&hex("0381 10 11")), Ok(false));
    let both = read(&mut decoder, "0381 10 11");
    assert_eq!(both.as_deref(), Ok(":authority: www.example.com\n:path: /sample/path\n"));
    let mut out = Vec::new();
    QpackDecoder::acknowledge_section(4, &mut out);
    QpackDecoder::cancel_stream(8, &mut out);
    assert_eq!(out, [0x84, 0x48]);

    apply(&mut decoder, "4a63 7573 746f 6d2d 6b65 790c 6375 7374 6f6d 2d76 616c 7565", "01");
    apply(&mut decoder, "02", "01");
    let three = read(&mut decoder, "0500 80 c1 81");
    let expected = ":authority: www.example.com\n:path: /\ncustom-key: custom-value\n";
    assert_eq!(three.as_deref(), Ok(expected));

    apply(&mut decoder, "810d 6375 7374 6f6d 2d76 616c 7565 32", "01");
    // The oldest entry was evicted.
    assert_eq!(read(&mut decoder, "0600 84"), Err(DecodeError::Index));
    let newest = read(&mut decoder, "0600 80 83");
    assert_eq!(newest.as_deref(), Ok("custom-key: custom-value2\n:path: /sample/path\n"));
}

#[test]
fn invalid_sections_are_refused() {
    for (section, error) in [
        ("", DecodeError::Coding(Truncated)),
        ("00", DecodeError::Coding(Truncated)),
        ("ff", DecodeError::Coding(Truncated)),
        ("0000 c0 ff", DecodeError::Coding(Truncated)),
        // Beyond the static table, and references without a dynamic table.
        ("0000 ff 24", DecodeError::Index),
        ("0000 5f 54 00", DecodeError::Index),
        ("0000 80", DecodeError::Index),
        ("0000 10", DecodeError::Index),
        ("0000 40 00", DecodeError::Index),
        ("0000 00 00", DecodeError::Index),
        ("0005 80", DecodeError::Index),
        // Insert counts: too high, of nothing, a base below zero.
        ("0200 80", DecodeError::Prefix),
        ("0100", DecodeError::Prefix),
        ("0080", DecodeError::Prefix),
        // Literals.
        ("0000 51", DecodeError::Coding(Truncated)),
        ("0000 51 05 61", DecodeError::Coding(Truncated)),
        ("0000 23 61", DecodeError::Coding(Truncated)),
        ("0000 27 ff ff ff 7f", DecodeError::Coding(Integer)),
        ("0000 51 81 06", DecodeError::Coding(Padding)),
        ("0000 51 84 ffffffff", DecodeError::Coding(Huffman)),
    ] {
        assert_eq!(decode(&mut QpackDecoder::new(0), &hex(section)), Err(error), "{section}");
    }
    // With a table of capacity 128, four entries at most: the encoded insert count is at most 8.
    let mut decoder = QpackDecoder::new(128);
    assert!(decoder.instructions(&hex("3f61 c001 61 c001 62")).is_ok());
    for (section, error) in [
        ("0900 80", DecodeError::Prefix),
        ("0800 80", DecodeError::Prefix),
        ("0200 81", DecodeError::Index),
        ("0382 10", DecodeError::Prefix),
        ("0381 12", DecodeError::Index),
        ("0203 80", DecodeError::Index),
    ] {
        assert_eq!(decode(&mut decoder, &hex(section)), Err(error), "{section}");
    }
    assert_eq!(
        decode(&mut decoder, &hex("0203 83")).map(|fields| lines(&fields)).as_deref(),
        Ok(":authority: a\n")
    );
}

#[test]
fn invalid_encoder_instructions_are_refused() {
    for (capacity, bytes) in [
        (0, "c001 61"),
        (0, "4161 0162"),
        (0, "00"),
        (0, "21"),
        (220, "3fbe01"),
        (220, "00"),
        (220, "3fbd01 80 0161"),
        (220, "3fbd01 ff25 00"),
        // Larger than the table, or than the capacity that was set.
        (64, "3f21 c021 616161616161616161616161616161616161616161616161616161616161616161"),
        (220, "c001 61"),
        (220, "3fbd01 c0 ff ff ff ff 7f"),
        (220, "3fbd01 c0 8106"),
    ] {
        let mut decoder = QpackDecoder::new(capacity);
        assert!(decoder.instructions(&hex(bytes)).is_err(), "{bytes}");
    }
}

#[test]
fn endless_instructions_are_refused() {
    let mut decoder = QpackDecoder::new(220);
    let mut pending = hex("3fbd01 c0 7f8107");
    while pending.len() < 10_000 {
        pending.extend_from_slice(&[b'a'; 50]);
        match decoder.instructions(&pending) {
            Ok(used) => drop(pending.drain(..used)),
            Err(_) => break,
        }
    }
    assert!(pending.len() < 1100, "{}", pending.len());
}

#[test]
fn instructions_may_be_cut_anywhere() {
    let all = hex("3fbd01 c00f 7777 772e 6578 616d 706c 652e 636f 6d 4a63 7573 746f 6d2d 6b65 7901 61 00");
    for cut in 0..all.len() {
        let mut decoder = QpackDecoder::new(220);
        let used = decoder.instructions(&all[..cut]).expect("a part is no error");
        let rest = decoder.instructions(&all[used..]).expect("valid");
        assert_eq!(used + rest, all.len());
        let fields = decode(&mut decoder, &hex("0400 80 81 82")).expect("three entries");
        assert_eq!(lines(&fields), "custom-key: a\ncustom-key: a\n:authority: www.example.com\n");
    }
}

#[test]
fn sections_decode_with_three_decoders() {
    let mut rng = fastrand::Rng::with_seed(5);
    for round in 0..3000 {
        let fields = random_fields(&mut rng);
        let section = encode(&mut QpackEncoder::new(round % 2 == 0), 0, &fields, &mut Vec::new());
        assert_eq!(decode(&mut QpackDecoder::new(0), &section).as_ref(), Ok(&fields));
        let read = qpack::decode_stateless(&mut &section[..], u64::MAX).expect("a valid section").fields;
        assert!(
            read.iter()
                .map(|field| (&field.name[..], &field.value[..]))
                .eq(fields.iter().map(|(name, value)| (&name[..], &value[..])))
        );
        let read = other::Decoder::new().decode(&section).expect("a valid section");
        assert!(
            read.iter()
                .map(|field| (field.name(), field.value()))
                .eq(fields.iter().map(|(name, value)| (&name[..], &value[..])))
        );
        let theirs = fields.iter().map(|(name, value)| qpack::HeaderField::new(name.clone(), value.clone()));
        let mut section = Vec::new();
        qpack::encode_stateless(&mut section, theirs).expect("valid fields");
        assert_eq!(decode(&mut QpackDecoder::of_server(0), &section).as_ref(), Ok(&fields));
    }
}

#[test]
fn our_dynamic_table_is_that_of_another_decoder() {
    let mut rng = fastrand::Rng::with_seed(6);
    let (mut smaller, mut dynamic) = (0, 0);
    for capacity in [100, 300, 4096] {
        let (mut encoder, mut plain) = (QpackEncoder::new(true), QpackEncoder::new(true));
        let (mut ours, mut theirs) = (QpackDecoder::new(4096), other::DynamicDecoder::new());
        theirs.set_max_table_capacity(4096);
        let mut receiver = other::EncoderStreamReceiver::new();
        receiver.set_max_table_capacity(4096);
        let mut instructions = Vec::new();
        encoder.set_capacity(4096, capacity, &mut instructions);
        for stream in (0..4000).step_by(4) {
            let fields = random_fields(&mut rng);
            let section = encode(&mut encoder, stream, &fields, &mut instructions);
            dynamic += usize::from(QpackDecoder::is_dynamic(&section));
            smaller += encode(&mut plain, stream, &fields, &mut Vec::new()).len();
            smaller -= section.len().min(smaller);
            if rng.bool() {
                receiver.receive(&instructions);
                while receiver.process(theirs.table_mut()).expect("valid instructions").is_some() {}
                assert_eq!(ours.instructions(&instructions), Ok(instructions.len()));
                instructions.clear();
            }
            // A section never waits for instructions.
            assert_eq!(ours.is_blocked(&section), Ok(false));
            assert_eq!(decode(&mut ours, &section).as_ref(), Ok(&fields));
            let other::DecodeOutput::Decoded(read) = theirs.decode(&section).expect("a valid section") else {
                panic!("blocked")
            };
            assert!(
                read.iter()
                    .map(|field| (field.name(), field.value()))
                    .eq(fields.iter().map(|(name, value)| (&name[..], &value[..])))
            );
            let mut answers = Vec::new();
            ours.acknowledge_insertions(&mut answers);
            if QpackDecoder::is_dynamic(&section) && rng.u8(..4) > 0 {
                QpackDecoder::acknowledge_section(stream, &mut answers);
            } else if QpackDecoder::is_dynamic(&section) {
                QpackDecoder::cancel_stream(stream, &mut answers);
            }
            assert_eq!(encoder.instructions(&answers), Ok(answers.len()));
        }
    }
    assert!(dynamic > 300 && smaller > 10_000, "{dynamic} sections, {smaller} bytes");
}

#[test]
fn entries_that_are_larger_than_the_table_are_not_inserted() {
    let fields: [Pair; 2] = [(b"x-a".into(), b"b".into()), (b"x-c".into(), b"".into())];
    for capacity in 1..100 {
        let (mut encoder, mut decoder) = (QpackEncoder::new(false), QpackDecoder::new(capacity));
        let mut instructions = Vec::new();
        encoder.set_capacity(capacity.into(), capacity, &mut instructions);
        for stream in 0..3 {
            let section = encode(&mut encoder, stream * 4, &fields, &mut instructions);
            assert_eq!(decoder.instructions(&instructions), Ok(instructions.len()), "{capacity}");
            instructions.clear();
            assert_eq!(decode(&mut decoder, &section).as_deref(), Ok(&fields[..]), "{capacity}");
        }
    }
}

#[test]
fn another_encoders_dynamic_table_is_ours() {
    let mut rng = fastrand::Rng::with_seed(7);
    let (mut ours, mut theirs) = (QpackDecoder::new(4096), other::DynamicEncoder::new());
    theirs.set_max_table_capacity(4096);
    theirs.set_peer_max_blocked_streams(100);
    theirs.set_table_capacity(4096).expect("within the limit");
    let mut stream = other::EncoderStream::new();
    stream.set_max_table_capacity(4096);
    stream.encode_set_capacity(4096).expect("within the limit");
    let mut dynamic = 0;
    for round in 0..500 {
        let fields: Vec<Pair> = random_fields(&mut rng);
        if let Some((name, value)) = fields.first().filter(|_| round < 60) {
            stream.encode_insert_with_literal_name(name, value).expect("a valid field");
            theirs.insert(name.clone(), value.clone());
        }
        let headers: Option<Vec<other::Header>> =
            fields.iter().map(|(name, value)| other::Header::new(name, value).ok()).collect();
        // Header refuses values that we generate, such as control characters.
        let Some(headers) = headers else { continue };
        let mut section = vec![0; 10_000];
        let length = theirs.encode(&mut section, &headers, 0).expect("there is room");
        section.truncate(length);
        dynamic += usize::from(QpackDecoder::is_dynamic(&section));
        let bytes = stream.get_data().to_vec();
        stream.consume_data(bytes.len());
        assert_eq!(ours.instructions(&bytes), Ok(bytes.len()));
        assert_eq!(decode(&mut ours, &section), Ok(fields));
    }
    assert!(dynamic > 50, "{dynamic}");
}

#[test]
fn invalid_decoder_instructions_are_refused() {
    let mut encoder = QpackEncoder::new(false);
    let mut instructions = Vec::new();
    encoder.set_capacity(4096, 4096, &mut instructions);
    let field = (b"x-own".to_vec(), b"value".to_vec());
    for _ in 0..2 {
        encode(&mut encoder, 0, std::slice::from_ref(&field), &mut instructions);
    }
    // One insertion: none, or two, cannot be acknowledged, nor a section without references.
    for bytes in [&b"\x00"[..], b"\x02", b"\x80", b"\x7f\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"] {
        assert!(encoder.instructions(bytes).is_err(), "{}", bytes.escape_ascii());
    }
    assert_eq!(encoder.instructions(b"\x01\x48\x7f"), Ok(2), "the last one is incomplete");
    let section = encode(&mut encoder, 0, &[field], &mut instructions);
    assert_eq!(section, [2, 0, 0x80]);
    assert_eq!(encoder.instructions(b"\x80"), Ok(1));
    assert!(encoder.instructions(b"\x80").is_err(), "acknowledged twice");
}

#[test]
fn secret_fields_stay_out_of_all_tables() {
    let mut encoder = QpackEncoder::new(true);
    let mut instructions = Vec::new();
    encoder.set_capacity(4096, 4096, &mut instructions);
    instructions.clear();
    for _ in 0..4 {
        let mut lines = Vec::new();
        let mut writer = encoder.section(0, &mut lines, &mut instructions);
        writer.secret(FieldName::Other(b"X-Key"), b"secret");
        writer.secret(FieldName::Known(http::KnownName::Server), b"secret");
        writer.secret(FieldName::Known(http::KnownName::Vary), b"origin");
        writer.field(FieldName::Known(http::KnownName::Authorization), b"secret");
        writer.field(FieldName::Known(http::KnownName::Cookie), b"a=b");
        let section = [writer.finish().bytes(), &lines].concat();
        let mut marks = Vec::new();
        let each = &mut |field: fields::Field<'_>| {
            marks.push((field.name.bytes().to_vec(), field.never_indexed));
            true
        };
        QpackDecoder::new(0).decode(&section, each).expect("a valid section");
        assert_eq!(marks[0], (b"x-key".to_vec(), true), "in lower case");
        assert!(marks.iter().all(|mark| mark.1));
    }
    assert_eq!(instructions, []);
}
