//! Messages, which describe an event to an agent (SPOE, 3.2.6 and 3.3).

use std::ops::Range;

use base::varint;

use crate::data::{Data, write_text};

/// The messages of one query, in order.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    /// The position of the last message's argument count.
    count_at: usize,
    /// The positions of the values that may be shortened.
    parts: Vec<Range<usize>>,
}

/// The maximum size of the fields before the messages in a frame: type, flags, stream id and frame id.
const HEAD: usize = 16;

/// The maximum number of arguments of a message: the count is one byte.
pub(crate) const MOST_ARGUMENTS: usize = 255;

impl Messages {
    /// Begins a message.
    pub fn begin(&mut self, name: &str) {
        write_text(&mut self.bytes, name.as_bytes());
        self.count_at = self.bytes.len();
        self.bytes.push(0);
    }

    /// Adds an argument to the last message; returns false if the message is full.
    pub fn argument(&mut self, name: &str, value: Data<'_>) -> bool {
        let Some(count) = self.bytes.get_mut(self.count_at) else { return false };
        if usize::from(*count) == MOST_ARGUMENTS {
            return false;
        }
        *count += 1;
        write_text(&mut self.bytes, name.as_bytes());
        value.write(&mut self.bytes);
        true
    }

    /// Adds a string or bytes as an argument that [`fit`](Self::fit) may shorten.
    pub fn part(&mut self, name: &str, value: Data<'_>) -> bool {
        let is_added = self.argument(name, value);
        if is_added && let Data::Str(bytes) | Data::Bin(bytes) = value {
            let mut head = Vec::with_capacity(HEAD);
            varint::write(&mut head, bytes.len() as u64);
            let end = self.bytes.len();
            self.parts.push(end - bytes.len() - head.len() - 1..end);
        }
        is_added
    }

    /// Shortens these values, the last one first, until the messages fit in a frame of that size, as far as possible.
    pub fn fit(&mut self, frame_size: u32) {
        let most = (frame_size as usize).saturating_sub(HEAD);
        while self.bytes.len() > most {
            let Some(range) = self.parts.pop() else { return };
            let excess = self.bytes.len() - most;
            let kept = |bytes: &[u8]| bytes.len().saturating_sub(excess);
            let mut short = Vec::with_capacity(range.len());
            match Data::read(&mut &self.bytes[range.clone()]) {
                Some(Data::Str(bytes)) => Data::Str(&bytes[..kept(bytes)]).write(&mut short),
                Some(Data::Bin(bytes)) => Data::Bin(&bytes[..kept(bytes)]).write(&mut short),
                _ => return,
            }
            self.bytes.splice(range, short);
        }
    }

    /// Returns whether no message was added.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the payload.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Removes all messages; the memory is kept.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.parts.clear();
        self.count_at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_shortened_until_the_messages_fit() {
        let body = [b'x'; 3000];
        let made = |size: u32| {
            let mut messages = Messages::default();
            messages.begin("m");
            assert!(messages.part("one", Data::Bin(&body)) && messages.part("two", Data::Bin(&body)));
            assert!(messages.part("no", Data::Null) && messages.argument("path", Data::Str(b"/")));
            messages.fit(size);
            messages.bytes().to_vec()
        };
        let whole = made(u32::MAX);
        for size in [16_380, 6_100, 6_000, 4_000, 3_100, 1_000, 256] {
            let bytes = made(size);
            assert!(bytes.len() <= size as usize - HEAD || size as usize > whole.len(), "{size}");
            assert!(
                bytes.len() + HEAD + 4 >= whole.len().min(size as usize),
                "no shorter than it must: {size}"
            );
            let mut rest = &bytes[3..];
            let mut values = Vec::new();
            while !rest.is_empty() {
                let name = crate::data::read_text(&mut rest).expect("a name");
                values.push((name, Data::read(&mut rest).expect("a value")));
            }
            assert_eq!(values[2..], [(&b"no"[..], Data::Null), (&b"path"[..], Data::Str(b"/"))], "{size}");
        }
        let mut messages = Messages::default();
        messages.begin("m");
        messages.argument("path", Data::Str(&body));
        messages.fit(256);
        assert!(messages.bytes().len() > 3000, "other values are not shortened");
    }

    #[test]
    fn argument_count_is_written() {
        let mut messages = Messages::default();
        assert!(!messages.argument("a", Data::Null), "there is no message yet");
        messages.begin("m");
        assert!(messages.argument("", Data::Bool(true)) && messages.argument("n", Data::Int(1)));
        messages.begin("none");
        assert_eq!(messages.bytes(), b"\x01m\x02\x00\x11\x01n\x04\x01\x04none\x00");
        for _ in 0..MOST_ARGUMENTS {
            assert!(messages.argument("", Data::Null));
        }
        assert!(!messages.argument("", Data::Null), "one more has no place");
    }
}
