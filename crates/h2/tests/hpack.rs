//! HPACK against the examples of RFC 7541, invalid input, and two third-party decoders and encoders.

mod common;

use common::{Pair, decode, hex, lines};
use fields::CodingError::{Huffman, Integer, Padding, Truncated};
use fields::{FieldName, Pseudo};
use h2::hpack::{DecodeError, Decoder, Encoder};
use http::KnownName;

/// Blocks and their contents, with one decoder per sequence.
#[test]
fn the_examples_of_appendix_c_decode() {
    const REQUESTS: [&str; 3] = [
        ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\n",
        ":method: GET\n:scheme: http\n:path: /\n:authority: www.example.com\ncache-control: no-cache\n",
        ":method: GET\n:scheme: https\n:path: /index.html\n:authority: www.example.com\ncustom-key: custom-value\n",
    ];
    const RESPONSES: [&str; 3] = [
        ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com\n",
        ":status: 307\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\nlocation: https://www.example.com\n",
        ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\nlocation: https://www.example.com\n\
         content-encoding: gzip\nset-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1\n",
    ];
    let sequences: &[(u32, &[&str], &[&str])] = &[
        // C.2.1 to C.2.4
        (
            4096,
            &["400a 6375 7374 6f6d 2d6b 6579 0d63 7573 746f 6d2d 6865 6164 6572"],
            &["custom-key: custom-header\n"],
        ),
        (4096, &["040c 2f73 616d 706c 652f 7061 7468"], &[":path: /sample/path\n"]),
        (4096, &["1008 7061 7373 776f 7264 0673 6563 7265 74"], &["password: secret\n"]),
        (4096, &["82"], &[":method: GET\n"]),
        // C.3
        (
            4096,
            &[
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "8286 84be 5808 6e6f 2d63 6163 6865",
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            ],
            &REQUESTS,
        ),
        // C.4
        (
            4096,
            &[
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                "8286 84be 5886 a8eb 1064 9cbf",
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            ],
            &REQUESTS,
        ),
        // C.5: the table has 256 bytes, so entries are evicted.
        (
            256,
            &[
                "4803 3330 3258 0770 7269 7661 7465 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 \
                 3120 474d 546e 1768 7474 7073 3a2f 2f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "4803 3330 37c1 c0bf",
                "88c1 611d 4d6f 6e2c 2032 3120 4f63 7420 3230 3133 2032 303a 3133 3a32 3220 474d 54c0 5a04 677a 6970 \
                 7738 666f 6f3d 4153 444a 4b48 514b 425a 584f 5157 454f 5049 5541 5851 5745 4f49 553b 206d 6178 2d61 \
                 6765 3d33 3630 303b 2076 6572 7369 6f6e 3d31",
            ],
            &RESPONSES,
        ),
        // C.6
        (
            256,
            &[
                "4882 6402 5885 aec3 771a 4b61 96d0 7abe 9410 54d4 44a8 2005 9504 0b81 66e0 82a6 2d1b ff6e 919d 29ad \
                 1718 63c7 8f0b 97c8 e9ae 82ae 43d3",
                "4883 640e ffc1 c0bf",
                "88c1 6196 d07a be94 1054 d444 a820 0595 040b 8166 e084 a62d 1bff c05a 839b d9ab 77ad 94e7 821d d7f2 \
                 e6c7 b335 dfdf cd5b 3960 d5af 2708 7f36 72c1 ab27 0fb5 291f 9587 3160 65c0 03ed 4ee5 b106 3d50 07",
            ],
            &RESPONSES,
        ),
    ];
    for (size, blocks, fields) in sequences {
        let mut decoder = Decoder::new(*size);
        for (block, fields) in blocks.iter().zip(*fields) {
            let decoded = decode(&mut decoder, &hex(block)).map(|decoded| lines(&decoded));
            assert_eq!(decoded.as_deref(), Ok(*fields), "{block}");
        }
    }
}

