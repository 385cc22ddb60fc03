//! The record layer of an established connection (RFC 8446, 5; RFC 5246, 6.2 with RFC 5288 and RFC 7905), for each direction.
//!
//! The engine performs the handshake and then hands over its keys. From then on, this module encrypts and decrypts records, from
//! one of the caller's buffers into another one, without allocations or copies by the engine.

use aws_lc_rs::aead::{AES_128_GCM, AES_256_GCM, Aad, CHACHA20_POLY1305, LessSafeKey, Nonce, UnboundKey};
use zeroize::Zeroizing;

use crate::error::Reason;

/// The header of a record: type, version, length.
pub const HEADER: usize = 5;

/// Maximum plaintext size of a record.
pub const PLAINTEXT_MAX: usize = 16384;

/// Maximum overhead of a record of any kind: header, explicit nonce or type, tag.
pub const OVERHEAD_MAX: usize = HEADER + 8 + TAG;

/// The maximum size of a received record. TLS 1.3 allows 256 bytes in addition to the plaintext, TLS 1.2 2048.
pub const RECORD_MAX: usize = HEADER + PLAINTEXT_MAX + 2048;

/// The length of the longest key.
pub(crate) const KEY_MAX: usize = 32;

pub(crate) const TAG: usize = 16;
const EXPLICIT_NONCE: usize = 8;

/// Content types.
pub(crate) const CHANGE_CIPHER_SPEC: u8 = 20;
pub(crate) const ALERT: u8 = 21;
pub(crate) const HANDSHAKE: u8 = 22;
pub(crate) const APPLICATION_DATA: u8 = 23;

/// How nonce and content type are transmitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NonceForm {
    /// TLS 1.3: the nonce is implicit, and the type is encrypted after the plaintext.
    Tls13,
    /// TLS 1.2 with AES-GCM: half of the nonce precedes the ciphertext.
    Explicit,
    /// TLS 1.2 with ChaCha20-Poly1305: the nonce is implicit.
    Implicit,
}

/// The algorithm of a direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aead {
    Aes128Gcm,
    Aes256Gcm,
    Chacha20Poly1305,
}

impl Aead {
    /// Returns the length of a key in bytes.
    pub(crate) fn key_length(self) -> usize {
        match self {
            Self::Aes128Gcm => 16,
            Self::Aes256Gcm | Self::Chacha20Poly1305 => KEY_MAX,
        }
    }

    /// Prepares a key for use; `None` if its length is wrong.
    fn key(self, bytes: &[u8]) -> Option<LessSafeKey> {
        let algorithm = match self {
            Self::Aes128Gcm => &AES_128_GCM,
            Self::Aes256Gcm => &AES_256_GCM,
            Self::Chacha20Poly1305 => &CHACHA20_POLY1305,
        };
        Some(LessSafeKey::new(UnboundKey::new(algorithm, bytes).ok()?))
    }

    /// Returns how many records one key may encrypt. The limit for AES-GCM is 2^24.5 (RFC 8446, 5.5); a lower one is used.
    fn limit(self) -> u64 {
        match self {
            Self::Aes128Gcm | Self::Aes256Gcm => 1 << 24,
            Self::Chacha20Poly1305 => u64::MAX,
        }
    }
}

/// The key and IV of one direction, and the sequence number of its next record.
pub(crate) struct Direction {
    /// The key, prepared for use; `None` while the connection rests.
    key: Option<LessSafeKey>,
    /// The bytes of the key, and zeros.
    bytes: Zeroizing<[u8; KEY_MAX]>,
    vector: [u8; 12],
    sequence: u64,
    aead: Aead,
    form: NonceForm,
}

/// A record's header fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Framed {
    pub(crate) content: u8,
    /// The length of the record, including its header.
    pub(crate) length: usize,
}

/// Parses the record header at the start of `bytes`. Returns `None` while the header is incomplete. The record itself may be
/// incomplete.
///
/// # Errors
/// The bytes cannot begin a record.
pub(crate) fn frame(bytes: &[u8]) -> Result<Option<Framed>, Reason> {
    let Some(&[content, major, _, high, low]) = bytes.first_chunk() else {
        // An incomplete header is checked too, because unencrypted text may end before a header is complete.
        let wrong = bytes.first().is_some_and(|content| !is_content(*content));
        return if wrong { Err(Reason::WrongVersionNumber) } else { Ok(None) };
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if !is_content(content) || major != 3 {
        Err(Reason::WrongVersionNumber)
    } else if HEADER + length > RECORD_MAX {
        Err(Reason::PacketLengthTooLong)
    } else {
        Ok(Some(Framed { content, length: HEADER + length }))
    }
}

fn is_content(content: u8) -> bool {
    (CHANGE_CIPHER_SPEC..=APPLICATION_DATA).contains(&content)
}

/// A decrypted record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenedRecord {
    pub(crate) content: u8,
    /// The number of plaintext bytes.
    pub(crate) length: usize,
}

