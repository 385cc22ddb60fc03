//! All kinds of records of an established connection: data, alerts, and the handshake messages that may still occur.

use crate::buffer::PendingBytes;
use crate::engine::Kernel;
use crate::error::{Error, Reason};
use crate::record::{ALERT, APPLICATION_DATA, Direction, HANDSHAKE, HEADER, PLAINTEXT_MAX};

/// Limits on consecutive empty records, key updates or warnings without data in between, as in OpenSSL.
const IDLE_RECORDS_MAX: u8 = 32;
const WARNINGS_MAX: u8 = 5;

/// The length of the longest message that may arrive, a NewSessionTicket (RFC 8446, 4.6.1): its fields, and twice 64 KiB.
const MESSAGE_MAX: usize = 4 + 16 + 255 + 2 * 65536;

const CLOSE_NOTIFY: u8 = 0;
const USER_CANCELED: u8 = 90;
const NO_RENEGOTIATION: u8 = 100;
const WARNING: u8 = 1;

const HELLO_REQUEST: u8 = 0;
const CLIENT_HELLO: u8 = 1;
const NEW_SESSION_TICKET: u8 = 4;
const KEY_UPDATE: u8 = 24;

/// Both directions, and the state of the engine that is still needed.
pub(crate) struct Records {
    seal: Direction,
    open: Direction,
    kernel: Kernel,
    /// A handshake message that spans several records.
    joint: Vec<u8>,
    /// Consecutive records without data.
    idle: u8,
    warnings: u8,
    is_client: bool,
    is_closed: bool,
    /// Whether the unsent bytes may contain an answer to a key update or a HelloRequest.
    answered: bool,
    /// The current second and the number of key updates in it, and the limit.
    updates: (u64, u32),
    most_updates: u32,
}

/// The content of a record.
pub(crate) enum RecordKind<'a> {
    /// The number of data bytes at the start of the room.
    Filled(usize),
    /// Data, which was decrypted in the record.
    InPlace(&'a [u8]),
    /// Nothing for the caller.
    Nothing,
    /// The peer's close_notify.
    Close,
}

impl Records {
    /// Creates a client's connection if `is_client`, otherwise a server's.
    pub(crate) fn new(
        seal: Direction,
        open: Direction,
        kernel: Kernel,
        most_updates: u32,
        is_client: bool,
    ) -> Self {
        Self {
            seal,
            open,
            kernel,
            joint: Vec::new(),
            idle: 0,
            warnings: 0,
            is_client,
            is_closed: false,
            answered: false,
            updates: (0, 0),
            most_updates,
        }
    }

    /// Frees memory until the next record, for a connection that is about to be idle for long.
    pub(crate) fn rest(&mut self) {
        self.seal.rest();
        self.open.rest();
    }

