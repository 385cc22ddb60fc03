//! Bytes of a stream that the peer has not acknowledged.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::{Buf as _, Bytes};

use crate::ranges::Ranges;

/// The size up to which written bytes are added to the last block instead of a new one.
const BLOCK_MAX: usize = 4096;

/// The bytes that were written and not acknowledged.
#[derive(Debug, Default)]
pub(crate) struct SendBuffer {
    blocks: VecDeque<Block>,
    /// The offset of the first block.
    base: u64,
    /// The end of the written bytes.
    end: u64,
    /// The first byte that was never sent.
    next: u64,
    /// Sent bytes that are to be sent again.
    lost: Ranges,
    /// Acknowledged bytes after others that are not.
    acknowledged: Ranges,
    /// The block that was read last, and its offset.
    cursor: (usize, u64),
}

#[derive(Debug)]
enum Block {
    Shared(Bytes),
    Copied(Vec<u8>),
}

impl Block {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Shared(bytes) => bytes,
            Self::Copied(bytes) => bytes,
        }
    }
}

impl SendBuffer {
    /// Returns an empty buffer that continues at `end`.
    pub(crate) fn emptied_at(end: u64) -> Self {
        Self { base: end, end, next: end, cursor: (0, end), ..Self::default() }
    }

    /// The number of bytes that were written.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The number of bytes that are kept.
    pub(crate) fn kept(&self) -> u64 {
        self.end - self.base
    }

    /// Whether all written bytes were acknowledged.
    pub(crate) fn is_acknowledged(&self) -> bool {
        self.base == self.end
    }

    /// Whether there is something to send.
    pub(crate) fn has_unsent(&self) -> bool {
        self.next < self.end || !self.lost.is_empty()
    }

    /// Adds a copy of `data`.
    pub(crate) fn push(&mut self, data: &[u8]) {
        self.end += data.len() as u64;
        if let Some(Block::Copied(last)) = self.blocks.back_mut()
            && last.len() + data.len() <= BLOCK_MAX
        {
            last.extend_from_slice(data);
        } else {
            self.blocks.push_back(Block::Copied(data.to_vec()));
        }
    }

    /// Adds `data` without a copy.
    pub(crate) fn push_shared(&mut self, data: Bytes) {
        self.end += data.len() as u64;
        self.blocks.push_back(Block::Shared(data));
    }

    /// Returns the bytes to send next: lost ones first.
    pub(crate) fn peek(&self) -> Option<Range<u64>> {
        self.lost.first().cloned().or_else(|| (self.next < self.end).then_some(self.next..self.end))
    }

    /// Marks the first bytes of what [`peek`](Self::peek) returned as sent.
    pub(crate) fn mark_sent(&mut self, range: Range<u64>) {
        if range.start == self.next && self.lost.is_empty() {
            self.next = range.end;
        } else {
            self.lost.remove(range);
            self.lost.shrink();
        }
    }

    /// Appends the bytes of `range`, all of which are kept, to `out`.
    pub(crate) fn copy(&mut self, range: Range<u64>, out: &mut Vec<u8>) {
        let (mut index, mut offset) = self.cursor;
        if range.start < offset {
            (index, offset) = (0, self.base);
        }
        let mut at = range.start;
        while at < range.end {
            let Some(block) = self.blocks.get(index) else {
                debug_assert!(false, "the range is kept");
                break;
            };
            let bytes = block.bytes();
            let skipped = (at - offset) as usize;
            if skipped >= bytes.len() {
                offset += bytes.len() as u64;
                index += 1;
                continue;
            }
            let count = (bytes.len() - skipped).min((range.end - at) as usize);
            out.extend_from_slice(&bytes[skipped..skipped + count]);
            at += count as u64;
        }
        self.cursor = (index, offset);
    }

    /// Marks bytes as lost unless they were acknowledged.
    pub(crate) fn lose(&mut self, range: Range<u64>) {
        let range = range.start.max(self.base)..range.end.min(self.next);
        if range.is_empty() {
            return;
        }
        self.lost.insert(range.clone());
        for acknowledged in self.acknowledged.overlapping(&range) {
            self.lost.remove(acknowledged.clone());
        }
    }

