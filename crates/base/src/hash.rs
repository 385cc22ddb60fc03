//! The hash functions that load balancing, stick tables and converters share (manual, `hash-type` and the converters of the same
//! names).
//!
//! All hashes are the same in every version and on every machine, because two proxies that balance by hash must choose the same
//! server.

pub use twox_hash::{XxHash3_64, XxHash32, XxHash64};

/// Dan Bernstein's `djb2` (multiply by 33, then add).
pub fn djb2(bytes: &[u8]) -> u32 {
    bytes.iter().fold(5381u32, |hash, byte| hash.wrapping_mul(33).wrapping_add(u32::from(*byte)))
}

/// The hash of the `sdbm` database library: the default of `hash-type`.
pub fn sdbm(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0u32, |hash, byte| {
        u32::from(*byte).wrapping_add(hash << 6).wrapping_add(hash << 16).wrapping_sub(hash)
    })
}

/// `wt6`, designed for consistent hashing of short, similar keys.
pub fn wt6(bytes: &[u8]) -> u32 {
    let (mut low, mut high) = (0xa53c_965a_u32, 0x5ca6_953a_u32);
    let (mut turn_low, mut turn_high) = (6u32, 18u32);
    for byte in bytes {
        low = !(low ^ u32::from(*byte));
        high = !high.wrapping_add(u32::from(*byte));
        (low, high) = (high.rotate_left(turn_low), low.rotate_left(turn_high));
        let mixed = ((low >> 16) ^ high) & 0xffff;
        turn_low = mixed & 0x1f;
        turn_high = mixed >> 11;
    }
    low ^ high
}

/// CRC-32 as in Ethernet and gzip (the `crc32` converter and hash).
pub fn crc32(bytes: &[u8]) -> u32 {
    crc32fast::hash(bytes)
}

/// CRC-32C (Castagnoli), as in the `crc32c` converter.
pub fn crc32c(bytes: &[u8]) -> u32 {
    // The polynomial is reflected and applied to one nibble at a time. Inputs are short, so a small table is faster than a large
    // one.
    const TABLE: [u32; 16] = {
        let mut table = [0u32; 16];
        let mut index = 0;
        while index < 16 {
            let mut value = index as u32;
            let mut bit = 0;
            while bit < 4 {
                value = if value & 1 == 1 { (value >> 1) ^ 0x82f6_3b78 } else { value >> 1 };
                bit += 1;
            }
            table[index] = value;
            index += 1;
        }
        table
    };
    !bytes.iter().fold(!0u32, |crc, byte| {
        let crc = crc ^ u32::from(*byte);
        let crc = (crc >> 4) ^ TABLE[(crc & 0xf) as usize];
        (crc >> 4) ^ TABLE[(crc & 0xf) as usize]
    })
}

/// XXH32 with a seed.
pub fn xxh32(bytes: &[u8], seed: u32) -> u32 {
    XxHash32::oneshot(seed, bytes)
}

/// XXH64 with a seed.
pub fn xxh64(bytes: &[u8], seed: u64) -> u64 {
    XxHash64::oneshot(seed, bytes)
}

/// XXH3, 64 bits, with a seed.
pub fn xxh3(bytes: &[u8], seed: u64) -> u64 {
    XxHash3_64::oneshot_with_seed(seed, bytes)
}

/// The avalanche applied by `hash-type ... avalanche` and consistent hashing: every input bit affects every output bit. Bob
/// Jenkins' integer hash is followed by a multiplication that spreads the keys over the whole ring.
pub fn avalanche(hash: u32) -> u32 {
    let a = hash.wrapping_add(0x7ed5_5d16).wrapping_add(hash << 12);
    let a = (a ^ 0xc761_c23c) ^ (a >> 19);
    let a = a.wrapping_add(0x1656_67b1).wrapping_add(a << 5);
    let a = a.wrapping_add(0xd3a2_646c) ^ (a << 9);
    let a = a.wrapping_add(0xfd70_46c5).wrapping_add(a << 3);
    let a = (a ^ 0xb55a_4f09) ^ (a >> 16);
    a.wrapping_mul(3_221_225_473)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected values were produced by the converters of HAProxy 2.6.
    #[test]
    fn hashes_match_haproxys_converters() {
        assert_eq!(djb2(b"weir"), 2_090_863_676);
        assert_eq!(sdbm(b"weir"), 3_536_863_479);
        assert_eq!(wt6(b"weir"), 48_133_733);
        assert_eq!(wt6(b"a.longer/key?with=many&bytes"), 466_292_488);
        assert_eq!(crc32(b"weir"), 2_474_937_868);
        assert_eq!(crc32c(b"weir"), 1_203_183_302);
        assert_eq!(xxh32(b"weir", 0), 3_956_772_140);
        assert_eq!(xxh64(b"weir", 0), 2_723_438_343_022_078_094);
        assert_eq!(xxh3(b"weir", 0), 685_424_309_925_146_904);
        assert_eq!(avalanche(djb2(b"weir")), 1_347_872_798);
        assert_eq!(avalanche(sdbm(b"weir")), 2_811_341_739);
    }

    #[test]
    fn crcs_match_their_check_values() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
