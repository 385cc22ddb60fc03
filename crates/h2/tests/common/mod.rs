//! Plainly encoded header blocks, for tests that choose the fields.

#![allow(dead_code, reason = "each program uses a part")]

use fields::FieldName;
use h2::hpack::Decoder;

/// Encodes a field without table or Huffman code.
pub(crate) fn literal(first: u8, name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.push(first);
    for text in [name, value] {
        match text.len() {
            short @ 0..=126 => out.push(short as u8),
            long => {
                let (mut rest, mut bytes) = (long - 127, vec![127]);
                while rest > 127 {
                    bytes.push(rest as u8 | 128);
                    rest >>= 7;
                }
                bytes.push(rest as u8);
                out.extend(bytes);
            }
        }
        out.extend_from_slice(text);
    }
}

/// Encodes a block of these fields.
pub(crate) fn block<T: AsRef<[u8]>>(fields: &[(T, T)]) -> Vec<u8> {
    let mut out = Vec::new();
    for (name, value) in fields {
        literal(0, name.as_ref(), value.as_ref(), &mut out);
    }
    out
}

/// A field's name and value.
pub(crate) type Pair = (Vec<u8>, Vec<u8>);

/// Decodes all fields of a block.
pub(crate) fn decode(decoder: &mut Decoder, block: &[u8]) -> Result<Vec<Pair>, h2::hpack::DecodeError> {
    let mut fields = Vec::new();
    decoder.decode(block, &mut |field| {
        if let FieldName::Other(name) = field.name {
            let known = http::KnownName::from_token(name);
            assert!(known == http::KnownName::Other || name != known.text(), "a known name goes by number");
        }
        fields.push((field.name.bytes().to_vec(), field.value.to_vec()));
        true
    })?;
    Ok(fields)
}

/// Fields as text: one `name: value` per line.
pub(crate) fn lines(fields: &[Pair]) -> String {
    let line = |(name, value): &Pair| format!("{}: {}\n", name.escape_ascii(), value.escape_ascii());
    fields.iter().map(line).collect()
}

/// Parses hexadecimal digits, optionally with blanks.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(&String::from_utf8_lossy(pair), 16).expect("digits");
    digits.chunks(2).map(byte).collect()
}
