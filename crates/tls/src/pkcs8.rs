//! Wraps older private key formats in PKCS #8 (RFC 5958), as OpenSSL does.

use crate::der::{self, Der, put};

const RSA: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 1, 1, 1];
const CURVE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];

fn frame(algorithm: &[u8], key: &[u8]) -> Vec<u8> {
    let mut contents = Vec::new();
    put(&mut contents, der::INTEGER, &[0]);
    put(&mut contents, der::SEQUENCE, algorithm);
    put(&mut contents, der::OCTET_STRING, key);
    let mut out = Vec::new();
    put(&mut out, der::SEQUENCE, &contents);
    out
}

/// Wraps a PKCS #1 key.
pub(crate) fn of_rsa(key: &[u8]) -> Vec<u8> {
    let mut algorithm = Vec::new();
    put(&mut algorithm, der::OID, RSA);
    put(&mut algorithm, der::NULL, &[]);
    frame(&algorithm, key)
}

/// Wraps a SEC 1 key. Outside of PKCS #8, the key itself contains the curve; inside, it does not.
pub(crate) fn of_curve(key: &[u8]) -> Option<Vec<u8>> {
    let mut all = Der(key).take(der::SEQUENCE)?;
    let (version, secret) = (all.take_whole(der::INTEGER)?, all.take_whole(der::OCTET_STRING)?);
    let curve = all.take(0xa0)?.take_whole(der::OID)?;
    let inner = [version, secret, all.0].concat();
    let mut algorithm = Vec::new();
    put(&mut algorithm, der::OID, CURVE);
    algorithm.extend_from_slice(curve);
    let mut bare = Vec::new();
    put(&mut bare, der::SEQUENCE, &inner);
    Some(frame(&algorithm, &bare))
}
