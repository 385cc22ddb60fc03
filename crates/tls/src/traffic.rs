//! Keys from the traffic secrets of TLS 1.3, and their updates (RFC 8446, 7.2 and 7.3).
//!
//! rustls can update keys too, but the state that it keeps for this takes 784 bytes of each idle connection. Servers need nothing
//! else of that state: they send their session tickets at the end of the handshake.

use aws_lc_rs::hkdf::{HKDF_SHA256, HKDF_SHA384, KeyType, Prk};
use zeroize::Zeroizing;

use crate::record::{Aead, Direction, KEY_MAX};

/// The length of SHA-384, the longest hash of a cipher suite.
const HASH_MAX: usize = 48;

/// The secret from which the keys of one direction are derived.
pub(crate) struct TrafficSecret {
    /// The secret, and zeros.
    bytes: Zeroizing<[u8; HASH_MAX]>,
    length: u8,
}

/// The length of an output, in bytes.
struct OutputLength(usize);

impl KeyType for OutputLength {
    fn len(&self) -> usize {
        self.0
    }
}

impl TrafficSecret {
    /// Returns the secret with these bytes, or `None` if no cipher suite has secrets of this length.
    pub(crate) fn new(secret: &[u8]) -> Option<Self> {
        let mut bytes = Zeroizing::new([0; HASH_MAX]);
        bytes.get_mut(..secret.len())?.copy_from_slice(secret);
        Some(Self { bytes, length: u8::try_from(secret.len()).ok()? })
    }

    /// HKDF-Expand-Label with an empty context (RFC 8446, 7.1).
    fn expand(&self, label: &str, out: &mut [u8]) -> Option<()> {
        let secret = self.bytes.get(..usize::from(self.length))?;
        let algorithm = match secret.len() {
            32 => HKDF_SHA256,
            HASH_MAX => HKDF_SHA384,
            _ => return None,
        };
        const PREFIX: &[u8] = b"tls13 ";
        let length = u16::try_from(out.len()).ok()?.to_be_bytes();
        let label_length = [u8::try_from(PREFIX.len() + label.len()).ok()?];
        let info = [&length[..], &label_length, PREFIX, label.as_bytes(), &[0]];
        Prk::new_less_safe(algorithm, secret).expand(&info, OutputLength(out.len())).ok()?.fill(out).ok()
    }

    /// Returns the keys of the secret, for records from number 0 on.
    pub(crate) fn direction(&self, aead: Aead) -> Option<Direction> {
        let (mut key, mut vector) = (Zeroizing::new([0; KEY_MAX]), [0; 12]);
        let key = key.get_mut(..aead.key_length())?;
        self.expand("key", key)?;
        self.expand("iv", &mut vector)?;
        Direction::new(aead, key, vector, 0, true)
    }

    /// Replaces the secret by the next one. Returns its keys.
    pub(crate) fn update(&mut self, aead: Aead) -> Option<Direction> {
        let mut next = Self { bytes: Zeroizing::new([0; HASH_MAX]), length: self.length };
        self.expand("traffic upd", next.bytes.get_mut(..usize::from(self.length))?)?;
        *self = next;
        self.direction(aead)
    }
}

/// The secrets of both directions.
#[derive(Default)]
pub(crate) struct TrafficSecrets {
    pub(crate) client: Option<TrafficSecret>,
    pub(crate) server: Option<TrafficSecret>,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the bytes written as hexadecimal digits.
    fn bytes(digits: &str) -> Vec<u8> {
        let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| {
            u8::from_str_radix(std::str::from_utf8(pair).expect("ASCII"), 16).expect("two digits")
        };
        digits.chunks(2).map(byte).collect()
    }

    #[test]
    fn keys_are_those_of_the_published_example() {
        // RFC 8448, 3: the server's application traffic secret, with its key and IV.
        let secret = bytes(
            "a1 1a f9 f0 55 31 f8 56 ad 47 11 6b 45 a9 50 32 82 04 b4 f4 4b fb 6b 3a 4b 4f 1f 3f cb 63 16 43",
        );
        let secret = TrafficSecret::new(&secret).expect("32 bytes");
        let mut key = [0; 16];
        secret.expand("key", &mut key).expect("a key");
        assert_eq!(key[..], bytes("9f 02 28 3b 6c 9c 07 ef c2 6b b9 f2 ac 92 e3 56"));
        let mut vector = [0; 12];
        secret.expand("iv", &mut vector).expect("an IV");
        assert_eq!(vector[..], bytes("cf 78 2b 88 dd 83 54 9a ad f1 e9 84"));
    }

    #[test]
    fn secrets_of_other_lengths_have_no_keys() {
        assert!(TrafficSecret::new(&[1; 49]).is_none());
        let mut short = TrafficSecret::new(&[1; 20]).expect("it fits");
        assert!(short.update(Aead::Aes128Gcm).is_none());
    }
}
