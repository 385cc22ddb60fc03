//! Received bytes of a stream, put in order.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use smallvec::SmallVec;

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
    after_gaps: Vec<Part>,
}

/// Bytes after a gap.
#[derive(Debug)]
struct Part {
    start: u64,
    /// New bytes may belong at either end.
    bytes: VecDeque<u8>,
}

impl Part {
    fn end(&self) -> u64 {
        self.start + self.bytes.len() as u64
    }

    /// Adds those of the bytes at `offset` that the part does not have. They overlap or touch the part.
    fn add(&mut self, offset: u64, data: &[u8]) {
        if offset < self.start {
            // Cannot truncate: at most the length is used.
            let before = data.len().min((self.start - offset) as usize);
            self.bytes.extend(&data[..before]);
            self.bytes.rotate_right(before);
            self.start = offset;
            count_copied(before);
        }
        let known = usize::try_from(self.end() - offset).unwrap_or(usize::MAX);
        if let Some(after) = data.get(known..) {
            self.bytes.extend(after);
            count_copied(after.len());
        }
    }

    /// Adds the bytes of a part that overlaps or touches this one. Only the smaller part is copied, so that a byte is copied a
    /// logarithmic number of times at most.
    fn join(&mut self, mut other: Self) {
        if other.bytes.len() > self.bytes.len() {
            std::mem::swap(self, &mut other);
        }
        self.add(other.start, other.bytes.make_contiguous());
    }
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
        if data_end <= self.end || data.is_empty() {
            return Ok(false);
        }
        if offset > self.end {
            self.insert_after_gap(offset, data)?;
            return Ok(false);
        }
        // Cannot truncate: the difference is less than the length.
        self.append(&data[(self.end - offset) as usize..]);
        let reached = self.after_gaps.partition_point(|part| part.start <= self.end);
        for mut part in self.after_gaps.drain(..reached).collect::<SmallVec<[Part; 1]>>() {
            let known = usize::try_from(self.end - part.start).unwrap_or(usize::MAX);
            if let Some(new) = part.bytes.make_contiguous().get(known..) {
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
        count_copied(data.len());
        self.end += data.len() as u64;
    }

    fn insert_after_gap(&mut self, offset: u64, data: &[u8]) -> Result<(), TooManyGaps> {
        let all = &mut self.after_gaps;
        let data_end = offset + data.len() as u64;
        // The first part that touches the new bytes, and the first one after them.
        let from = all.partition_point(|part| part.end() < offset);
        let to = all.partition_point(|part| part.start <= data_end);
        if from == to {
            if all.len() == GAPS_MAX {
                return Err(TooManyGaps);
            }
            count_copied(data.len());
            all.insert(from, Part { start: offset, bytes: data.to_vec().into() });
            return Ok(());
        }
        let others: SmallVec<[Part; 1]> = all.drain(from + 1..to).collect();
        all[from].add(offset, data);
        for other in others {
            all[from].join(other);
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

#[cfg(test)]
use tests::count_copied;

#[cfg(not(test))]
fn count_copied(_: usize) {}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    thread_local! {
        static COPIED: Cell<usize> = const { Cell::new(0) };
    }

    pub(super) fn count_copied(bytes: usize) {
        COPIED.set(COPIED.get() + bytes);
    }

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
            COPIED.set(0);
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
                let parts = &assembler.after_gaps;
                assert!(parts.iter().all(|part| part.start > assembler.end && !part.bytes.is_empty()));
                assert!(parts.windows(2).all(|pair| pair[0].end() < pair[1].start));
            }
            assert_eq!(assembler.read_offset(), 10_000);
            assert!(COPIED.get() < 10_000 * 10, "{}", COPIED.get());
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

    /// Inserts frames of `length` bytes at the offsets, all of which are after a gap, then fills the gap. Returns how often each byte
    /// was copied on average.
    fn copies(length: usize, offsets: impl IntoIterator<Item = u64>) -> usize {
        let byte = |at: u64| (at * 7 % 251) as u8;
        let mut assembler = Assembler::default();
        let mut end = 0;
        COPIED.set(0);
        for offset in offsets {
            let data: Vec<u8> = (offset..offset + length as u64).map(byte).collect();
            assert_eq!(assembler.insert(offset, &data), Ok(false));
            end = end.max(offset + length as u64);
        }
        assert_eq!(assembler.insert(0, &[0]), Ok(true));
        assert!(assembler.after_gaps.is_empty());
        let read = drain(&mut assembler, usize::MAX);
        assert_eq!(read, (0..end).map(byte).collect::<Vec<_>>());
        COPIED.get().div_ceil(read.len())
    }

    #[test]
    fn bytes_before_a_large_part_do_not_copy_it() {
        const COUNT: u64 = 1 << 14;
        assert!(copies(1, (1..COUNT).rev()) <= 2);
        // Frames that mostly have known bytes.
        assert!(copies(16, (1..COUNT).rev()) <= 2);
        // Many small parts, which the bytes between them join with the large one.
        let parts = (0..COUNT / 256).rev().flat_map(|block| {
            let of = move |first: u64| {
                (1..256).rev().filter(move |at| at % 2 == first).map(move |at| block * 256 + at)
            };
            of(0).chain(of(1)).chain((block > 0).then_some(block * 256))
        });
        assert!(copies(1, parts) <= 4);
    }

    #[test]
    fn the_order_of_arrival_does_not_multiply_copies() {
        const COUNT: u64 = 1 << 14;
        const HALF: u64 = COUNT / 2;
        assert!(copies(1, 1..COUNT) <= 2);
        assert!(copies(16, 1..COUNT) <= 2);
        // From the middle towards both ends.
        assert!(copies(1, (0..HALF - 1).flat_map(|at| [HALF - 1 - at, HALF + at])) <= 2);
        // Two parts, then the bytes between them.
        let between = HALF / 2..HALF + HALF / 2;
        let parts = (1..between.start).chain(between.end..COUNT);
        assert!(copies(1, parts.clone().chain(between.clone())) <= 3);
        assert!(copies(1, parts.chain(between.rev())) <= 3);
        // Gaps of one byte, which are filled in order.
        let parts = (0..COUNT / 128).flat_map(|block| {
            let of =
                move |first: u64| (2..128).filter(move |at| at % 2 == first).map(move |at| block * 128 + at);
            of(0).chain(of(1)).chain([block * 128 + 128, block * 128 + 129])
        });
        assert!(copies(1, std::iter::once(1).chain(parts)) <= 4);
        // Parts of the same length, which are joined in pairs, then the pairs, and so on.
        let pieces = 1..128_u64;
        let joins = pieces.clone().map(|piece| piece.reverse_bits() >> 57).map(|at| at * 128);
        let parts = pieces.flat_map(|piece| piece * 128 + 1..piece * 128 + 128);
        assert!(copies(1, (1..128).chain(parts).chain(joins.collect::<Vec<_>>().into_iter().rev())) <= 9);
    }
}
