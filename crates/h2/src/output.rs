//! The pending output: an ordered queue of copied bytes, and of payloads that are not copied.
//!
//! The copied bytes form one buffer, which includes the frame headers of gathered payloads. A gathered payload records its position
//! in this buffer. The caller has to respect the limit (`room`). Responses triggered by the peer are counted separately
//! (`answers`).

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;

use crate::frame::{FrameHeader, HEADER, flag, kind};
use crate::limits;
use crate::watch::FrameWatch;

/// A gathered payload, split into frames of `chunk` bytes. The frame headers are in the copied bytes.
#[derive(Debug)]
struct Owned<B> {
    data: B,
    rest: Range<usize>,
    /// The position in the copied bytes at which the next piece is inserted, counted from the start of the connection.
    at: u64,
    /// The rest of the current frame.
    piece: usize,
    chunk: usize,
}

#[derive(Debug)]
pub(crate) struct FrameOutput<B> {
    copied: Vec<u8>,
    /// The copied bytes already sent.
    start: usize,
    /// The position of `copied[start]`, counted from the connection's start.
    position: u64,
    owned: VecDeque<Owned<B>>,
    /// The pending bytes in `owned`.
    gathered: usize,
    /// Bytes of responses before and since `mark`. Their sum is an upper bound of the pending response bytes.
    answers: [usize; 2],
    /// Bytes of header blocks, counted in the same way.
    heads: [usize; 2],
    mark: u64,
    /// Sent frames, if they are recorded.
    pub(crate) watch: FrameWatch,
}

impl<B: AsRef<[u8]>> FrameOutput<B> {
    pub(crate) fn new() -> FrameOutput<B> {
        FrameOutput {
            copied: Vec::new(),
            start: 0,
            position: 0,
            owned: VecDeque::new(),
            gathered: 0,
            answers: [0; 2],
            heads: [0; 2],
            mark: 0,
            watch: FrameWatch::default(),
        }
    }

    /// Converts to another payload type; `None` if payloads are pending.
    pub(crate) fn repacked<C>(self) -> Option<FrameOutput<C>> {
        let FrameOutput { copied, start, position, owned, gathered, answers, heads, mark, watch } = self;
        owned.is_empty().then(|| FrameOutput {
            copied,
            start,
            position,
            owned: VecDeque::new(),
            gathered,
            answers,
            heads,
            mark,
            watch,
        })
    }

    /// The number of pending bytes.
    #[inline]
    pub(crate) fn pending(&self) -> usize {
        self.copied.len() - self.start + self.gathered
    }

    /// The number of bytes that may be added before streams have to wait.
    #[inline]
    pub(crate) fn room(&self) -> usize {
        limits::OUTPUT.saturating_sub(self.pending())
    }

    /// The bytes of pending responses, or slightly more.
    #[inline]
    pub(crate) fn answers(&self) -> usize {
        self.answers[0] + self.answers[1]
    }

    /// The bytes of pending header blocks, or slightly more.
    #[inline]
    pub(crate) fn heads(&self) -> usize {
        self.heads[0] + self.heads[1]
    }

    /// The buffer for appending frames.
    #[inline]
    pub(crate) fn bytes(&mut self) -> &mut Vec<u8> {
        &mut self.copied
    }

    /// Appends a frame with a fixed payload.
    #[inline]
    pub(crate) fn frame<const N: usize>(&mut self, kind: u8, flags: u8, stream: u32, payload: [u8; N]) {
        let header = FrameHeader { length: N, kind, flags, stream };
        self.watch.note(header, true);
        self.copied.extend_from_slice(&header.bytes());
        self.copied.extend_from_slice(&payload);
    }

    /// Appends a frame that counts as a response triggered by the peer.
    pub(crate) fn answer<const N: usize>(&mut self, kind: u8, flags: u8, stream: u32, payload: [u8; N]) {
        self.frame(kind, flags, stream, payload);
        self.answers[1] += HEADER + N;
    }

