//! Extracts the ClientHello from TLS records. The message may span several records (RFC 8446 section 5.1).
//!
//! Called by [`crate::session`] before an engine is chosen. This module does not interpret the message.

use crate::error::Reason;
use crate::hello::Hello;
use crate::record;

/// The maximum number of record bytes, including headers, that a ClientHello may span.
const RECEIVED_MAX: usize = 1 << 18;

/// Joins records until the ClientHello is complete. The cost is linear in the number of received bytes, however small the pieces
/// are.
#[derive(Debug, Default)]
pub struct Deframer {
    /// All records received so far. They are passed to the engine that continues the handshake.
    received: Vec<u8>,
    /// The offset of the first record that was not added to `message`.
    next: usize,
    /// The payload of the records.
    message: Vec<u8>,
}

impl Deframer {
    /// Creates a deframer with bytes that were already `received`. The next call to [`push`](Self::push) processes
    /// them.
    pub fn with(received: &[u8]) -> Self {
        Self { received: received.to_vec(), ..Self::default() }
    }

    /// Adds received bytes. Returns the ClientHello with its handshake header once the message is complete.
    ///
    /// # Errors
    /// The bytes are not a ClientHello in records, or exceed the limits.
    pub fn push(&mut self, received: &[u8]) -> Result<Option<&[u8]>, Reason> {
        self.received.extend_from_slice(received);
        if self.received.len() > RECEIVED_MAX {
            return Err(Reason::PacketLengthTooLong);
        }
        loop {
            if let Some(length) = Hello::length(&self.message)?
                && self.message.len() >= length
            {
                return Ok(self.message.get(..length));
            }
            let rest = &self.received[self.next..];
            let framed = record::frame(rest).map_err(|reason| plain_text(&self.received, reason))?;
            let Some(framed) = framed else { return Ok(None) };
            if framed.content != record::HANDSHAKE {
                return Err(Reason::UnexpectedMessage);
            }
            if framed.length == record::HEADER {
                return Err(Reason::BadPacket);
            }
            let Some(payload) = rest.get(record::HEADER..framed.length) else { return Ok(None) };
            self.message.extend_from_slice(payload);
            self.next += framed.length;
        }
    }

    /// Whether nothing was received.
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Returns all received bytes.
    pub fn into_received(self) -> Vec<u8> {
        self.received
    }
}

/// Replaces `reason` if the client sent plain HTTP, for which OpenSSL has separate reasons.
fn plain_text(received: &[u8], reason: Reason) -> Reason {
    let begins = |words: &[&str]| words.iter().any(|word| received.starts_with(word.as_bytes()));
    if begins(&["GET ", "POST ", "HEAD ", "PUT "]) {
        Reason::HttpRequest
    } else if begins(&["CONNE"]) {
        Reason::HttpsProxyRequest
    } else {
        reason
    }
}
