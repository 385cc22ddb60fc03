//! Received bytes of a stream, put in order.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};

/// The largest block in which received bytes are collected. Small frames share a block, so that many of them do not take much more
/// memory than their bytes.
const BLOCK_MAX: u64 = 16 * 1024;

/// The number of gaps in the received bytes.
const GAPS_MAX: usize = 128;

/// There are too many gaps in the received bytes: the packet is to be dropped, so that the peer sends it again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TooManyGaps;

/// The received bytes of a stream that were not read.
#[derive(Debug, Default)]
pub(crate) struct Assembler {
    /// Complete blocks, the first of which begins where the reader is.
    blocks: VecDeque<Bytes>,
    /// The block that is being filled.
    tail: BytesMut,
    /// The first byte that was not read.
    read: u64,
    /// The first byte that is missing.
    end: u64,
    /// Bytes after gaps, sorted by offset. They neither overlap nor touch.
    after_gaps: Vec<(u64, Vec<u8>)>,
}

impl Assembler {
    /// The number of bytes that were read.
    pub(crate) fn read_offset(&self) -> u64 {
        self.read
    }

    /// Whether all bytes up to `end` were read.
    pub(crate) fn is_read_to(&self, end: u64) -> bool {
        self.read >= end
    }

    /// Adds received bytes, some of which may have arrived before. Returns whether there is more to read.
    ///
    /// # Errors
    /// There are too many gaps. Nothing was added.
    pub(crate) fn insert(&mut self, offset: u64, data: &[u8]) -> Result<bool, TooManyGaps> {
        let data_end = offset + data.len() as u64;
        if data_end <= self.end {
            return Ok(false);
        }
        if offset > self.end {
            self.insert_after_gap(offset, data)?;
            return Ok(false);
        }
        // Cannot truncate: the difference is less than the length.
        self.append(&data[(self.end - offset) as usize..]);
        while self.after_gaps.first().is_some_and(|(start, _)| *start <= self.end) {
            let (start, bytes) = self.after_gaps.remove(0);
            let known = usize::try_from(self.end - start).unwrap_or(usize::MAX);
            if let Some(new) = bytes.get(known..) {
                self.append(new);
            }
        }
        if self.after_gaps.is_empty() {
            self.after_gaps = Vec::new();
        }
        Ok(true)
    }

    fn append(&mut self, data: &[u8]) {
        if self.tail.capacity() - self.tail.len() < data.len() {
            if !self.tail.is_empty() {
                self.blocks.push_back(std::mem::take(&mut self.tail).freeze());
            }
            let unread = (self.end - self.read).min(BLOCK_MAX) as usize;
            self.tail = BytesMut::with_capacity(data.len().max(unread));
        }
        self.tail.extend_from_slice(data);
        self.end += data.len() as u64;
    }

    fn insert_after_gap(&mut self, offset: u64, data: &[u8]) -> Result<(), TooManyGaps> {
        let all = &mut self.after_gaps;
        let data_end = offset + data.len() as u64;
        // The first part that touches the new bytes, and the first one after them.
        let from = all.partition_point(|(start, bytes)| start + (bytes.len() as u64) < offset);
        let to = all.partition_point(|(start, _)| *start <= data_end);
        if from == to {
            if all.len() == GAPS_MAX {
                return Err(TooManyGaps);
            }
            all.insert(from, (offset, data.to_vec()));
            return Ok(());
        }
        let (start, bytes) = &mut all[from];
        if *start > offset {
            // The new bytes begin before the part.
            let old = std::mem::replace(bytes, data.to_vec());
            let old_start = std::mem::replace(start, offset);
            extend(bytes, offset, old_start, &old);
        } else {
            let start = *start;
            extend(bytes, start, offset, data);
        }
        for (next, more) in all.drain(from + 1..to).collect::<Vec<_>>() {
            let (start, bytes) = &mut all[from];
            extend(bytes, *start, next, &more);
        }
        Ok(())
    }

    /// Returns at most `max` bytes that are next.
    pub(crate) fn read(&mut self, max: usize) -> Option<Bytes> {
        if self.blocks.is_empty() {
            if self.tail.is_empty() {
                return None;
            }
            self.blocks.push_back(std::mem::take(&mut self.tail).freeze());
        }
        let first = self.blocks.front_mut()?;
        let bytes = if first.len() > max { first.split_to(max) } else { self.blocks.pop_front()? };
        self.read += bytes.len() as u64;
        if self.blocks.is_empty() && self.tail.is_empty() {
            self.blocks = VecDeque::new();
        }
        Some(bytes)
    }
}

/// Adds the part of `more`, which starts at `at`, that is beyond the end of `bytes`, which start at `start`.
fn extend(bytes: &mut Vec<u8>, start: u64, at: u64, more: &[u8]) {
    let known = usize::try_from(start + bytes.len() as u64 - at).unwrap_or(usize::MAX);
    if let Some(new) = more.get(known..) {
        bytes.extend_from_slice(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drain(assembler: &mut Assembler, max: usize) -> Vec<u8> {
        std::iter::from_fn(|| assembler.read(max)).flatten().collect()
    }

    #[test]
    fn bytes_are_read_in_order_whatever_the_order_of_arrival() {
        let bytes: Vec<u8> = (0..10_000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let mut seed = 1_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            ((seed >> 33) % below) as usize
        };
        for _ in 0..50 {
            let (mut assembler, mut read) = (Assembler::default(), Vec::new());
            while read.len() < bytes.len() {
                let start = next(10_000);
                let end = (start + 1 + next(700)).min(bytes.len());
                if assembler.insert(start as u64, &bytes[start..end]) == Err(TooManyGaps) {
                    let at = read.len();
                    let _ = assembler.insert(at as u64, &bytes[at..(at + 50).min(bytes.len())]);
                }
                if next(4) == 0 {
                    read.extend(drain(&mut assembler, 1 + next(900)));
                }
                assert!(bytes.starts_with(&read));
            }
            assert_eq!(assembler.read_offset(), 10_000);
            assert!(assembler.after_gaps.is_empty());
        }
    }

    #[test]
    fn the_number_of_gaps_is_limited() {
        let mut assembler = Assembler::default();
        for gap in 0..GAPS_MAX as u64 {
            assert_eq!(assembler.insert(2 + gap * 2, &[1]), Ok(false));
        }
        assert_eq!(assembler.insert(9_999, &[1]), Err(TooManyGaps));
        assert_eq!(assembler.insert(3, &[1]), Ok(false), "this fills a gap");
        assert_eq!(assembler.insert(9_999, &[1]), Ok(false));
        assert_eq!(assembler.insert(0, &[1; 600]), Ok(true));
        assert_eq!(drain(&mut assembler, 1000).len(), 600);
    }

    #[test]
    fn small_frames_share_blocks() {
        let mut assembler = Assembler::default();
        for at in 0..100_000 {
            assert_eq!(assembler.insert(at, &[7]), Ok(true));
        }
        assert!(assembler.blocks.len() < 40, "{}", assembler.blocks.len());
        assert_eq!(drain(&mut assembler, usize::MAX).len(), 100_000);
    }
}