    /// Marks bytes as acknowledged; returns how many bytes need not be kept any more.
    pub(crate) fn acknowledge(&mut self, range: Range<u64>) -> u64 {
        let before = self.base;
        if !self.lost.is_empty() {
            self.lost.remove(range.clone());
            self.lost.shrink();
        }
        let mut end = range.end;
        if range.start > self.base || !self.acknowledged.is_empty() {
            self.acknowledged.insert(range);
            match self.acknowledged.first() {
                Some(first) if first.start <= self.base => end = first.end,
                _ => return 0,
            }
            self.acknowledged.pop_first();
            self.acknowledged.shrink();
        }
        let end = end.max(self.base);
        self.release(end);
        self.base - before
    }

    /// Drops the bytes before `end`.
    fn release(&mut self, end: u64) {
        while let Some(first) = self.blocks.front_mut() {
            let length = first.bytes().len() as u64;
            let gone = end - self.base;
            if gone >= length {
                self.blocks.pop_front();
                self.base += length;
                self.cursor.0 = self.cursor.0.saturating_sub(1);
                continue;
            }
            if gone > 0
                && let Block::Shared(bytes) = first
            {
                // Cannot truncate: it is less than the block's length.
                bytes.advance(gone as usize);
                self.base = end;
                if self.cursor.0 == 0 {
                    self.cursor.1 = end;
                }
            } else if gone > 0 {
                // Copied blocks are small: they stay until all of their bytes are acknowledged.
                self.acknowledged.insert(self.base..end);
            }
            break;
        }
        if self.blocks.is_empty() {
            self.blocks = VecDeque::new();
        }
        self.cursor.1 = self.cursor.1.max(self.base);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(range: Range<u64>) -> Vec<u8> {
        range.map(|at| (at * 31 % 253) as u8).collect()
    }

    #[test]
    fn bytes_are_sent_again_only_if_lost_and_kept_until_acknowledged() {
        let mut seed = 3_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below.max(1)
        };
        let mut buffer = SendBuffer::default();
        let (mut in_flight, mut arrived, mut kept) = (Vec::<Range<u64>>::new(), Ranges::default(), 0);
        for turn in 0..30_000 {
            if turn < 10_000 && next(3) == 0 {
                let most = if next(2) == 0 { 40 } else { 6000 };
                let data = content(buffer.end()..buffer.end() + 1 + next(most));
                kept += data.len() as u64;
                if next(2) == 0 { buffer.push(&data) } else { buffer.push_shared(data.into()) }
            }
            if let Some(range) = buffer.peek() {
                let range = range.start..range.end.min(range.start + 1 + next(1200));
                let mut out = vec![9];
                buffer.copy(range.clone(), &mut out);
                assert_eq!(out[1..], content(range.clone()), "{range:?}");
                buffer.mark_sent(range.clone());
                in_flight.push(range);
            }
            if !in_flight.is_empty() && next(2) == 0 {
                let range = in_flight.swap_remove(next(in_flight.len() as u64) as usize);
                if next(4) == 0 {
                    buffer.lose(range);
                } else {
                    arrived.insert(range.clone());
                    kept -= buffer.acknowledge(range);
                }
            }
            assert_eq!(buffer.kept(), kept);
        }
        while let Some(range) = in_flight.pop() {
            arrived.insert(range.clone());
            kept -= buffer.acknowledge(range);
        }
        assert!(buffer.is_acknowledged() && !buffer.has_unsent() && kept == 0);
        assert!(arrived.iter().eq([&(0..buffer.end())]));
    }

    #[test]
    fn acknowledged_bytes_are_not_lost() {
        let mut buffer = SendBuffer::default();
        buffer.push_shared(content(0..100).into());
        buffer.mark_sent(0..100);
        assert_eq!(buffer.acknowledge(40..60), 0);
        buffer.lose(0..100);
        assert_eq!(buffer.peek(), Some(0..40));
        buffer.mark_sent(0..40);
        assert_eq!(buffer.peek(), Some(60..100));
        assert_eq!(buffer.acknowledge(0..40), 60);
        assert_eq!(buffer.acknowledge(60..100), 40);
        assert!(!buffer.has_unsent());
    }
}
