//! Brotli, which this crate implements itself: tests at the boundaries of alphabets, blocks and the window.

mod common;

use std::io::Read;

use common::noise;
use compress::{Algorithm, CoderSettings, Encoder, compress_brotli};

fn decoded(coded: &[u8]) -> Vec<u8> {
    let mut plain = Vec::new();
    brotli::Decompressor::new(coded, 4096).read_to_end(&mut plain).expect("a Brotli stream");
    plain
}

fn assert_decodes(content: &[u8], level: u8, what: &str) {
    let coded = compress_brotli(content, level);
    assert!(decoded(&coded) == content, "{what}, {} bytes at level {level}", content.len());
    assert!(coded.len() <= content.len() + content.len() / 1000 + 8, "{what} grew to {}", coded.len());
}

#[test]
fn bodies_of_every_length_decode() {
    type Content = (&'static str, fn(usize) -> u8);
    let kinds: [Content; 6] = [
        ("one symbol", |_| b'a'),
        ("two symbols", |at| b'a' + (at * at / 3 % 2) as u8),
        ("four symbols", |at| b"abcd"[at.wrapping_mul(at) / 5 % 4]),
        ("a period", |at| b"abcdefg"[at % 7]),
        ("all symbols", |at| (at * 7 % 256) as u8),
        ("no pattern", |at| (at.wrapping_mul(0x9e37_79b1) >> 13) as u8),
    ];
    for (what, byte) in kinds {
        for length in 0..=600 {
            let content: Vec<u8> = (0..length).map(byte).collect();
            for level in [1, 5] {
                assert_decodes(&content, level, what);
            }
        }
    }
}

#[test]
fn every_level_decodes_around_block_boundaries() {
    for level in 1..=9 {
        for length in [65_535, 65_536, 65_537, 131_071, 131_072, 262_144, 300_001] {
            let words = noise(u64::from(level), 900);
            let text: Vec<u8> = (0..length).map(|at| words[at * (at / 97) % 900] & 31).collect();
            assert_decodes(&text, level, "text");
        }
        assert_decodes(&noise(3, 200_000), level, "noise");
        assert_decodes(&vec![0; 300_000], level, "zeros");
    }
}

/// A distance that is one too large would refer to the static dictionary.
#[test]
fn repetitions_at_the_edge_of_the_window_decode() {
    let window = (1 << 17) - 16;
    for distance in window - 3..window + 20 {
        let mut content = [noise(1, 40), vec![0; distance - 40]].concat();
        content.extend_from_slice(&noise(1, 40));
        assert_decodes(&content, 6, "a repetition");
        assert_decodes(&[noise(5, 5000), content].concat(), 6, "a later repetition");
    }
}

#[test]
fn skewed_counts_give_codes_of_the_permitted_length() {
    // Counts like the Fibonacci numbers would give codes of more than 15 bits.
    let (mut content, mut one, mut two) = (Vec::new(), 1, 1);
    for symbol in 0..22u8 {
        content.extend(std::iter::repeat_n(symbol.wrapping_mul(11), one));
        (one, two) = (two, one + two);
    }
    // In an order without repetitions of four bytes nearby.
    let mut keyed: Vec<(u32, u8)> =
        content.iter().enumerate().map(|(at, byte)| ((at as u32).wrapping_mul(0x9e37_79b1), *byte)).collect();
    keyed.sort_unstable();
    let content: Vec<u8> = keyed.into_iter().map(|(_, byte)| byte).collect();
    assert_decodes(&content, 1, "skewed counts");
    assert_decodes(&content, 9, "skewed counts");
}

#[test]
fn coding_does_not_depend_on_earlier_bodies() {
    let settings = CoderSettings { level: 6, window_bits: 15, memory_level: 8, most_memory: 0 };
    let coded = |content: &[u8]| {
        let mut coded = Vec::new();
        Encoder::new(Algorithm::Brotli, &settings).expect("no limit of memory").finish(content, &mut coded);
        coded
    };
    let text = b"the same words, and the same words again, and once more the same words".repeat(40);
    let expected = compress_brotli(&text, 6);
    for other in [noise(9, 400_000), text.repeat(100), Vec::new()] {
        coded(&other);
        assert!(coded(&text) == expected);
    }
}

/// Blocks that end at flushes move the following ones away from multiples of their length.
#[test]
fn bodies_with_flushes_decode_beyond_the_history() {
    let settings = CoderSettings { level: 3, window_bits: 15, memory_level: 8, most_memory: 0 };
    let words = noise(4, 900);
    let content: Vec<u8> = (0..700_000).map(|at| words[at * (at / 97) % 900] & 31).collect();
    let lengths =
        [[1, 700_000], [65_535, 1], [40_000, 40_000], [262_143, 2], [262_144, 131_072], [999, 70_001]];
    for pieces in lengths {
        let mut encoder = Encoder::new(Algorithm::Brotli, &settings).expect("no limit of memory");
        let (mut coded, mut rest) = (Vec::new(), &content[..]);
        for length in pieces.iter().cycle() {
            let (piece, later) = rest.split_at(rest.len().min(*length));
            encoder.write(piece, &mut coded);
            encoder.flush(&mut coded);
            rest = later;
            if rest.is_empty() {
                break;
            }
        }
        encoder.finish(&[], &mut coded);
        assert!(decoded(&coded) == content, "pieces of {pieces:?}");
    }
}
