//! Coded bodies decode to the original, in any fragmentation and with any flushes; flushed data decodes immediately.

use std::io::Read;

use compress::{Algorithm, CoderSettings, Encoder, memory_used};
use proptest::prelude::*;

const SETTINGS: CoderSettings = CoderSettings { level: 1, window_bits: 15, memory_level: 8, most_memory: 0 };

/// The number of pieces of a body after which flushed data is decoded.
const CHECKED_FLUSHES: usize = 64;

/// Decodes a body, or as much of a truncated one as possible.
fn decoded(algorithm: Algorithm, coded: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let read = match algorithm {
        Algorithm::Identity => {
            plain.extend_from_slice(coded);
            return plain;
        }
        Algorithm::Gzip => flate2::read::GzDecoder::new(coded).read_to_end(&mut plain),
        Algorithm::Deflate => flate2::read::ZlibDecoder::new(coded).read_to_end(&mut plain),
        Algorithm::RawDeflate => flate2::read::DeflateDecoder::new(coded).read_to_end(&mut plain),
        Algorithm::Brotli => brotli::Decompressor::new(coded, 4096).read_to_end(&mut plain),
        Algorithm::Zstd => return unzstd(coded),
    };
    // For a truncated body, the decoder has returned what it could decode.
    let _ = read;
    plain
}

fn unzstd(coded: &[u8]) -> Vec<u8> {
    let mut context = zstd_safe::DCtx::create();
    let mut input = zstd_safe::InBuffer::around(coded);
    let mut plain = Vec::new();
    let mut scratch = vec![0; 64 * 1024];
    loop {
        let mut output = zstd_safe::OutBuffer::around(&mut scratch[..]);
        let left = context.decompress_stream(&mut output, &mut input).expect("a frame of zstd");
        let full = output.pos() == 64 * 1024;
        plain.extend_from_slice(output.as_slice());
        if left == 0 || input.pos() == coded.len() && !full {
            return plain;
        }
    }
}

/// Text with many repetitions, and random bytes without any.
fn content() -> impl Strategy<Value = Vec<u8>> {
    let word = prop_oneof![
        proptest::collection::vec(any::<u8>(), 1..300),
        proptest::collection::vec(prop_oneof![Just(b'a'), Just(b'b'), Just(0)], 1..700),
        "[a-z ]{3,20}".prop_map(String::into_bytes),
    ];
    (proptest::collection::vec(word, 1..20), proptest::collection::vec(0usize..20, 0..600))
        .prop_map(|(words, order)| order.iter().flat_map(|at| words[at % words.len()].clone()).collect())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn coded_bodies_decode_to_the_original(
        content in content(),
        pieces in proptest::collection::vec(1usize..40_000, 1..12),
        flushes in any::<u16>(),
        level in prop_oneof![Just(1u8), Just(2), Just(6), Just(9)],
    ) {
        for (_, algorithm) in Algorithm::ALL {
            let mut encoder = Encoder::new(algorithm, &CoderSettings { level, ..SETTINGS }).unwrap();
            let (mut coded, mut rest, mut at) = (Vec::new(), &content[..], 0);
            while !rest.is_empty() {
                let (piece, more) = rest.split_at(pieces[at % pieces.len()].min(rest.len()));
                encoder.write(piece, &mut coded);
                rest = more;
                if flushes >> (at % 16) & 1 == 1 {
                    encoder.flush(&mut coded);
                    let so_far = content.len() - rest.len();
                    // Decoding everything after each of thousands of small pieces would take minutes.
                    let is_checked = at < CHECKED_FLUSHES;
                    prop_assert!(
                        !is_checked || decoded(algorithm, &coded) == content[..so_far],
                        "{algorithm:?} flushed"
                    );
                }
                at += 1;
            }
            encoder.finish(&[], &mut coded);
            prop_assert!(decoded(algorithm, &coded) == content, "{algorithm:?} at level {level}");
        }
    }
}

#[test]
fn long_bodies_decode_across_window_slides() {
    let mut content = Vec::new();
    for line in 0..40_000u32 {
        content.extend_from_slice(
            format!("{{\"line\": {line}, \"hash\": {}}}\n", line.wrapping_mul(2_654_435_769)).as_bytes(),
        );
    }
    for (_, algorithm) in Algorithm::ALL {
        for _ in 0..3 {
            // Later rounds reuse the state of the first.
            let mut encoder = Encoder::new(algorithm, &SETTINGS).unwrap();
            let mut coded = Vec::new();
            for piece in content.chunks(9973) {
                encoder.write(piece, &mut coded);
            }
            encoder.finish(&[], &mut coded);
            assert!(decoded(algorithm, &coded) == content, "{algorithm:?}");
            assert!(algorithm == Algorithm::Identity || coded.len() < content.len() / 2, "{algorithm:?}");
        }
    }
}

#[test]
fn incompressible_bodies_hardly_grow() {
    let mut seed = 1u64;
    let content: Vec<u8> = std::iter::repeat_with(|| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 56) as u8
    })
    .take(300_000)
    .collect();
    for (_, algorithm) in Algorithm::ALL {
        let mut coded = Vec::new();
        Encoder::new(algorithm, &SETTINGS).unwrap().finish(&content, &mut coded);
        assert!(decoded(algorithm, &coded) == content, "{algorithm:?}");
        assert!(coded.len() < content.len() + content.len() / 1000, "{algorithm:?}: {}", coded.len());
    }
}

#[test]
fn empty_bodies_are_valid_in_every_coding() {
    for (_, algorithm) in Algorithm::ALL {
        let mut coded = Vec::new();
        Encoder::new(algorithm, &SETTINGS).unwrap().finish(&[], &mut coded);
        assert_eq!(coded.is_empty(), algorithm == Algorithm::Identity);
        assert!(decoded(algorithm, &coded).is_empty(), "{algorithm:?}");
    }
}

#[test]
fn the_memory_limit_prevents_new_states() {
    // Other tests of this process use memory too, so the limit is below one state.
    let tight = CoderSettings { most_memory: 1, level: 9, ..SETTINGS };
    assert!(Encoder::new(Algorithm::Brotli, &tight).is_none());
    assert!(Encoder::new(Algorithm::Identity, &tight).is_some());
    let one = Encoder::new(Algorithm::Brotli, &SETTINGS).unwrap();
    assert!(memory_used() > 0);
    drop(one);
}
