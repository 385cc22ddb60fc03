//! What strings in the Huffman code stood for lately.
//!
//! Many servers (nginx among them) index nothing that they said before: they spell the same date,
//! type and name of the server anew in each response. Comparing the code with the one seen last costs
//! a tenth of decoding it. Only for what servers send: a client that shares a connection with another
//! might learn from the time taken what the other sent.

use super::{Error, huffman};

/// Strings remembered; a power of two.
const SLOTS: usize = 16;
/// Bytes of a code that is remembered, and what they stand for at most: no code has less than five
/// bits.
const CODED: usize = 48;
const PLAIN: usize = CODED * 8 / 5;
/// A code shorter than this is decoded as fast.
const SHORT: usize = 4;

#[derive(Debug, Clone, Copy)]
struct Slot {
    coded: [u8; CODED],
    plain: [u8; PLAIN],
    coded_len: u8,
    plain_len: u8,
}

/// The strings of one connection; nothing is allocated before the first.
#[derive(Debug, Default)]
pub(super) struct Recall(Vec<Slot>);

impl Recall {
    /// Appends what `coded` stands for to `out`; as [`huffman::decode`].
    pub(super) fn decode(&mut self, coded: &[u8], out: &mut Vec<u8>) -> Result<(), Error> {
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

    /// Forgets all and gives the memory back.
    pub(super) fn clear(&mut self) {
        self.0 = Vec::new();
    }
}

/// Where a code of at least [`SHORT`] bytes belongs: by its ends and its length, since values of the
/// same field differ little.
fn place(coded: &[u8]) -> usize {
    let ends = |bytes: Option<&[u8; SHORT]>| u32::from_le_bytes(bytes.copied().unwrap_or_default());
    let mixed = ends(coded.first_chunk()) ^ ends(coded.last_chunk()).rotate_left(13) ^ coded.len() as u32;
    (mixed.wrapping_mul(0x9e37_79b1) >> (32 - SLOTS.trailing_zeros())) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_again_stands_for_the_same() {
        let mut random = fastrand::Rng::with_seed(11);
        // Few enough to come again, too many to be all remembered; some are no code at all.
        let codes: Vec<Vec<u8>> =
            (0..40).map(|_| (0..random.usize(..60)).map(|_| random.u8(..0xf8)).collect()).collect();
        let mut recall = Recall::default();
        let mut valid = 0;
        for _ in 0..5_000 {
            let coded = random.choice(&codes).unwrap();
            let (mut plain, mut again) = (b"before".to_vec(), b"before".to_vec());
            let outcome = huffman::decode(coded, &mut plain);
            assert_eq!(recall.decode(coded, &mut again), outcome);
            assert_eq!(again, plain);
            valid += usize::from(outcome.is_ok());
        }
        assert!(valid > 500, "{valid}");
    }

    #[test]
    fn the_longest_string_of_a_code_is_remembered_whole() {
        // `0` has five bits.
        let coded = [0; CODED - 3];
        let mut recall = Recall::default();
        for _ in 0..2 {
            let mut out = Vec::new();
            recall.decode(&coded, &mut out).unwrap();
            assert_eq!(out, [b'0'; (CODED - 3) * 8 / 5]);
        }
    }
}