impl Direction {
    /// Creates a direction, or `None` if the key's length does not match the algorithm.
    pub(crate) fn new(
        aead: Aead,
        key: &[u8],
        vector: [u8; 12],
        sequence: u64,
        is_tls13: bool,
    ) -> Option<Self> {
        let form = match aead {
            _ if is_tls13 => NonceForm::Tls13,
            Aead::Chacha20Poly1305 => NonceForm::Implicit,
            _ => NonceForm::Explicit,
        };
        let mut bytes = Zeroizing::new([0; KEY_MAX]);
        bytes.get_mut(..key.len())?.copy_from_slice(key);
        Some(Self { key: Some(aead.key(key)?), bytes, vector, sequence, aead, form })
    }

    /// Frees the memory of the prepared key, half a kilobyte. The next record prepares it again.
    pub(crate) fn rest(&mut self) {
        self.key = None;
    }

    #[cold]
    fn prepare(&mut self) {
        self.key = self.aead.key(&self.bytes[..self.aead.key_length()]);
    }

    /// Returns the algorithm.
    pub(crate) fn aead(&self) -> Aead {
        self.aead
    }

    /// Whether the direction uses TLS 1.3.
    pub(crate) fn is_tls13(&self) -> bool {
        self.form == NonceForm::Tls13
    }

    /// Whether the key has reached its limit of records and can be replaced.
    pub(crate) fn is_worn(&self) -> bool {
        self.is_tls13() && self.sequence >= self.aead.limit()
    }

    /// Returns the overhead of a record.
    #[inline]
    pub(crate) fn overhead(&self) -> usize {
        HEADER
            + TAG
            + match self.form {
                NonceForm::Tls13 => 1,
                NonceForm::Explicit => EXPLICIT_NONCE,
                NonceForm::Implicit => 0,
            }
    }

    /// Returns the nonce of the next record, and its number.
    #[inline]
    fn next(&mut self) -> Option<(u64, [u8; 12])> {
        let sequence = self.sequence;
        // No number may repeat. 2^64 records cannot be reached in practice.
        self.sequence = sequence.checked_add(1)?;
        let mut nonce = self.vector;
        for (byte, number) in nonce[4..].iter_mut().zip(sequence.to_be_bytes()) {
            *byte ^= number;
        }
        Some((sequence, nonce))
    }

    /// Encrypts `first` and `second`, together at most [`PLAINTEXT_MAX`] bytes, into one record at the start of `out`, which must
    /// have room for them and [`overhead`](Self::overhead). Returns `None` only if the key is used up.
    pub(crate) fn seal(&mut self, content: u8, first: &[u8], second: &[u8], out: &mut [u8]) -> Option<usize> {
        let plain = first.len() + second.len();
        let total = plain + self.overhead();
        let form = self.form;
        let (sequence, nonce) = self.next()?;
        if self.key.is_none() {
            self.prepare();
        }
        let key = self.key.as_ref()?;
        let (header, body) = out.get_mut(..total)?.split_at_mut(HEADER);
        let outer = if form == NonceForm::Tls13 { APPLICATION_DATA } else { content };
        let [high, low] = u16::try_from(total - HEADER).ok()?.to_be_bytes();
        header.copy_from_slice(&[outer, 3, 3, high, low]);
        let aad = Associated::new(form, sequence, content, plain, total - HEADER);
        let body = if form == NonceForm::Explicit {
            let (explicit, body) = body.split_at_mut(EXPLICIT_NONCE);
            explicit.copy_from_slice(&nonce[4..]);
            body
        } else {
            body
        };
        let (text, trailer) = body.split_at_mut(plain);
        let extra: &[u8] = if form == NonceForm::Tls13 { &[content] } else { &[] };
        let nonce = Nonce::assume_unique_for_key(nonce);
        let sealed = if second.is_empty() {
            key.seal_out_of_place_scatter(nonce, Aad::from(aad), first, text, extra, trailer)
        } else {
            text[..first.len()].copy_from_slice(first);
            text[first.len()..].copy_from_slice(second);
            key.seal_in_place_scatter(nonce, Aad::from(aad), text, extra, trailer)
        };
        sealed.ok()?;
        Some(total)
    }

