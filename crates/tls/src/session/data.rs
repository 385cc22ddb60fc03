//! Data transfer: decrypting received bytes, encrypting sent ones, and the pending bytes of both directions. Called by
//! `net::Stream`.

use super::{HandshakePhase, LegacyStage, PeerEnd, Session};
use crate::TLS13;
use crate::error::{Error, FailureKind, Reason};
use crate::record;
use crate::records::RecordKind;

/// The result of [`Session::open`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenedData {
    /// The number of plaintext bytes at the start of the room.
    pub filled: usize,
    /// Whether there will be no more data.
    pub is_end: bool,
}

impl Session {
    /// Returns ciphertext waiting to be sent. It must be sent before everything that is encrypted later.
    pub fn unsent(&self) -> &[u8] {
        self.unsent.bytes()
    }

    /// Frees memory until the next record, for a connection that is about to be idle for long.
    pub fn rest(&mut self) {
        if let HandshakePhase::Established(records) = &mut self.phase {
            records.rest();
        }
    }

    /// Drops `n` unsent bytes after they were sent.
    pub fn sent(&mut self, n: usize) {
        self.unsent.consume(n);
    }

    /// Stores encrypted bytes that could not be sent, after those already stored.
    pub fn keep_unsent(&mut self, sealed: &[u8]) {
        self.unsent.append(sealed);
    }

    /// Returns how the peer's side ended.
    pub fn ended(&self) -> PeerEnd {
        self.ended
    }

    /// Returns how many bytes of ciphertext to receive, at most, for `room` bytes of plaintext.
    #[inline]
    pub fn wanted(&self, room: usize) -> usize {
        // As many whole records of the maximum size as needed, but at least one even for the smallest room.
        let records = room.div_ceil(record::PLAINTEXT_MAX);
        (room + records * record::OVERHEAD_MAX).max(4096)
    }

    /// Whether there is readable data that does not make the socket readable.
    #[inline]
    pub fn has_waiting(&self) -> bool {
        let whole = || {
            let kept = self.kept.bytes();
            match record::frame(kept) {
                Ok(framed) => framed.is_some_and(|framed| framed.length <= kept.len()),
                Err(_) => true,
            }
        };
        !self.plain.is_empty()
            || (!self.kept.is_empty() && whole())
            || self.ended != PeerEnd::No
            || match &self.phase {
                HandshakePhase::Legacy(link, _) => link.has_waiting(),
                // The failure is reported after the preceding data.
                HandshakePhase::Failed(_) => true,
                _ => false,
            }
    }

    /// Returns how many bytes of received ciphertext are stored. [`take_kept`](Self::take_kept) puts them in front of the bytes
    /// received next.
    #[inline]
    pub fn kept(&self) -> usize {
        self.kept.bytes().len()
    }

    /// Moves the stored ciphertext to the front of `into`, which must have room for it.
    #[inline]
    pub fn take_kept(&mut self, into: &mut [u8]) -> usize {
        if self.kept.is_empty() { 0 } else { self.kept.take(into) }
    }

    /// Decrypts the records in `received` into `room`. `received` consists of the ciphertext from [`take_kept`](Self::take_kept)
    /// and the bytes received after it. Partial records, and data that does not fit, are stored.
    ///
    /// # Errors
    /// The connection is broken. An alert for the peer is among the unsent bytes.
    pub fn open(&mut self, received: &mut [u8], room: &mut [u8]) -> Result<OpenedData, Error> {
        let mut filled = self.plain.take(room);
        let mut rest = received;
        let mut result = Ok(());
        let records = match &mut self.phase {
            HandshakePhase::Established(records) => records,
            HandshakePhase::Legacy(..) => return self.open_legacy(rest, room, filled),
            HandshakePhase::Handshake(_) => return self.open_early(rest, room, filled),
            _ => return Err(Error::fatal(Reason::InternalError)),
        };
        // With an empty room, the caller only asks whether there is data, and one record with data is enough.
        while (filled < room.len() || (room.is_empty() && self.plain.is_empty())) && self.ended == PeerEnd::No
        {
            let framed = match record::frame(rest) {
                Ok(Some(framed)) if framed.length <= rest.len() => framed,
                Ok(_) => break,
                Err(reason) => {
                    result = Err(reason);
                    break;
                }
            };
            let (one, behind) = std::mem::take(&mut rest).split_at_mut(framed.length);
            rest = behind;
            match records.open(one, &mut room[filled..], &mut self.unsent) {
                Ok(RecordKind::Filled(n)) => filled += n,
                Ok(RecordKind::InPlace(text)) => {
                    let n = text.len().min(room.len() - filled);
                    room[filled..filled + n].copy_from_slice(&text[..n]);
                    filled += n;
                    self.plain.append(&text[n..]);
                }
                Ok(RecordKind::Nothing) => {}
                Ok(RecordKind::Close) => self.ended = PeerEnd::Cleanly,
                Err(reason) => {
                    result = Err(reason);
                    break;
                }
            }
        }
        if let Err(reason) = result {
            let error = broken(reason);
            if let Some(alert) = reason.alert() {
                records.alert(2, alert, &mut self.unsent);
            }
            let _ = self.details.broken.set(error);
            self.phase = HandshakePhase::Failed(error);
            // Data that precedes the failure is delivered first.
            return if filled > 0 { Ok(OpenedData { filled, is_end: false }) } else { Err(error) };
        }
        if self.ended == PeerEnd::No {
            debug_assert!(self.kept.is_empty(), "what was kept comes first");
            self.kept.append(rest);
        }
        Ok(OpenedData { filled, is_end: filled == 0 && self.ended != PeerEnd::No })
    }