#[test]
fn invalid_blocks_are_refused() {
    for (block, error) in [
        // Invalid indexes: zero, beyond the tables, as a name, and far out of range.
        ("80", DecodeError::Index),
        ("be", DecodeError::Index),
        ("ff00", DecodeError::Index),
        ("7f0001 61", DecodeError::Index),
        ("4001 6101 61 bf", DecodeError::Index),
        ("ff ff ff ff 7f", DecodeError::Coding(Integer)),
        ("ff ff ff ff ff ff ff ff ff ff 01", DecodeError::Coding(Integer)),
        ("ff 80 80 80 80 80 80 00", DecodeError::Coding(Integer)),
        // Truncated input.
        ("ff", DecodeError::Coding(Truncated)),
        ("ff 80", DecodeError::Coding(Truncated)),
        ("40", DecodeError::Coding(Truncated)),
        ("40 03 61 61", DecodeError::Coding(Truncated)),
        ("40 01 61", DecodeError::Coding(Truncated)),
        ("40 01 61 05 61", DecodeError::Coding(Truncated)),
        ("40 01 61 7f ff ff ff 7f 61", DecodeError::Coding(Integer)),
        ("40 01 61 7f ff ff 7f 61", DecodeError::Coding(Truncated)),
        ("3f", DecodeError::Coding(Truncated)),
        ("01", DecodeError::Coding(Truncated)),
        // Huffman codes in names and values.
        ("40 81 00 01 61", DecodeError::Coding(Padding)),
        ("40 01 61 81 06", DecodeError::Coding(Padding)),
        ("40 01 61 82 07ff", DecodeError::Coding(Padding)),
        ("40 01 61 84 ffffffff", DecodeError::Coding(Huffman)),
        ("40 84 ffffffff 01 61", DecodeError::Coding(Huffman)),
        // Table sizes: above the size of this side, after a field.
        ("3f e2 1f", DecodeError::TableSize),
        ("3f ff ff ff 07", DecodeError::TableSize),
        ("82 20", DecodeError::TableSize),
        ("20 82 20", DecodeError::TableSize),
        ("40 01 61 01 61 3f 01", DecodeError::TableSize),
    ] {
        assert_eq!(decode(&mut Decoder::new(4096), &hex(block)), Err(error), "{block}");
    }
}

#[test]
fn table_sizes_change_at_the_start_of_a_block_up_to_ours() {
    let mut decoder = Decoder::new(4096);
    // Two entries, then the minimum table size and back: the entries are gone.
    assert!(decode(&mut decoder, &hex("4001 6101 62 4001 6301 64 be bf")).is_ok());
    assert!(decode(&mut decoder, &hex("be bf")).is_ok());
    assert_eq!(decode(&mut decoder, &hex("20 3f e1 1f")), Ok(vec![]), "sizes alone are a block");
    assert_eq!(decode(&mut decoder, &hex("be")), Err(DecodeError::Index));
    // A table for one entry keeps the newest; an empty table keeps nothing.
    assert!(decode(&mut decoder, &hex("3f 03 4001 6101 62 4001 6301 64 be")).is_ok());
    assert_eq!(decode(&mut decoder, &hex("bf")), Err(DecodeError::Index));
    assert_eq!(decode(&mut decoder, &hex("20 4001 6101 62 be")), Err(DecodeError::Index));
    // An entry larger than the table empties it, which is not an error.
    let mut small = Decoder::new(64);
    assert!(decode(&mut small, &hex("4001 6101 62 be")).is_ok());
    let mut large = hex("40 01 61 40");
    large.extend([b'x'; 64]);
    assert!(decode(&mut small, &large).is_ok());
    assert_eq!(decode(&mut small, &hex("be")), Err(DecodeError::Index));
    assert_eq!(decode(&mut Decoder::new(0), &hex("21")), Err(DecodeError::TableSize));
    assert_eq!(decode(&mut Decoder::new(0), &hex("20 82")).map(|fields| fields.len()), Ok(1));
}

#[test]
fn a_name_may_refer_to_the_entry_being_evicted() {
    let mut decoder = Decoder::new(80);
    let mut block = hex("40 05 6162636465 14");
    block.extend([b'1'; 20]);
    block.extend(hex("7e 14"));
    block.extend([b'2'; 20]);
    block.push(0xbe);
    let fields = decode(&mut decoder, &block).unwrap();
    let two = (b"abcde".to_vec(), vec![b'2'; 20]);
    assert_eq!(fields[1..], [two.clone(), two]);
}

#[test]
fn after_a_refusal_the_rest_is_decoded_but_dropped() {
    let mut decoder = Decoder::new(4096);
    let mut given = 0;
    let block = hex("82 4001 6101 62 84 4001 6301 64 be 4005 6162636465 0121");
    let outcome = decoder.decode(&block, &mut |_| {
        given += 1;
        given < 2
    });
    assert_eq!((outcome, given), (Ok(()), 2));
    let fields = decode(&mut decoder, &hex("be bf c0")).unwrap();
    assert_eq!(lines(&fields), "abcde: !\nc: d\na: b\n");
    // Errors are still detected.
    assert_eq!(decoder.decode(&hex("82 fe"), &mut |_| false), Err(DecodeError::Index));
    assert_eq!(decoder.decode(&hex("82 80"), &mut |_| false), Err(DecodeError::Index));
    assert_eq!(decoder.decode(&hex("82 20"), &mut |_| false), Err(DecodeError::TableSize));
}

