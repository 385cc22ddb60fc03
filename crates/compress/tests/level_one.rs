//! Deflate at level 1, which this crate implements itself: tests at the boundaries of words, pieces, window and ring.

mod common;

use std::io::Read;

use common::noise;
use compress::{Algorithm, CoderSettings, Encoder};
use proptest::prelude::*;

const SETTINGS: CoderSettings = CoderSettings { level: 1, window_bits: 15, memory_level: 8, most_memory: 0 };

fn encoder() -> Encoder {
    Encoder::new(Algorithm::RawDeflate, &SETTINGS).expect("no limit of memory")
}

fn coded(content: &[u8]) -> Vec<u8> {
    let mut coded = Vec::new();
    encoder().finish(content, &mut coded);
    coded
}

/// Decodes as much of a possibly truncated body as possible.
fn decoded(coded: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    let _ = flate2::read::DeflateDecoder::new(coded).read_to_end(&mut plain);
    plain
}

#[test]
fn bodies_of_every_length_decode() {
    let kinds: [Box<dyn Fn(usize) -> u8>; 6] = [
        Box::new(|_| b'a'),
        Box::new(|at| b"abcdefg"[at % 7]),
        Box::new(|at| (at * 7 % 256) as u8),
        // The last byte with an eight-bit code, and the first with nine bits.
        Box::new(|at| 143 + (at % 2) as u8),
        Box::new(|at| if at % 9 == 8 { 0xff } else { b'x' + (at / 9 % 3) as u8 }),
        Box::new(|at| (at.wrapping_mul(0x9e37_79b1) >> 13) as u8),
    ];
    for (kind, byte) in kinds.iter().enumerate() {
        for length in 0..=600 {
            let content: Vec<u8> = (0..length).map(byte).collect();
            assert!(decoded(&coded(&content)) == content, "{length} bytes of kind {kind}");
        }
    }
}

#[test]
fn every_byte_is_a_literal_at_every_word_offset() {
    for byte in 0..=255 {
        let mut content = noise(3, 64);
        for place in 0..16 {
            content[place * 3] = byte;
        }
        assert!(decoded(&coded(&content)) == content, "{byte}");
        assert!(decoded(&coded(&[byte; 9])) == [byte; 9], "{byte}");
    }
}

#[test]
fn matches_of_every_length_decode() {
    for length in 0..=600 {
        let content = [noise(1, 700), noise(1, length), noise(2, 50)].concat();
        assert!(decoded(&coded(&content)) == content, "{length}");
    }
}

/// A distance that is one too large would be refused by every decoder.
#[test]
fn repetitions_at_window_and_ring_edges_decode() {
    for edge in [16 * 1024, 32 * 1024, 48 * 1024, 64 * 1024, 96 * 1024, 128 * 1024] {
        for distance in edge - 20..edge + 20 {
            for before in [0, 5, 40_000] {
                // Zeros in between, so that few slots of the table are used.
                let mut content = [noise(5, before), noise(1, 40), vec![0; distance - 40]].concat();
                content.extend_from_slice(&noise(1, 40));
                assert!(decoded(&coded(&content)) == content, "{distance} behind {before}");
            }
        }
    }
}

#[test]
fn coding_does_not_depend_on_earlier_bodies() {
    let text = b"the same words, and the same words again, and once more the same words".repeat(40);
    let expected = coded(&text);
    for other in [noise(9, 100_000), text.repeat(30), Vec::new()] {
        coded(&other);
        assert!(coded(&text) == expected);
    }
}

/// Runs of random bytes, repetitions, a single byte, or a small alphabet.
fn stretch() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        (any::<u64>(), 0usize..3000).prop_map(|(seed, length)| noise(seed, length)),
        // Seeds that repeat.
        (0u64..8, 0usize..40).prop_map(|(seed, length)| noise(seed, length)),
        (any::<u8>(), 0usize..700).prop_map(|(byte, length)| vec![byte; length]),
        proptest::collection::vec(prop_oneof![Just(143u8), Just(144), Just(b'a')], 0..60),
        "[a-e ]{0,30}".prop_map(String::into_bytes),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    #[test]
    fn bodies_decode_however_fragmented_and_flushed(
        stretches in proptest::collection::vec(stretch(), 0..400),
        pieces in proptest::collection::vec(prop_oneof![0usize..40, 0usize..40_000], 1..9),
        flushes in any::<u64>(),
    ) {
        let content = stretches.concat();
        let (mut encoder, mut coded) = (encoder(), Vec::new());
        let mut rest = &content[..];
        for (at, piece) in pieces.iter().cycle().take(200).enumerate() {
            let (piece, more) = rest.split_at((*piece).min(rest.len()));
            encoder.write(piece, &mut coded);
            rest = more;
            if flushes >> (at % 64) & 1 == 1 {
                encoder.flush(&mut coded);
                if at % 16 == 0 {
                    prop_assert!(decoded(&coded) == content[..content.len() - rest.len()], "flushed");
                }
            }
        }
        encoder.finish(rest, &mut coded);
        prop_assert!(decoded(&coded) == content);
    }
}
