//! Values captured in the slots of a transaction's frontend.

use crate::transaction::{CaptureSlot, Transaction};
use crate::value::{Bytes, Scratch};

impl Transaction {
    /// Captures `text` in `slot`, truncated to the slot's length. Does nothing if `frontend` has no such slot.
    pub fn capture(&mut self, frontend: &state::Proxy, slot: CaptureSlot, text: &[u8]) {
        let Some(length) = slot.length(frontend) else { return };
        let kept = self.keep(&text[..text.len().min(length)]);
        self.late_captures.get_mut().retain(|(other, _)| *other != slot);
        let (captures, index) = match slot {
            CaptureSlot::Request(index) => (&mut self.request_captures, index),
            CaptureSlot::Response(index) => (&mut self.response_captures, index),
        };
        if captures.len() <= index {
            captures.resize(index + 1, None);
        }
        captures[index] = kept;
    }

    /// Captures a value for a converter, which has only shared access to the transaction. Returns whether `frontend` has such a
    /// slot.
    pub fn capture_late(&self, frontend: &state::Proxy, slot: CaptureSlot, text: &[u8]) -> bool {
        let Some(length) = slot.length(frontend) else { return false };
        if let Ok(mut late) = self.late_captures.try_borrow_mut() {
            late.push((slot, text[..text.len().min(length)].into()));
        }
        true
    }

    /// Whether a value was captured from the message of `slot`, or a capture was attempted.
    pub fn captures_any(&self, slot: CaptureSlot) -> bool {
        let same = |other: &CaptureSlot| std::mem::discriminant(other) == std::mem::discriminant(&slot);
        let late =
            self.late_captures.try_borrow().is_ok_and(|late| late.iter().any(|(other, _)| same(other)));
        late || !match slot {
            CaptureSlot::Request(_) => self.request_captures.is_empty(),
            CaptureSlot::Response(_) => self.response_captures.is_empty(),
        }
    }

    /// The value captured in `slot`.
    pub fn captured(&self, slot: CaptureSlot) -> Option<Bytes<'_>> {
        if let Ok(late) = self.late_captures.try_borrow()
            && let Some((_, text)) = late.iter().rev().find(|(other, _)| *other == slot)
        {
            return Some(Bytes::Made(Scratch::copy(text)));
        }
        let part = match slot {
            CaptureSlot::Request(index) => self.request_captures.get(index),
            CaptureSlot::Response(index) => self.response_captures.get(index),
        };
        self.kept(*part?).map(Bytes::Borrowed)
    }
}