#[test]
fn never_indexed_fields_are_marked_secret() {
    let mut marks = Vec::new();
    let block = hex("1f08 0161 0f08 0161 5701 61");
    let each = &mut |field: fields::Field<'_>| {
        marks.push((field.name == FieldName::Known(KnownName::Authorization), field.never_indexed));
        true
    };
    Decoder::new(4096).decode(&block, each).unwrap();
    assert_eq!(marks, [(true, true), (true, false), (true, false)]);
}

/// A mix of repeated and random fields, with arbitrary bytes.
fn some_fields(random: &mut fastrand::Rng) -> Vec<Pair> {
    const NAMES: [&str; 16] = [
        ":method",
        ":path",
        ":status",
        ":scheme",
        ":authority",
        "content-type",
        "server",
        "cookie",
        "x-a",
        "x-b-c-d-e-f-g",
        "set-cookie",
        "authorization",
        "accept-encoding",
        "date",
        "user-agent",
        "x",
    ];
    const VALUES: [&str; 8] = [
        "GET",
        "/",
        "200",
        "https",
        "gzip, deflate",
        "text/html; charset=utf-8",
        "",
        "Mozilla/5.0 (X11; Linux x86_64)",
    ];
    let field = |random: &mut fastrand::Rng| {
        let name = match random.usize(..20) {
            at @ 0..16 => NAMES[at].as_bytes().to_vec(),
            _ => (0..random.usize(1..40)).map(|_| random.u8(b'a'..=b'z')).collect(),
        };
        let value = match random.usize(..16) {
            at @ 0..8 => VALUES[at].as_bytes().to_vec(),
            8 => (0..random.usize(..3000)).map(|_| random.u8(..)).collect(),
            9..12 => (0..random.usize(..60)).map(|_| random.u8(..)).collect(),
            _ => (0..random.usize(..60)).map(|_| random.u8(b' '..=b'~')).collect(),
        };
        (name, value)
    };
    (0..random.usize(..20)).map(|_| field(random)).collect()
}

fn name_of(name: &[u8]) -> FieldName<'_> {
    let pseudo = [Pseudo::Method, Pseudo::Scheme, Pseudo::Authority, Pseudo::Path, Pseudo::Status];
    if let Some(pseudo) = pseudo.into_iter().find(|pseudo| pseudo.text() == name) {
        return FieldName::Pseudo(pseudo);
    }
    match KnownName::from_token(name) {
        KnownName::Other => FieldName::Other(name),
        known => FieldName::Known(known),
    }
}

#[test]
fn encoded_blocks_decode_with_three_decoders() {
    let mut random = fastrand::Rng::with_seed(1);
    for round in 0..40 {
        let mut encoder = Encoder::new();
        let (mut own, mut fluke, mut httlib) =
            (Decoder::new(4096), fluke_hpack::Decoder::new(), httlib_hpack::Decoder::with_dynamic_size(4096));
        let (mut plain, mut coded) = (0, 0);
        for _ in 0..80 {
            if round % 2 == 1 && random.usize(..10) == 0 {
                encoder.set_limit(random.u32(..5000), 4096);
                encoder.set_limit(random.u32(..5000), 4096);
            }
            let fields = some_fields(&mut random);
            let mut block = Vec::new();
            for (name, value) in &fields {
                encoder.field(name_of(name), value, &mut block);
                plain += name.len() + value.len();
            }
            coded += block.len();
            assert_eq!(decode(&mut own, &block), Ok(fields.clone()));
            assert_eq!(fluke.decode(&block).unwrap(), fields);
            let mut read = Vec::new();
            httlib.decode(&mut block.clone(), &mut read).unwrap();
            assert_eq!(read.into_iter().map(|(name, value, _)| (name, value)).collect::<Vec<_>>(), fields);
        }
        assert!(coded < plain, "{coded} of {plain} bytes");
    }
}

#[test]
fn blocks_of_two_other_encoders_decode() {
    use httlib_hpack::Encoder as Http;
    let mut random = fastrand::Rng::with_seed(2);
    for size in [0, 64, 200, 4096] {
        let (mut ours, mut fluke) = (Decoder::new(4096), fluke_hpack::Encoder::new());
        let (mut own, mut httlib) = (Decoder::new(size), Http::with_dynamic_size(size));
        for _ in 0..400 {
            let fields = some_fields(&mut random);
            let block = fluke.encode(fields.iter().map(|(name, value)| (&name[..], &value[..])));
            assert_eq!(decode(&mut ours, &block), Ok(fields.clone()));
            let mut block = Vec::new();
            for (name, value) in &fields {
                let flags =
                    [0, Http::HUFFMAN_NAME, Http::HUFFMAN_VALUE, Http::HUFFMAN_NAME | Http::HUFFMAN_VALUE];
                let kind = [0, Http::WITH_INDEXING, Http::WITH_INDEXING, Http::NEVER_INDEXED];
                let flags = flags[random.usize(..4)] | kind[random.usize(..4)] | Http::BEST_FORMAT;
                httlib.encode((name.clone(), value.clone(), flags), &mut block).unwrap();
            }
            assert_eq!(decode(&mut own, &block), Ok(fields));
        }
    }
}

