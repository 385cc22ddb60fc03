//! Bytes that wait to be sent on a connection: written at the end, taken from the front.

/// What waits, in one piece.
#[derive(Debug, Default)]
pub struct Outgoing {
    bytes: Vec<u8>,
    /// How many of them have left.
    sent: usize,
}

impl Outgoing {
    /// Where bytes are appended.
    #[inline]
    pub fn end(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// What waits.
    #[inline]
    #[must_use]
    pub fn waiting(&self) -> &[u8] {
        &self.bytes[self.sent..]
    }

    /// How many bytes wait.
    #[inline]
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes.len() - self.sent
    }

    /// Whether nothing waits.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first `count` bytes have left. Once none waits, memory beyond `kept` bytes is given back;
    /// while some do, those that have left are forgotten once they are more than `kept`.
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

    /// Gives memory back that what waits does not need.
    pub fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_leaves_in_order_and_takes_no_more_memory_than_is_kept() {
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
