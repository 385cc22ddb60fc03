//! Fingerprints of fields, by which encoders notice repeated ones.

use crate::FieldName;

/// A hash of the lengths and the first and last bytes of name and value. Never 0. Fields with equal hashes must be compared.
#[inline(always)]
#[must_use]
pub fn fingerprint(name: FieldName<'_>, value: &[u8]) -> u32 {
    const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
    let named = match name {
        FieldName::Pseudo(pseudo) => 0x100 + pseudo as u64,
        FieldName::Known(known) => known as u64,
        FieldName::Other(name) => ends(name) | 0x2020_2020_2020_2020,
    };
    let mixed = (named.wrapping_mul(MIX) ^ ends(value)).wrapping_add(value.len() as u64).wrapping_mul(MIX);
    // Zero is left for empty slots.
    ((mixed >> 32) as u32).max(1)
}

/// The first and last eight bytes, mixed.
#[inline(always)]
fn ends(bytes: &[u8]) -> u64 {
    match (bytes.first_chunk(), bytes.last_chunk()) {
        (Some(first), Some(last)) => u64::from_le_bytes(*first) ^ u64::from_le_bytes(*last).rotate_left(29),
        _ => bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte)),
    }
}
