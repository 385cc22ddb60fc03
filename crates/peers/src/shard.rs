//! The shard of a key, if a section divides its tables among peers (`shards`, manual, section 11.2). It is the same as in HAProxy.

use twox_hash::XxHash64;

/// Returns the shard, from 1 to `shards`, of a key in a table. The table is given by its local name, which is `section/name` for a
/// table in a `peers` section.
pub fn of(table: &[u8], key: &[u8], shards: u32) -> u32 {
    let seed = XxHash64::oneshot(0, table);
    let part = XxHash64::oneshot(seed, key) % u64::from(shards.max(1));
    part as u32 + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_match_haproxy() {
        let strings = [1, 3, 1, 2, 1, 2, 1, 2];
        for (number, part) in (1..).zip(strings) {
            assert_eq!(of(b"P/t1", format!("abc{number}").as_bytes(), 3), part, "abc{number}");
        }
        let addresses = [2, 1, 3, 1, 3, 3, 1, 1];
        for (last, part) in (1..).zip(addresses) {
            assert_eq!(of(b"P/t7", &[1, 2, 3, last], 3), part, "1.2.3.{last}");
        }
    }
}