    /// Like [`open`](Self::open), with OpenSSL. The room already has `filled` bytes. OpenSSL itself buffers received bytes.
    #[inline(never)]
    fn open_legacy(&mut self, received: &[u8], room: &mut [u8], filled: usize) -> Result<OpenedData, Error> {
        let HandshakePhase::Legacy(link, _) = &mut self.phase else {
            return Err(Error::fatal(Reason::InternalError));
        };
        link.receive(received);
        // With an empty room, the caller only asks whether there is data, and one byte is enough.
        let mut one = [0];
        let asks = room.is_empty() && self.plain.is_empty();
        let space = if asks { &mut one[..] } else { &mut room[filled..] };
        let mut read = 0;
        if self.ended == PeerEnd::No && !space.is_empty() {
            let seen = link.read(space, &mut self.unsent);
            read = seen.filled;
            match seen.closed {
                Ok(false) => {}
                Ok(true) => self.ended = PeerEnd::Cleanly,
                Err(reason) => {
                    let error = broken(reason);
                    let _ = self.details.broken.set(error);
                    self.phase = HandshakePhase::Failed(error);
                    // Data that precedes the failure is delivered first.
                    if filled + read == 0 {
                        return Err(error);
                    }
                }
            }
        }
        let filled = if asks {
            self.plain.append(&one[..read]);
            0
        } else {
            filled + read
        };
        Ok(OpenedData { filled, is_end: filled == 0 && self.ended != PeerEnd::No })
    }

    /// Like [`open`](Self::open), during the handshake.
    #[inline(never)]
    fn open_early(&mut self, received: &[u8], room: &mut [u8], filled: usize) -> Result<OpenedData, Error> {
        self.handshake(received)?;
        let filled = filled + self.plain.take(&mut room[filled..]);
        Ok(OpenedData { filled, is_end: filled == 0 && self.ended != PeerEnd::No })
    }

    /// Moves previously decrypted plaintext to `room`. Returns its length.
    #[inline]
    pub fn take_plain(&mut self, room: &mut [u8]) -> usize {
        if self.plain.is_empty() { 0 } else { self.plain.take(room) }
    }

    /// Encrypts part of `first` followed by `second` at the start of `out`, which must have room for at least one record. Returns
    /// the number of plaintext and ciphertext bytes. Both are zero once the limit of early data is reached; the handshake must then
    /// be completed first.
    ///
    /// # Errors
    /// The session has failed before, or is not established.
    pub fn seal(&mut self, first: &[u8], second: &[u8], out: &mut [u8]) -> Result<(usize, usize), Error> {
        match &mut self.phase {
            HandshakePhase::Established(records) => {
                records.seal(first, second, usize::from(self.limits.max_record), out)
            }
            HandshakePhase::Legacy(link, LegacyStage::Established) => {
                link.write(first, second, usize::from(self.limits.max_record), out)
            }
            HandshakePhase::Handshake(handshake) if handshake.is_early() => {
                handshake.seal(first, second, usize::from(self.limits.max_record), out)
            }
            HandshakePhase::Failed(error) => Err(*error),
            _ => Err(Error::fatal(Reason::InternalError)),
        }
    }

    /// Adds close_notify to the unsent bytes, once.
    pub fn close(&mut self) {
        match &mut self.phase {
            HandshakePhase::Established(records) => records.close(&mut self.unsent),
            HandshakePhase::Legacy(link, LegacyStage::Established) => link.close(&mut self.unsent),
            _ => {}
        }
    }

    /// Switches to a new key, and requests the same from the peer if `asks` is set. Returns `false` before TLS 1.3, which has no
    /// key updates. Worn keys are replaced automatically.
    pub fn renew_key(&mut self, asks: bool) -> bool {
        match &mut self.phase {
            HandshakePhase::Established(records) if self.details.version == TLS13 => {
                records.update(asks, &mut self.unsent).is_ok()
            }
            _ => false,
        }
    }
}

/// Returns the error of an established connection.
fn broken(reason: Reason) -> Error {
    let kind =
        if reason == Reason::NoRenegotiation { FailureKind::Renegotiation } else { FailureKind::Fatal };
    Error { kind, reason, verify: 0 }
}
