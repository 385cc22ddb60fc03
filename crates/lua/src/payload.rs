//! What a filter sees and changes of one direction of a stream: what came in and has not been passed
//! on, and what it passes on.

/// The payload before one filter, and behind it.
#[derive(Debug, Default)]
pub struct Payload {
    /// What came in and was not passed on yet.
    pub input: Vec<u8>,
    /// What was passed on since whoever holds this took it last.
    pub output: Vec<u8>,
    /// So much may wait on either side.
    pub limit: usize,
    /// Whether nothing more comes in.
    pub is_ended: bool,
    /// Whether who looks for more than came in may wait for it, as actions of rules may.
    pub waits: bool,
    /// Whether a filter ended the message before its time: what still comes is left out.
    pub is_cut: bool,
    /// Whether a filter keeps the end of the message back: it means to say more.
    pub is_open: bool,
}

impl Payload {
    /// One that may hold so much on either side.
    pub fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Whether no more fits in.
    pub fn is_full(&self) -> bool {
        self.input.len() >= self.limit
    }

    /// Whether more may come in.
    pub fn may_receive(&self) -> bool {
        !self.is_ended && !self.is_cut
    }

    /// Whether `length` bytes from a place on, all that fits where it is below 0, or a line where that
    /// is asked for, are still to come, and may be waited for.
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

    /// A place of the input: from its end where `offset` is below 0. `None` for one behind its end.
    fn place(&self, offset: i64) -> Option<usize> {
        let length = self.input.len();
        match usize::try_from(offset) {
            Ok(place) => Some(place).filter(|place| *place <= length),
            Err(_) => Some(length.saturating_sub(offset.unsigned_abs() as usize)),
        }
    }

    /// A part of the input: `length` bytes from a place on, as far as there are so many, or all.
    pub(crate) fn part(&self, offset: i64, length: Option<usize>) -> Option<std::ops::Range<usize>> {
        let start = self.place(offset)?;
        let rest = self.input.len() - start;
        Some(start..start + length.unwrap_or(rest).min(rest))
    }

    /// Puts bytes in at a place; says whether they fit.
    pub(crate) fn insert(&mut self, bytes: &[u8], offset: i64) -> Option<bool> {
        let place = self.place(offset)?;
        Some(self.splice(place..place, bytes))
    }

    /// Puts bytes in the place of a part; says whether they fit.
    pub(crate) fn splice(&mut self, part: std::ops::Range<usize>, bytes: &[u8]) -> bool {
        let fits = self.input.len() - part.len() + bytes.len() <= self.limit;
        if fits {
            self.input.splice(part, bytes.iter().copied());
        }
        fits
    }

    /// Passes on the first `most` bytes, or as many as there are; how many those were.
    pub fn forward(&mut self, most: usize) -> usize {
        let count = most.min(self.input.len());
        if count == self.input.len() && self.output.is_empty() {
            std::mem::swap(&mut self.input, &mut self.output);
        } else {
            self.output.extend(self.input.drain(..count));
        }
        count
    }

    /// Passes bytes on before all that came in; says whether there is room.
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
    fn places_count_from_either_end_and_none_is_behind_the_end() {
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
    fn what_is_put_in_must_fit_and_what_is_passed_on_leaves_in_order() {
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
