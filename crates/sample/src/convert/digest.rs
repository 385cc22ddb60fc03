//! Message digests by name, and the HMAC (RFC 2104) with any of them. The names are the same as in OpenSSL, in upper or lower
//! case, and include signature schemes and dotted ASN.1 identifiers. Used by the converters in [`super::hash`].

use blake2::{Blake2b512, Blake2s256};
use md5::Md5;
use ripemd::Ripemd160;
use sha1::Sha1;
use sha2::{Digest, Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};
use sha3::digest::{ExtendableOutput, Update, XofReader};
use sha3::{Sha3_224, Sha3_256, Sha3_384, Sha3_512, Shake128, Shake256};
use sm3::Sm3;

/// A digest.
pub(super) struct DigestAlgorithm {
    /// The names of the digest in lower case, the usual one first.
    names: &'static [&'static str],
    /// The block size in bytes; 0 for extendable-output functions, which cannot be used for an HMAC.
    block: usize,
    /// Appends the digest of the concatenated parts.
    hash: fn(&[&[u8]], &mut Vec<u8>),
}

#[rustfmt::skip]
static ALGORITHMS: &[DigestAlgorithm] = &[
    row(64,  of::<Md5>,        &["md5", "ssl3-md5", "rsa-md5", "md5withrsaencryption", "1.2.840.113549.2.5"]),
    row(64,  md5_sha1,         &["md5-sha1"]),
    row(64,  of::<Sha1>,       &["sha1", "sha-1", "ssl3-sha1", "rsa-sha1", "rsa-sha1-2", "sha1withrsaencryption", "1.3.14.3.2.26"]),
    row(64,  of::<Sha224>,     &["sha224", "sha-224", "sha2-224", "rsa-sha224", "sha224withrsaencryption", "2.16.840.1.101.3.4.2.4"]),
    row(64,  of::<Sha256>,     &["sha256", "sha-256", "sha2-256", "rsa-sha256", "sha256withrsaencryption", "2.16.840.1.101.3.4.2.1"]),
    row(128, of::<Sha384>,     &["sha384", "sha-384", "sha2-384", "rsa-sha384", "sha384withrsaencryption", "2.16.840.1.101.3.4.2.2"]),
    row(128, of::<Sha512>,     &["sha512", "sha-512", "sha2-512", "rsa-sha512", "sha512withrsaencryption", "2.16.840.1.101.3.4.2.3"]),
    row(128, of::<Sha512_224>, &["sha512-224", "sha-512/224", "sha2-512/224", "rsa-sha512/224", "sha512-224withrsaencryption", "2.16.840.1.101.3.4.2.5"]),
    row(128, of::<Sha512_256>, &["sha512-256", "sha-512/256", "sha2-512/256", "rsa-sha512/256", "sha512-256withrsaencryption", "2.16.840.1.101.3.4.2.6"]),
    row(144, of::<Sha3_224>,   &["sha3-224", "rsa-sha3-224", "id-rsassa-pkcs1-v1_5-with-sha3-224", "2.16.840.1.101.3.4.2.7"]),
    row(136, of::<Sha3_256>,   &["sha3-256", "rsa-sha3-256", "id-rsassa-pkcs1-v1_5-with-sha3-256", "2.16.840.1.101.3.4.2.8"]),
    row(104, of::<Sha3_384>,   &["sha3-384", "rsa-sha3-384", "id-rsassa-pkcs1-v1_5-with-sha3-384", "2.16.840.1.101.3.4.2.9"]),
    row(72,  of::<Sha3_512>,   &["sha3-512", "rsa-sha3-512", "id-rsassa-pkcs1-v1_5-with-sha3-512", "2.16.840.1.101.3.4.2.10"]),
    row(0,   shake::<Shake128, 16>, &["shake128", "shake-128", "2.16.840.1.101.3.4.2.11"]),
    row(0,   shake::<Shake256, 32>, &["shake256", "shake-256", "2.16.840.1.101.3.4.2.12"]),
    row(128, of::<Blake2b512>, &["blake2b512", "blake2b-512", "1.3.6.1.4.1.1722.12.2.1.16"]),
    row(64,  of::<Blake2s256>, &["blake2s256", "blake2s-256", "1.3.6.1.4.1.1722.12.2.2.8"]),
    row(64,  of::<Ripemd160>,  &["ripemd160", "ripemd-160", "ripemd", "rmd160", "rsa-ripemd160", "ripemd160withrsa", "1.3.36.3.2.1"]),
    row(64,  of::<Sm3>,        &["sm3", "rsa-sm3", "sm3withrsaencryption", "1.2.156.10197.1.401"]),
];