#[test]
fn huffman_codes_match_other_encoders() {
    let mut block = Vec::new();
    let mut encoder = httlib_hpack::Encoder::with_dynamic_size(0);
    let all: Vec<u8> = (0..=255).collect();
    encoder.encode((b"x-y".to_vec(), all.clone(), httlib_hpack::Encoder::HUFFMAN_VALUE), &mut block).unwrap();
    assert_eq!(decode(&mut Decoder::new(0), &block), Ok(vec![(b"x-y".to_vec(), all)]));
    for byte in 0..=255u8 {
        let mut block = Vec::new();
        let value = vec![byte; 7];
        let flags = httlib_hpack::Encoder::HUFFMAN_VALUE;
        encoder.encode((b"x-y".to_vec(), value.clone(), flags), &mut block).unwrap();
        assert_eq!(decode(&mut Decoder::new(0), &block), Ok(vec![(b"x-y".to_vec(), value)]));
    }
}

fn encoded(encoder: &mut Encoder, name: FieldName<'_>, value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encoder.field(name, value.as_bytes(), &mut out);
    out
}

#[test]
fn repeated_fields_are_indexed_and_secrets_never() {
    let mut encoder = Encoder::new();
    let server = FieldName::Known(KnownName::Server);
    assert_eq!(encoded(&mut encoder, server, "weir"), hex("0f27 04 77656972"), "seen once");
    assert_eq!(encoded(&mut encoder, server, "weir"), hex("76 04 77656972"), "worth an entry");
    assert_eq!(encoded(&mut encoder, server, "weir"), hex("be"));
    let other = FieldName::Other(b"X-Own");
    for expected in ["00 05 782d6f776e 01 31", "40 05 782d6f776e 01 31", "be", "be"] {
        assert_eq!(encoded(&mut encoder, other, "1"), hex(expected));
    }
    assert_eq!(encoded(&mut encoder, server, "weir"), hex("bf"));
    for (name, value, first) in [
        (KnownName::Authorization, "Basic x", 0x1f),
        (KnownName::ProxyAuthorization, "Basic x", 0x1f),
        (KnownName::SetCookie, "a=b; secure; path=/and/more/of/it", 0x1f),
        (KnownName::Cookie, "short=1", 0x1f),
        (KnownName::Cookie, "a cookie that nobody can guess", 0x0f),
        (KnownName::ContentLength, "123", 0x0f),
    ] {
        for _ in 0..4 {
            assert_eq!(encoded(&mut encoder, FieldName::Known(name), value)[0], first, "{name:?}");
        }
    }
    for (name, value, whole) in [
        (FieldName::Pseudo(Pseudo::Status), "404", "8d"),
        (FieldName::Pseudo(Pseudo::Method), "POST", "83"),
        (FieldName::Pseudo(Pseudo::Path), "/index.html", "85"),
        (FieldName::Pseudo(Pseudo::Scheme), "https", "87"),
        (FieldName::Known(KnownName::AcceptEncoding), "gzip, deflate", "90"),
    ] {
        assert_eq!(encoded(&mut encoder, name, value), hex(whole));
    }
}

#[test]
fn table_size_updates_include_the_smallest_size() {
    let mut encoder = Encoder::new();
    encoder.set_limit(4096, 4096);
    let method = FieldName::Pseudo(Pseudo::Method);
    assert_eq!(encoded(&mut encoder, method, "GET"), hex("82"), "nothing changed");
    encoder.set_limit(0, 4096);
    encoder.set_limit(8192, 4096);
    assert_eq!(encoded(&mut encoder, method, "GET"), hex("20 3fe11f 82"));
    encoder.set_limit(100, 4096);
    assert_eq!(encoded(&mut encoder, method, "GET"), hex("3f45 82"));
    assert_eq!(encoded(&mut encoder, method, "GET"), hex("82"));
    encoder.set_limit(4096, 0);
    assert_eq!(encoded(&mut encoder, method, "GET"), hex("20 82"));
    for _ in 0..4 {
        assert_eq!(encoded(&mut encoder, FieldName::Known(KnownName::Server), "w"), hex("0f27 01 77"));
    }
}