    /// Decrypts one whole record. Appends replies to `unsent`.
    pub(crate) fn open<'a>(
        &mut self,
        record: &'a mut [u8],
        room: &mut [u8],
        unsent: &mut PendingBytes,
    ) -> Result<RecordKind<'a>, Reason> {
        let direct = room.len() >= self.open.room_for(record.len());
        let (opened, offset) = self.open.open(record, if direct { room } else { &mut [] })?;
        let length = opened.length;
        let is_data = opened.content == APPLICATION_DATA;
        if is_data && length > 0 && self.joint.is_empty() {
            self.idle = 0;
            return Ok(match offset {
                None => RecordKind::Filled(length),
                Some(offset) => RecordKind::InPlace(&record[offset..offset + length]),
            });
        }
        if !self.joint.is_empty() && opened.content != HANDSHAKE {
            return Err(Reason::UnexpectedMessage);
        }
        self.idle += 1;
        if self.idle > IDLE_RECORDS_MAX {
            return Err(if opened.content == HANDSHAKE {
                Reason::TooManyKeyUpdates
            } else {
                Reason::RecordTooSmall
            });
        }
        let text = match offset {
            None => &room[..length],
            Some(offset) => &record[offset..offset + length],
        };
        match opened.content {
            APPLICATION_DATA => Ok(RecordKind::Nothing),
            ALERT => self.take_alert(text),
            HANDSHAKE => self.take_messages(text, unsent).map(|()| RecordKind::Nothing),
            _ => Err(Reason::UnexpectedRecord),
        }
    }

    fn take_alert<'a>(&mut self, text: &[u8]) -> Result<RecordKind<'a>, Reason> {
        let [level, alert] = *text else { return Err(Reason::InvalidAlert) };
        if alert == CLOSE_NOTIFY {
            return Ok(RecordKind::Close);
        }
        let is_warning = if self.open.is_tls13() { alert == USER_CANCELED } else { level == WARNING };
        if !is_warning {
            return Err(Reason::Alert(alert));
        }
        self.warnings += 1;
        if self.warnings >= WARNINGS_MAX { Err(Reason::TooManyWarnAlerts) } else { Ok(RecordKind::Nothing) }
    }

    fn take_messages(&mut self, text: &[u8], unsent: &mut PendingBytes) -> Result<(), Reason> {
        if text.is_empty() {
            return Err(Reason::BadPacket);
        }
        let mut joint = std::mem::take(&mut self.joint);
        let mut rest = if joint.is_empty() {
            text
        } else {
            joint.extend_from_slice(text);
            &joint
        };
        while let [kind, a, b, c, ref behind @ ..] = *rest {
            let length = u32::from_be_bytes([0, a, b, c]) as usize;
            if 4 + length > MESSAGE_MAX {
                return Err(Reason::BadHandshakeLength);
            }
            let Some((body, behind)) = behind.split_at_checked(length) else { break };
            self.take_message(kind, body, behind.is_empty(), unsent)?;
            rest = behind;
        }
        self.joint = rest.to_vec();
        Ok(())
    }

    fn take_message(
        &mut self,
        kind: u8,
        body: &[u8],
        is_last: bool,
        unsent: &mut PendingBytes,
    ) -> Result<(), Reason> {
        let is_tls13 = self.open.is_tls13();
        match kind {
            NEW_SESSION_TICKET if is_tls13 => {
                self.kernel.take_ticket(body).unwrap_or(Err(Reason::UnexpectedMessage))
            }
            KEY_UPDATE if is_tls13 => {
                // Any following bytes would use the old key.
                if !is_last {
                    return Err(Reason::NotOnRecordBoundary);
                }
                let asked = match body {
                    [0] => false,
                    [1] => true,
                    _ => return Err(Reason::BadPacket),
                };
                self.count_update()?;
                self.open = self.kernel.next_open(self.open.aead()).ok_or(Reason::InternalError)?;
                if asked && self.may_answer(unsent) {
                    self.update(false, unsent)?;
                    self.answered = true;
                }
                Ok(())
            }
            // Only servers send a HelloRequest (RFC 5246, 7.4.1.1), only clients a ClientHello.
            HELLO_REQUEST if !is_tls13 && self.is_client && body.is_empty() => {
                if self.may_answer(unsent) {
                    self.alert(WARNING, NO_RENEGOTIATION, unsent);
                    self.answered = true;
                }
                Ok(())
            }
            CLIENT_HELLO if !is_tls13 && !self.is_client => Err(Reason::NoRenegotiation),
            _ => Err(Reason::UnexpectedMessage),
        }
    }

    /// Whether a reply to the peer may be appended. Only one reply to several messages may be unsent, so that a peer that does not
    /// read cannot make the unsent bytes grow.
    fn may_answer(&self, unsent: &PendingBytes) -> bool {
        !self.is_closed && (!self.answered || unsent.is_empty())
    }

    /// Counts a key update. Each one costs CPU time, so their rate is limited.
    fn count_update(&mut self) -> Result<(), Reason> {
        let second = base::clock::now_ms() / 1000;
        if self.updates.0 != second {
            self.updates = (second, 0);
        }
        self.updates.1 += 1;
        let is_flood = self.most_updates > 0 && self.updates.1 > self.most_updates;
        if is_flood { Err(Reason::TooManyKeyUpdates) } else { Ok(()) }
    }

    /// Sends a KeyUpdate and switches to the next key. `asks` requests the same from the peer.
    pub(crate) fn update(&mut self, asks: bool, unsent: &mut PendingBytes) -> Result<(), Reason> {
        let mut out = [0; 64];
        let message = [KEY_UPDATE, 0, 0, 1, asks.into()];
        let n = self.seal.seal(HANDSHAKE, &message, &[], &mut out).ok_or(Reason::InternalError)?;
        unsent.append(&out[..n]);
        self.seal = self.kernel.next_seal(self.seal.aead()).ok_or(Reason::InternalError)?;
        Ok(())
    }

    /// Appends an alert to the unsent bytes. Nothing is appended after close_notify or a fatal alert.
    pub(crate) fn alert(&mut self, level: u8, alert: u8, unsent: &mut PendingBytes) {
        let mut out = [0; 64];
        if self.is_closed {
            return;
        }
        if let Some(n) = self.seal.seal(ALERT, &[level, alert], &[], &mut out) {
            unsent.append(&out[..n]);
        }
        self.is_closed = level != WARNING || alert == CLOSE_NOTIFY;
    }

    /// Appends close_notify, once.
    pub(crate) fn close(&mut self, unsent: &mut PendingBytes) {
        self.alert(WARNING, CLOSE_NOTIFY, unsent);
    }

    /// Encrypts as much as fits into `out`, in records of at most `longest` bytes of plaintext. Returns the number of plaintext
    /// and ciphertext bytes.
    pub(crate) fn seal(
        &mut self,
        mut first: &[u8],
        mut second: &[u8],
        longest: usize,
        out: &mut [u8],
    ) -> Result<(usize, usize), Error> {
        let broken = Error::fatal(Reason::InternalError);
        if self.is_closed {
            return Err(broken);
        }
        let longest = if longest == 0 { PLAINTEXT_MAX } else { longest.min(PLAINTEXT_MAX) };
        let (mut taken, mut sealed) = (0, 0);
        if self.seal.is_worn() {
            let message = [KEY_UPDATE, 0, 0, 1, 0];
            sealed = self.seal.seal(HANDSHAKE, &message, &[], out).ok_or(broken)?;
            self.seal = self.kernel.next_seal(self.seal.aead()).ok_or(broken)?;
        }
        let overhead = self.seal.overhead();
        while !first.is_empty() || !second.is_empty() {
            let Some(space) = (out.len() - sealed).checked_sub(overhead).filter(|space| *space > 0) else {
                break;
            };
            let most = longest.min(space);
            let (one, first_rest) = first.split_at(first.len().min(most));
            let (two, second_rest) = second.split_at(second.len().min(most - one.len()));
            sealed += self.seal.seal(APPLICATION_DATA, one, two, &mut out[sealed..]).ok_or(broken)?;
            taken += one.len() + two.len();
            (first, second) = (first_rest, second_rest);
            if self.seal.is_worn() {
                break;
            }
        }
        Ok((taken, sealed))
    }
}

