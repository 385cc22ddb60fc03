//! QX_PING frames (section 4.3 of the draft).

use quic::transport::TransportError;
use quic::varint;

/// The type of a ping, and the type of its answer.
pub(crate) const QX_PING: u64 = 0x348c_6752_9ef8_c7bd;
pub(crate) const QX_PING_ANSWER: u64 = 0x348c_6752_9ef8_c7be;

/// The pings of both sides.
#[derive(Debug, Default)]
pub(crate) struct Pings {
    /// The number of pings sent, which is the sequence number of the last one.
    sent: u64,
    is_wanted: bool,
    /// The largest sequence number received.
    heard: Option<u64>,
    /// The sequence number to answer with. Only the largest one is answered.
    answer: Option<u64>,
}

impl Pings {
    /// Sends a ping with the next record.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// Whether there is a frame to send.
    pub(crate) fn has_output(&self) -> bool {
        self.is_wanted || self.answer.is_some()
    }

    /// The peer has sent a ping.
    ///
    /// # Errors
    /// Its sequence number is smaller than that of an earlier one.
    pub(crate) fn received(&mut self, sequence: u64) -> Result<(), TransportError> {
        if self.heard.is_some_and(|heard| sequence < heard) {
            return Err(TransportError::violation("the sequence numbers of pings decrease"));
        }
        self.heard = Some(sequence);
        self.answer = Some(sequence);
        Ok(())
    }

    /// The peer has answered a ping.
    ///
    /// # Errors
    /// The ping was not sent.
    pub(crate) fn answered(&self, sequence: u64) -> Result<(), TransportError> {
        if (1..=self.sent).contains(&sequence) {
            return Ok(());
        }
        Err(TransportError::violation("the answer to a ping that was not sent"))
    }

    /// Appends the frames to send.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>) {
        if let Some(sequence) = self.answer.take() {
            varint::write_all(out, &[QX_PING_ANSWER, sequence]);
        }
        if std::mem::take(&mut self.is_wanted) {
            self.sent += 1;
            varint::write_all(out, &[QX_PING, self.sent]);
        }
    }
}
