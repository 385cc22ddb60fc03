//! AES in Galois/Counter mode (NIST SP 800-38D) with nonces of any length, as OpenSSL accepts them. Used by the `aes_gcm_…`
//! converters and for encrypted tokens.

use aes::cipher::{BlockCipher, BlockEncryptMut, BlockSizeUser, Key, KeyInit, StreamCipher, consts::U16};
use aes::{Aes128, Aes192, Aes256};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use cbc::cipher::KeyIvInit;
use ctr::Ctr32BE;
use ghash::GHash;
use ghash::universal_hash::UniversalHash;

/// The maximum length of a nonce in bytes, as in OpenSSL.
const LONGEST_NONCE: usize = 128;

/// Encrypts `text` in place and returns the tag. `None` if the length of the key or the nonce is invalid.
pub(super) fn seal(key: &[u8], nonce: &[u8], extra: &[u8], text: &mut [u8]) -> Option<[u8; 16]> {
    by_length(key, nonce, extra, text, true)
}

/// Decrypts `text` in place if the tag matches.
pub(super) fn open(key: &[u8], nonce: &[u8], extra: &[u8], tag: &[u8], text: &mut [u8]) -> Option<()> {
    let right = by_length(key, nonce, extra, text, false)?;
    // Compared in constant time. If the result is `None`, callers must not use the text.
    verify_slices_are_equal(&right, tag).ok()
}

fn by_length(key: &[u8], nonce: &[u8], extra: &[u8], text: &mut [u8], sealing: bool) -> Option<[u8; 16]> {
    if !(1..=LONGEST_NONCE).contains(&nonce.len()) {
        return None;
    }
    match key.len() {
        16 => Some(run::<Aes128>(Key::<Aes128>::from_slice(key), nonce, extra, text, sealing)),
        24 => Some(run::<Aes192>(Key::<Aes192>::from_slice(key), nonce, extra, text, sealing)),
        32 => Some(run::<Aes256>(Key::<Aes256>::from_slice(key), nonce, extra, text, sealing)),
        _ => None,
    }
}

/// Encrypts or decrypts `text` in place and returns the tag of the ciphertext.
fn run<C>(key: &Key<C>, nonce: &[u8], extra: &[u8], text: &mut [u8], sealing: bool) -> [u8; 16]
where
    C: KeyInit + BlockCipher + BlockEncryptMut + BlockSizeUser<BlockSize = U16>,
{
    let mut hash_key = [0; 16];
    C::new(key).encrypt_block_mut((&mut hash_key).into());
    let hash = GHash::new(&hash_key.into());
    let mut stream = Ctr32BE::<C>::new(key, &first_counter(&hash, nonce).into());
    // The first block of the key stream masks the tag.
    let mut tag = [0; 16];
    stream.apply_keystream(&mut tag);
    if sealing {
        stream.apply_keystream(text);
    }
    let covered = hashed(hash, extra, text);
    if !sealing {
        stream.apply_keystream(text);
    }
    tag.iter_mut().zip(covered).for_each(|(byte, covered)| *byte ^= covered);
    tag
}

/// The initial counter block: a 12-byte nonce followed by the number 1, or the hash of a nonce of another length.
fn first_counter(hash: &GHash, nonce: &[u8]) -> [u8; 16] {
    if nonce.len() == 12 {
        let mut counter = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        counter[..12].copy_from_slice(nonce);
        return counter;
    }
    hashed(hash.clone(), &[], nonce)
}

/// GHASH of both texts, each padded with zeros to whole blocks, and of their lengths in bits.
fn hashed(mut hash: GHash, extra: &[u8], text: &[u8]) -> [u8; 16] {
    hash.update_padded(extra);
    hash.update_padded(text);
    let bits = |bytes: &[u8]| u128::from(bytes.len() as u64 * 8);
    hash.update(&[(bits(extra) << 64 | bits(text)).to_be_bytes().into()]);
    hash.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Computed with OpenSSL through Python's `cryptography`: key 00 01 …, nonce 64 65 …, data `extra`.
    const CASES: &[(usize, usize, &str)] = &[
        (
            16,
            12,
            "720722c9b42e988df44c3b74bcea468342ed588bfac8b37a954fd3fbd3919cfa85283575c7c79db77af4e51cc34e83",
        ),
        (
            16,
            8,
            "67a76cbac7a2c490daf6c85a5a7c6fcc3dc16f27f1bb47a9722c55e214030392fe16857f5fa646aa9d06024b0f3671",
        ),
        (
            24,
            16,
            "fe52d4f17e996f3aa8dc69eea82e8db5731c61898d918695a48fd2bf6e0057ab98288acaedadac97f774374152e155",
        ),
        (
            32,
            12,
            "207eb20a16c576e95110338ce045079230a7267ee30d9d52c6f1ce2494c0ce97e1129f2f14d4c0065d9ec1676764b2",
        ),
        (
            32,
            13,
            "ed04c897e0fe430c3c6f39fc2593461ca6e979c4148037304acf230ee259a8ca53070bf4612a168ff135c92fce7291",
        ),
        (
            16,
            64,
            "1be2d330dafe585adf83f23e8508d9e038527af5155734d01f8256f4ff48b3b9f80e62e33ac88bc4082340adc79060",
        ),
        (
            24,
            128,
            "a6680099b4b1d2613369efb93e95a165e3a85f1e80d2ca53ae9ab7a2a595c7b46610bc22ba148b5def494afff42827",
        ),
    ];

    #[test]
    fn nonces_of_any_length_match_openssl() {
        for (key, nonce, expected) in CASES {
            let key: Vec<u8> = (0..*key as u8).collect();
            let nonce: Vec<u8> = (100..100 + *nonce as u8).collect();
            let mut text = *b"hello, world: more than a block";
            let tag = seal(&key, &nonce, b"extra", &mut text).unwrap();
            let hex: String = text.iter().chain(&tag).map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex, *expected, "{}, {}", key.len(), nonce.len());
            assert!(open(&key, &nonce, b"extra", &tag[..15], &mut text.clone()).is_none());
            assert!(open(&key, &nonce, b"other", &tag, &mut text.clone()).is_none());
            open(&key, &nonce, b"extra", &tag, &mut text).unwrap();
            assert_eq!(&text, b"hello, world: more than a block");
        }
        assert!(seal(&[0; 16], &[], b"", &mut []).is_none());
        assert!(seal(&[0; 16], &[0; 129], b"", &mut []).is_none());
        assert!(seal(&[0; 17], &[0; 12], b"", &mut []).is_none());
    }
}
