//! The data of one direction of a stream as a filter sees and changes it: input that has not been passed on, and output.

/// The payload before and after one filter.
#[derive(Debug, Default)]
pub struct Payload {
    /// The input that was not passed on yet.
    pub input: Vec<u8>,
    /// The output since the holder took it last.
    pub output: Vec<u8>,
    /// The limit for input and for output.
    pub limit: usize,
    /// Whether the input has ended.
    pub is_ended: bool,
    /// Whether a script that needs more input may wait for it, as rule actions may.
    pub waits: bool,
    /// Whether a filter ended the message early, so that further input is dropped.
    pub is_cut: bool,
    /// Whether a filter delays the end of the message because it will send more.
    pub is_open: bool,
}

impl Payload {
    /// Creates a payload with this limit for input and output.
    pub fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Whether the input is full.
    pub fn is_full(&self) -> bool {
        self.input.len() >= self.limit
    }

    /// Whether more input may arrive.
    pub fn may_receive(&self) -> bool {
        !self.is_ended && !self.is_cut
    }

    /// Whether the requested data is incomplete and may be waited for: `length` bytes from an offset (a full buffer if `length` is
    /// negative), or a line if `is_line`.
    pub(crate) fn lacks(&self, offset: i64, length: Option<i64>, is_line: bool) -> bool {
        if !self.waits || !self.may_receive() || self.is_full() {
            return false;
        }
        let rest = &self.input[self.place(offset).unwrap_or(self.input.len())..];
        if is_line && rest.contains(&b'\n') {
            return false;
        }
        match length {
            Some(length) => usize::try_from(length).map_or(true, |length| rest.len() < length),
            None => is_line || rest.is_empty(),
        }
    }

    /// Returns the index for an offset, which counts from the end of the input if it is negative; `None` if it is after the end.
    fn place(&self, offset: i64) -> Option<usize> {
        let length = self.input.len();
        match usize::try_from(offset) {
            Ok(place) => Some(place).filter(|place| *place <= length),
            Err(_) => Some(length.saturating_sub(offset.unsigned_abs() as usize)),
        }
    }

    /// Returns a part of the input: `length` bytes from an offset, fewer if the input ends earlier, or all.
    pub(crate) fn part(&self, offset: i64, length: Option<usize>) -> Option<std::ops::Range<usize>> {
        let start = self.place(offset)?;
        let rest = self.input.len() - start;
        Some(start..start + length.unwrap_or(rest).min(rest))
    }

    /// Inserts bytes at an offset; returns whether they fit.
    pub(crate) fn insert(&mut self, bytes: &[u8], offset: i64) -> Option<bool> {
        let place = self.place(offset)?;
        Some(self.splice(place..place, bytes))
    }

    /// Replaces a part; returns whether the new bytes fit.
    pub(crate) fn splice(&mut self, part: std::ops::Range<usize>, bytes: &[u8]) -> bool {
        let fits = self.input.len() - part.len() + bytes.len() <= self.limit;
        if fits {
            self.input.splice(part, bytes.iter().copied());
        }
        fits
    }

    /// Passes on the first `most` bytes, or fewer if there are fewer; returns their number.
    pub fn forward(&mut self, most: usize) -> usize {
        let count = most.min(self.input.len());
        if count == self.input.len() && self.output.is_empty() {
            std::mem::swap(&mut self.input, &mut self.output);
        } else {
            self.output.extend(self.input.drain(..count));
        }
        count
    }

    /// Sends bytes before all input; returns whether there is room.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> bool {
        let fits = self.output.len() + bytes.len() <= self.limit;
        if fits {
            self.output.extend_from_slice(bytes);
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Payload {
        Payload { input: text.into(), ..Payload::new(10) }
    }

    #[test]
    fn offsets_count_from_both_ends_and_stay_within_the_input() {
        let payload = of("abcdef");
        for (offset, length, expected) in [
            (0, None, Some(0..6)),
            (2, Some(3), Some(2..5)),
            (-2, None, Some(4..6)),
            (-20, Some(1), Some(0..1)),
            (6, None, Some(6..6)),
            (7, None, None),
            (4, Some(9), Some(4..6)),
        ] {
            assert_eq!(payload.part(offset, length), expected, "{offset} {length:?}");
        }
    }

    #[test]
    fn insertions_must_fit_and_output_keeps_its_order() {
        let mut payload = of("abcdef");
        assert_eq!(payload.insert(b"12345", 0), Some(false));
        assert_eq!(payload.insert(b"12", -1), Some(true));
        assert_eq!(payload.input, b"abcde12f");
        assert!(payload.splice(0..3, b"X"));
        assert!(payload.send(b"first"));
        assert_eq!(payload.forward(3), 3);
        assert_eq!((&payload.output[..], &payload.input[..]), (&b"firstXde"[..], &b"12f"[..]));
        assert!(!payload.send(b"too much"));
        assert_eq!(payload.forward(100), 3);
        assert_eq!(payload.output, b"firstXde12f");
    }
}
