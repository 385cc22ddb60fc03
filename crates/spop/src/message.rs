//! Messages: what an agent is told at one event (SPOE, 3.2.6 and 3.3).

use crate::data::{Data, write_text};

/// The messages of one question, in order.
#[derive(Debug, Default)]
pub struct Messages {
    bytes: Vec<u8>,
    /// Where the number of arguments of the last message stands.
    count_at: usize,
}

/// The most arguments of a message: their number is one byte.
pub(crate) const MOST_ARGUMENTS: usize = 255;

impl Messages {
    /// Begins a message.
    pub fn begin(&mut self, name: &str) {
        write_text(&mut self.bytes, name.as_bytes());
        self.count_at = self.bytes.len();
        self.bytes.push(0);
    }

    /// Adds an argument to the last message; says whether there was a place for it.
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

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The payload.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Takes all of them away; the memory stays.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.count_at = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_their_arguments_counted() {
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
