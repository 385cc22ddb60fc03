//! Hashes `$apr1$` of Apache's `htpasswd`: MD5 crypt with another prefix.

use md5::{Digest, Md5};

/// The prefix.
pub(super) const PREFIX: &str = "$apr1$";

/// The digits of crypt(3).
const DIGITS: &[u8; 64] = b"./0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The number of rounds, which the format fixes.
const ROUNDS: usize = 1000;

/// Whether `hash` is the hash of `password`.
pub(super) fn verify(password: &[u8], hash: &str) -> bool {
    let Some((salt, sum)) = hash.strip_prefix(PREFIX).and_then(|rest| rest.split_once('$')) else {
        return false;
    };
    let salt = &salt.as_bytes()[..salt.len().min(8)];
    super::same(sum.as_bytes(), &encode(&digest(password, salt)))
}

fn digest(password: &[u8], salt: &[u8]) -> [u8; 16] {
    let inner: [u8; 16] = md5(&[password, salt, password]);
    let mut first = [password, PREFIX.as_bytes(), salt].concat();
    first.extend(inner.iter().cycle().take(password.len()));
    let mut bits = password.len();
    while bits > 0 {
        first.push(if bits & 1 == 1 { 0 } else { password[0] });
        bits >>= 1;
    }
    let mut sum = md5(&[&first]);
    for round in 0..ROUNDS {
        let is_odd = round % 2 == 1;
        let mut parts: Vec<&[u8]> = vec![if is_odd { password } else { &sum }];
        if round % 3 != 0 {
            parts.push(salt);
        }
        if round % 7 != 0 {
            parts.push(password);
        }
        parts.push(if is_odd { &sum } else { password });
        sum = md5(&parts);
    }
    sum
}

fn md5(parts: &[&[u8]]) -> [u8; 16] {
    let mut state = Md5::new();
    parts.iter().for_each(|part| state.update(part));
    state.finalize().into()
}

fn encode(sum: &[u8; 16]) -> Vec<u8> {
    let mut text = Vec::with_capacity(22);
    let mut push = |value: u32, digits: u32| {
        text.extend((0..digits).map(|digit| DIGITS[(value >> (6 * digit)) as usize & 63]));
    };
    for [high, middle, low] in [[0, 6, 12], [1, 7, 13], [2, 8, 14], [3, 9, 15], [4, 10, 5]] {
        push(u32::from(sum[high]) << 16 | u32::from(sum[middle]) << 8 | u32::from(sum[low]), 4);
    }
    push(u32::from(sum[11]), 2);
    text
}