    /// Decrypts one whole record. The plaintext is written to the start of `room` if that has at least [`room_for`](Self::room_for)
    /// bytes; otherwise it is at the returned offset in `record`.
    ///
    /// # Errors
    /// The record does not belong to this connection.
    pub(crate) fn open(
        &mut self,
        record: &mut [u8],
        room: &mut [u8],
    ) -> Result<(OpenedRecord, Option<usize>), Reason> {
        let (header, body) = record.split_at_mut(HEADER);
        let outer = header[0];
        let offset = if self.form == NonceForm::Explicit { EXPLICIT_NONCE } else { 0 };
        if self.form == NonceForm::Tls13 && outer != APPLICATION_DATA {
            return Err(Reason::BadRecordType);
        }
        // The authenticated data below contains this version, which all records have at this point.
        if header[2] != 3 {
            return Err(Reason::WrongVersionNumber);
        }
        let Some(length) = body.len().checked_sub(offset + TAG) else {
            return Err(Reason::DecryptionFailed);
        };
        let most = PLAINTEXT_MAX + if self.form == NonceForm::Tls13 { 1 } else { 0 };
        if length > most {
            return Err(Reason::PacketLengthTooLong);
        }
        let (sequence, mut nonce) = self.next().ok_or(Reason::InternalError)?;
        if self.key.is_none() {
            self.prepare();
        }
        let key = self.key.as_ref().ok_or(Reason::InternalError)?;
        let aad = Aad::from(Associated::new(self.form, sequence, outer, length, body.len()));
        let (explicit, body) = body.split_at_mut(offset);
        if !explicit.is_empty() {
            nonce[4..].copy_from_slice(explicit);
        }
        let nonce = Nonce::assume_unique_for_key(nonce);
        let (text, tag) = body.split_at_mut(length);
        let direct = room.len() >= length;
        let plain: &[u8] = if direct {
            key.open_separate_gather(nonce, aad, text, tag, &mut room[..length])
                .map_err(|_| Reason::DecryptionFailed)?;
            &room[..length]
        } else {
            key.open_in_place_separate_tag(nonce, aad, tag, text).map_err(|_| Reason::DecryptionFailed)?;
            text
        };
        let opened = match self.form {
            NonceForm::Tls13 => {
                // The type is the last non-padding byte.
                let end = plain.iter().rposition(|byte| *byte != 0).ok_or(Reason::BadRecordType)?;
                OpenedRecord { content: plain[end], length: end }
            }
            _ => OpenedRecord { content: outer, length },
        };
        Ok((opened, (!direct).then_some(HEADER + offset)))
    }

    /// Returns how much room is needed to decrypt the record into it.
    #[inline]
    pub(crate) fn room_for(&self, record: usize) -> usize {
        let offset = if self.form == NonceForm::Explicit { EXPLICIT_NONCE } else { 0 };
        record.saturating_sub(HEADER + offset + TAG)
    }
}

/// The additional authenticated data.
#[derive(Clone, Copy)]
struct Associated {
    bytes: [u8; 13],
    length: usize,
}

impl Associated {
    #[inline]
    fn new(form: NonceForm, sequence: u64, content: u8, plain: usize, body: usize) -> Self {
        let mut bytes = [0; 13];
        if form == NonceForm::Tls13 {
            let [high, low] = (body as u16).to_be_bytes();
            bytes[..HEADER].copy_from_slice(&[APPLICATION_DATA, 3, 3, high, low]);
            return Self { bytes, length: HEADER };
        }
        let [high, low] = (plain as u16).to_be_bytes();
        bytes[..8].copy_from_slice(&sequence.to_be_bytes());
        bytes[8..].copy_from_slice(&[content, 3, 3, high, low]);
        Self { bytes, length: 13 }
    }
}

impl AsRef<[u8]> for Associated {
    #[inline]
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resting_direction_has_no_prepared_key_and_continues_its_records() {
        let direction = || Direction::new(Aead::Aes256Gcm, &[1; 32], [2; 12], 0, true).expect("32 bytes");
        let (mut seal, mut open) = (direction(), direction());
        for _ in 0..3 {
            seal.rest();
            open.rest();
            assert!(seal.key.is_none() && open.key.is_none());
            let (mut record, mut room) = ([0; 64], [0; 64]);
            let length = seal.seal(APPLICATION_DATA, b"text", &[], &mut record).expect("it has room");
            let (opened, _) = open.open(&mut record[..length], &mut room).expect("it is genuine");
            assert_eq!((opened.length, &room[..4]), (4, &b"text"[..]));
            assert!(seal.key.is_some() && open.key.is_some());
        }
    }
}