    /// Appends a header block. `block` writes it, and it is then split into frames of at most `max` bytes.
    pub(crate) fn headers(&mut self, stream: u32, end: bool, max: usize, block: impl FnOnce(&mut Vec<u8>)) {
        let at = self.copied.len();
        self.copied.extend_from_slice(&[0; HEADER]);
        block(&mut self.copied);
        let length = self.copied.len() - at - HEADER;
        let end = if end { flag::END_STREAM } else { 0 };
        let last = if length <= max { flag::END_HEADERS } else { 0 };
        let header = FrameHeader { length: length.min(max), kind: kind::HEADERS, flags: end | last, stream };
        self.watch.note(header, true);
        self.copied[at..at + HEADER].copy_from_slice(&header.bytes());
        if length > max {
            self.continuations(at + HEADER + max, stream, max);
        }
        self.heads[1] += self.copied.len() - at;
    }

    fn continuations(&mut self, mut at: usize, stream: u32, max: usize) {
        while at < self.copied.len() {
            let left = self.copied.len() - at;
            let flags = if left <= max { flag::END_HEADERS } else { 0 };
            let header = FrameHeader { length: left.min(max), kind: kind::CONTINUATION, flags, stream };
            self.watch.note(header, true);
            self.copied.splice(at..at, header.bytes());
            at += HEADER + header.length;
        }
    }

    /// Appends DATA frames of at most `max` bytes each, copied.
    pub(crate) fn data(&mut self, stream: u32, data: &[u8], end: bool, max: usize) {
        let mut rest = data;
        loop {
            let (piece, behind) = rest.split_at(rest.len().min(max));
            rest = behind;
            let flags = if end && rest.is_empty() { flag::END_STREAM } else { 0 };
            let header = FrameHeader { length: piece.len(), kind: kind::DATA, flags, stream };
            self.watch.note(header, true);
            self.copied.extend_from_slice(&header.bytes());
            self.copied.extend_from_slice(piece);
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Appends DATA frames of at most `max` bytes each. The payload, which must not be empty, stays in `data`.
    pub(crate) fn gather(&mut self, stream: u32, data: B, range: Range<usize>, end: bool, max: usize) {
        let mut left = range.len();
        let at = self.position + (self.copied.len() - self.start + HEADER) as u64;
        self.gathered += left;
        while left > 0 {
            let length = left.min(max);
            left -= length;
            let flags = if end && left == 0 { flag::END_STREAM } else { 0 };
            let header = FrameHeader { length, kind: kind::DATA, flags, stream };
            self.watch.note(header, true);
            self.copied.extend_from_slice(&header.bytes());
        }
        let piece = range.len().min(max);
        self.owned.push_back(Owned { data, rest: range, at, piece, chunk: max });
    }

    /// Fills `slices` with pending output, in order; returns the number used.
    pub(crate) fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut filled = 0;
        let mut add = |bytes: &'a [u8]| {
            if !bytes.is_empty() && filled < slices.len() {
                slices[filled] = IoSlice::new(bytes);
                filled += 1;
            }
            filled < slices.len()
        };
        let mut from = self.start;
        for owned in &self.owned {
            let bytes = owned.data.as_ref();
            let (mut at, mut start, mut piece) = (owned.at, owned.rest.start, owned.piece);
            while start < owned.rest.end {
                let to = self.start + (at - self.position) as usize;
                if !add(&self.copied[from..to]) || !add(&bytes[start..start + piece]) {
                    return slices.len();
                }
                from = to;
                start += piece;
                at += HEADER as u64;
                piece = owned.chunk.min(owned.rest.end - start);
            }
        }
        add(&self.copied[from..]);
        filled
    }

    /// Removes the first `count` bytes of the pending output.
    pub(crate) fn sent(&mut self, mut count: usize) {
        while let Some(owned) = self.owned.front_mut() {
            let before = (owned.at - self.position) as usize;
            if count < before {
                break;
            }
            self.start += before;
            self.position += before as u64;
            count -= before;
            let taken = count.min(owned.piece);
            owned.rest.start += taken;
            owned.piece -= taken;
            self.gathered -= taken;
            count -= taken;
            if owned.piece > 0 {
                break;
            }
            if owned.rest.is_empty() {
                self.owned.pop_front();
                continue;
            }
            owned.at += HEADER as u64;
            owned.piece = owned.chunk.min(owned.rest.len());
        }
        let count = count.min(self.copied.len() - self.start);
        self.start += count;
        self.position += count as u64;
        self.settle();
    }

