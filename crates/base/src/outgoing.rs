//! A queue of bytes to be sent on a connection. Bytes are appended at the end and consumed from the front.

/// The sent and pending bytes, in one piece.
#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    /// The number of bytes at the front that were already sent.
    sent: usize,
}

impl Outgoing {
    /// The buffer for appending bytes.
    #[inline]
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// The pending bytes.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// The number of pending bytes.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether no bytes are pending.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Removes the first `count` bytes. If the queue becomes empty, memory beyond `kept` bytes is freed; otherwise sent bytes are
    /// discarded once there are more than `kept`.
    pub fn advance(&mut self, count: usize, kept: usize) {
        self.sent += count.min(self.len());
        if self.sent == self.bytes.len() {
            self.bytes.clear();
            self.sent = 0;
            self.bytes.shrink_to(kept);
        } else if self.sent > kept {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }

    /// Frees memory that the pending bytes do not need.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_leave_in_order_and_memory_is_bounded() {
        let mut outgoing = Outgoing::default();
        let all: Vec<u8> = (0..=255).cycle().take(10_000).collect();
        outgoing.end().extend_from_slice(&all[..4000]);
        let mut seen = Vec::new();
        for piece in all[4000..].chunks(1000) {
            outgoing.end().extend_from_slice(piece);
            seen.extend_from_slice(&outgoing.waiting()[..1500]);
            outgoing.advance(1500, 100);
            assert_eq!(outgoing.len(), outgoing.waiting().len());
            assert!(outgoing.bytes.len() - outgoing.len() <= 100);
        }
        seen.extend_from_slice(outgoing.waiting());
        outgoing.advance(usize::MAX, 100);
        assert_eq!((seen == all, outgoing.is_empty()), (true, true));
        assert!(outgoing.bytes.capacity() <= 100);
    }
}