const fn row(
    block: usize,
    hash: fn(&[&[u8]], &mut Vec<u8>),
    names: &'static [&'static str],
) -> DigestAlgorithm {
    DigestAlgorithm { names, block, hash }
}

/// Names that OpenSSL 3 accepts although it no longer computes these digests, so that HAProxy never returns a value for them.
const GONE: &[&str] = &["md4", "rsa-md4", "md4withrsaencryption", "whirlpool"];

fn of<D: Digest>(parts: &[&[u8]], out: &mut Vec<u8>) {
    let mut digest = D::new();
    parts.iter().for_each(|part| Digest::update(&mut digest, part));
    out.extend_from_slice(&digest.finalize());
}

fn shake<D: Default + Update + ExtendableOutput, const LENGTH: usize>(parts: &[&[u8]], out: &mut Vec<u8>) {
    let mut digest = D::default();
    parts.iter().for_each(|part| digest.update(part));
    let mut bytes = [0; LENGTH];
    digest.finalize_xof().read(&mut bytes);
    out.extend_from_slice(&bytes);
}

fn md5_sha1(parts: &[&[u8]], out: &mut Vec<u8>) {
    of::<Md5>(parts, out);
    of::<Sha1>(parts, out);
}

/// Returns the index of the digest in the table, for [`at`].
///
/// # Errors
/// The message for an unknown name.
pub(super) fn find(name: &str) -> Result<usize, String> {
    let low = name.to_ascii_lowercase();
    if let Some(place) = ALGORITHMS.iter().position(|algorithm| algorithm.names.contains(&low.as_str())) {
        return Ok(place);
    }
    if GONE.contains(&low.as_str()) {
        return Err(format!("digest `{name}` is obsolete, and OpenSSL 3 does not support it either"));
    }
    let known: Vec<&str> = ALGORITHMS.iter().map(|algorithm| algorithm.names[0]).collect();
    Err(format!("unknown digest `{name}`; use one of: {}", known.join(", ")))
}

/// Returns the digest at this index.
pub(super) fn at(place: i64) -> Option<&'static DigestAlgorithm> {
    ALGORITHMS.get(usize::try_from(place).ok()?)
}

impl DigestAlgorithm {
    /// Appends the digest of `bytes`.
    pub(super) fn digest(&self, bytes: &[u8], out: &mut Vec<u8>) {
        (self.hash)(&[bytes], out);
    }

    /// Whether an HMAC can be computed with the digest.
    pub(super) fn has_hmac(&self) -> bool {
        self.block > 0
    }

    /// Appends the HMAC of `bytes`.
    pub(super) fn hmac(&self, key: &[u8], bytes: &[u8], out: &mut Vec<u8>) {
        let mut padded = Vec::with_capacity(self.block);
        if key.len() > self.block {
            (self.hash)(&[key], &mut padded)
        } else {
            padded.extend_from_slice(key)
        }
        padded.resize(self.block, 0);
        padded.iter_mut().for_each(|byte| *byte ^= 0x36);
        let mut inner = Vec::with_capacity(64);
        (self.hash)(&[&padded, bytes], &mut inner);
        padded.iter_mut().for_each(|byte| *byte ^= 0x36 ^ 0x5c);
        (self.hash)(&[&padded, &inner], out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digest_names_are_unique() {
        let mut names: Vec<&str> = ALGORITHMS.iter().flat_map(|algorithm| algorithm.names).copied().collect();
        names.extend(GONE);
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(names.iter().all(|name| *name == name.to_ascii_lowercase()));
    }

    #[test]
    fn hmac_matches_a_reference_for_short_and_long_keys() {
        use hmac::{Hmac, Mac};
        for length in [0, 1, 63, 64, 65, 127, 128, 129, 300] {
            let key = vec![b'k'; length];
            let mut expected = Hmac::<Sha256>::new_from_slice(&key).unwrap();
            Mac::update(&mut expected, b"text");
            let mut out = Vec::new();
            at(find("sha256").unwrap() as i64).unwrap().hmac(&key, b"text", &mut out);
            assert_eq!(out, expected.finalize().into_bytes().as_slice(), "{length}");
        }
    }
}