    /// Moves the remaining bytes to the front if that is cheap, and stops counting sent responses.
    fn settle(&mut self) {
        let left = self.copied.len() - self.start;
        if left == 0 {
            self.copied.clear();
            self.start = 0;
            self.answers = [0; 2];
            self.heads = [0; 2];
            self.mark = self.position;
            return;
        }
        if self.start >= left && self.start >= limits::QUANTUM {
            self.copied.drain(..self.start);
            self.start = 0;
        }
        if self.position >= self.mark {
            self.answers = [self.answers[1], 0];
            self.heads = [self.heads[1], 0];
            self.mark = self.position + left as u64;
        }
    }

    /// Frees memory that the pending output does not need.
    pub(crate) fn shrink(&mut self) {
        self.copied.shrink_to_fit();
        self.owned.shrink_to_fit();
        self.watch.end();
    }

    /// Heap memory in bytes.
    pub(crate) fn heap(&self) -> usize {
        self.copied.capacity() + self.owned.capacity() * size_of::<Owned<B>>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flat(output: &FrameOutput<Vec<u8>>, slices: usize) -> Vec<u8> {
        let mut list = vec![IoSlice::new(&[]); slices];
        let count = output.slices(&mut list);
        list[..count].iter().flat_map(|slice| slice.to_vec()).collect()
    }

    fn filled() -> FrameOutput<Vec<u8>> {
        let mut output = FrameOutput::new();
        output.frame(kind::PING, 0, 0, [7; 8]);
        output.gather(1, vec![1; 100], 10..95, false, 30);
        output.gather(3, vec![2; 10], 0..10, true, 30);
        output.data(5, &[5; 40], true, 30);
        output
    }

    #[test]
    fn copied_and_gathered_bytes_stay_in_order() {
        let whole = flat(&filled(), 64);
        assert_eq!(whole.len(), filled().pending());
        for step in 1..whole.len() {
            let (mut output, mut got) = (filled(), Vec::new());
            while output.pending() > 0 {
                let waiting = flat(&output, 64);
                assert_eq!(waiting.len(), output.pending());
                let few = flat(&output, 2);
                assert_eq!(few, waiting[..few.len()]);
                let count = step.min(waiting.len());
                got.extend_from_slice(&waiting[..count]);
                output.sent(count);
            }
            assert_eq!(got, whole, "in steps of {step}");
            assert!(output.owned.is_empty() && output.answers() == 0);
        }
    }

    #[test]
    fn blocks_larger_than_a_frame_are_continued() {
        let mut output = FrameOutput::<Vec<u8>>::new();
        output.headers(1, true, 10, |out| out.extend_from_slice(b"0123456789abcdefghijKLM"));
        let bytes = flat(&output, 1);
        let (mut rest, mut block, mut seen) = (&bytes[..], Vec::new(), Vec::new());
        while let Some(header) = FrameHeader::read(rest) {
            block.extend_from_slice(&rest[HEADER..HEADER + header.length]);
            seen.push((header.kind, header.flags, header.length));
            rest = &rest[HEADER + header.length..];
        }
        assert_eq!(block, b"0123456789abcdefghijKLM");
        assert_eq!(seen, [(1, 1, 10), (9, 0, 10), (9, 4, 3)]);
    }

    #[test]
    fn responses_are_counted_until_sent() {
        let mut output = FrameOutput::<Vec<u8>>::new();
        for _ in 0..100 {
            output.answer(kind::PING, 1, 0, [0; 8]);
        }
        assert_eq!(output.answers(), 1700);
        output.sent(1600);
        assert!((100..=1700).contains(&output.answers()));
        for _ in 0..1000 {
            output.answer(kind::PING, 1, 0, [0; 8]);
            output.sent(17);
        }
        assert!(output.answers() <= 400, "{} bytes where at most 117 wait", output.answers());
        output.sent(100);
        assert_eq!((output.answers(), output.pending()), (0, 0));
    }
}
