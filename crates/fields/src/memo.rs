//! A cache of recently decoded Huffman strings.
//!
//! Many servers, such as nginx, do not use the dynamic table: they repeat the same date, content type and server name as literals
//! in each response. Comparing a code with a cached one costs a tenth of decoding it. The cache is used for responses only: with
//! requests, timing could reveal the fields of one client of a shared connection to another client.

use crate::coding::CodingError;
use crate::huffman;

/// The number of cached strings; a power of two.
const SLOTS: usize = 16;
/// The maximum length in bytes of a cached code, and of the string that it decodes to: the shortest symbol has five bits.
const CODED: usize = 48;
const PLAIN: usize = CODED * 8 / 5;
/// Shorter codes are not cached, because decoding them is just as fast.
const SHORT: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Slot {
    coded: [u8; CODED],
    plain: [u8; PLAIN],
    coded_len: u8,
    plain_len: u8,
}

/// The strings of one connection. The memory is allocated with the first string.
#[derive(Debug, Default)]
pub struct Memo(Vec<Slot>);

impl Memo {
    /// Like [`huffman::decode`].
    ///
    /// # Errors
    /// The errors of [`huffman::decode`].
    pub fn decode(&mut self, coded: &[u8], out: &mut Vec<u8>) -> Result<(), CodingError> {
        if !(SHORT..=CODED).contains(&coded.len()) {
            return huffman::decode(coded, out);
        }
        if self.0.is_empty() {
            let empty = Slot { coded: [0; CODED], plain: [0; PLAIN], coded_len: 0, plain_len: 0 };
            self.0 = vec![empty; SLOTS];
        }
        let slot = &mut self.0[place(coded)];
        if slot.coded[..usize::from(slot.coded_len)] == *coded {
            out.extend_from_slice(&slot.plain[..usize::from(slot.plain_len)]);
            return Ok(());
        }
        let start = out.len();
        huffman::decode(coded, out)?;
        let plain = &out[start..];
        slot.coded[..coded.len()].copy_from_slice(coded);
        slot.plain[..plain.len()].copy_from_slice(plain);
        (slot.coded_len, slot.plain_len) = (coded.len() as u8, plain.len() as u8);
        Ok(())
    }

    /// Forgets all strings and frees the memory.
    pub fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

/// The slot of a code of at least [`SHORT`] bytes. It depends on both ends and the length, because values of the same field differ
/// only slightly.
fn place(coded: &[u8]) -> usize {
    let ends = |bytes: Option<&[u8; SHORT]>| u32::from_le_bytes(bytes.copied().unwrap_or_default());
    let mixed = ends(coded.first_chunk()) ^ ends(coded.last_chunk()).rotate_left(13) ^ coded.len() as u32;
    (mixed.wrapping_mul(0x9e37_79b1) >> (32 - SLOTS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_strings_decode_to_the_same_bytes() {
        let mut random = fastrand::Rng::with_seed(11);
        // Few enough strings to repeat, but too many to fit into the cache. Some are invalid.
        let codes: Vec<Vec<u8>> =
            (0..40).map(|_| (0..random.usize(..60)).map(|_| random.u8(..0xf8)).collect()).collect();
        let mut memo = Memo::default();
        let mut valid = 0;
        for _ in 0..5_000 {
            let coded = random.choice(&codes).unwrap();
            let (mut plain, mut again) = (b"before".to_vec(), b"before".to_vec());
            let outcome = huffman::decode(coded, &mut plain);
            assert_eq!(memo.decode(coded, &mut again), outcome);
            assert_eq!(again, plain);
            valid += usize::from(outcome.is_ok());
        }
        assert!(valid > 500, "{valid}");
    }

    #[test]
    fn the_longest_string_of_a_code_is_remembered_whole() {
        // `0` has five bits.
        let coded = [0; CODED - 3];
        let mut memo = Memo::default();
        for _ in 0..2 {
            let mut out = Vec::new();
            memo.decode(&coded, &mut out).unwrap();
            assert_eq!(out, [b'0'; (CODED - 3) * 8 / 5]);
        }
    }
}