const _: () = assert!(HEADER + 5 + 8 + 16 < 64);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::Aead;

    /// Returns a TLS 1.2 connection, and the sending direction of its peer.
    fn connection(is_client: bool) -> (Records, Direction) {
        let direction = |byte| {
            Direction::new(Aead::Aes128Gcm, &[byte; 16], [byte; 12], 0, false).expect("a key of 16 bytes")
        };
        (Records::new(direction(1), direction(2), Kernel::None, 0, is_client), direction(2))
    }

    /// Passes one record to `records`. Returns the reason if it ended the connection.
    fn give(
        records: &mut Records,
        peer: &mut Direction,
        content: u8,
        text: &[u8],
        unsent: &mut PendingBytes,
    ) -> Option<Reason> {
        let mut record = [0; 64];
        let n = peer.seal(content, text, &[], &mut record).expect("it has room");
        records.open(&mut record[..n], &mut [0; 64], unsent).err()
    }

    #[test]
    fn servers_reject_messages_only_servers_send() {
        let (mut records, mut peer) = connection(false);
        let mut unsent = PendingBytes::default();
        assert_eq!(give(&mut records, &mut peer, APPLICATION_DATA, b"x", &mut unsent), None);
        let ended = give(&mut records, &mut peer, HANDSHAKE, &[HELLO_REQUEST, 0, 0, 0], &mut unsent);
        assert_eq!(ended, Some(Reason::UnexpectedMessage));
        assert!(unsent.is_empty());
    }

    #[test]
    fn clients_reject_messages_only_clients_send() {
        let (mut records, mut peer) = connection(true);
        let hello = [CLIENT_HELLO, 0, 0, 0];
        let ended = give(&mut records, &mut peer, HANDSHAKE, &hello, &mut PendingBytes::default());
        assert_eq!(ended, Some(Reason::UnexpectedMessage));
    }

    #[test]
    fn requests_for_a_renegotiation_have_one_unsent_answer_at_a_time() {
        let (mut records, mut peer) = connection(true);
        let mut unsent = PendingBytes::default();
        let mut length = 0;
        for _ in 0..1000 {
            assert_eq!(give(&mut records, &mut peer, APPLICATION_DATA, b"x", &mut unsent), None);
            let ended = give(&mut records, &mut peer, HANDSHAKE, &[HELLO_REQUEST, 0, 0, 0], &mut unsent);
            assert_eq!(ended, None);
            length = length.max(unsent.bytes().len());
        }
        assert_eq!(unsent.bytes().len(), HEADER + 8 + 2 + 16);
        assert_eq!(length, unsent.bytes().len());
        unsent.consume(usize::MAX);
        give(&mut records, &mut peer, HANDSHAKE, &[HELLO_REQUEST, 0, 0, 0], &mut unsent);
        assert!(!unsent.is_empty());
    }
}
