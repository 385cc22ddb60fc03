//! Buffers that a connection holds only while it has pending bytes. They come from a pool of the worker's thread, so an
//! established connection allocates nothing and an idle one holds no memory.

use std::cell::RefCell;

/// The number of buffers that a thread keeps for reuse.
const KEEP: usize = 32;

/// A buffer that has grown beyond this size is not kept.
const LARGEST: usize = 1 << 17;

thread_local! {
    static FREE: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// Pending bytes, read from the front.
#[derive(Debug, Default)]
pub(crate) struct PendingBytes {
    bytes: Vec<u8>,
    start: usize,
}

impl PendingBytes {
    pub(crate) fn is_empty(&self) -> bool {
        self.start == self.bytes.len()
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[self.start..]
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if self.bytes.capacity() == 0 {
            self.bytes = FREE.with_borrow_mut(Vec::pop).unwrap_or_default();
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Consumes `n` bytes at the front. The memory is released when all bytes are consumed.
    pub(crate) fn consume(&mut self, n: usize) {
        self.start = self.bytes.len().min(self.start + n);
        if self.is_empty() {
            self.release();
        }
    }

    /// Moves as many bytes as fit to the front of `room`. Returns their number.
    pub(crate) fn take(&mut self, room: &mut [u8]) -> usize {
        let n = room.len().min(self.bytes().len());
        room[..n].copy_from_slice(&self.bytes()[..n]);
        self.consume(n);
        n
    }

    fn release(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        self.start = 0;
        if bytes.capacity() == 0 || bytes.capacity() > LARGEST {
            return;
        }
        bytes.clear();
        // `try_with`, because a connection may be dropped during thread exit.
        let _ = FREE.try_with(|free| {
            let mut free = free.borrow_mut();
            if free.len() < KEEP {
                free.push(bytes);
            }
        });
    }
}

impl Drop for PendingBytes {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_emptied_buffer_is_released_and_reused() {
        let mut waiting = PendingBytes::default();
        waiting.append(b"abcdef");
        let mut room = [0; 4];
        assert_eq!((waiting.take(&mut room), &room), (4, b"abcd"));
        assert_eq!(waiting.bytes(), b"ef");
        let place = waiting.bytes().as_ptr().wrapping_sub(4);
        waiting.consume(2);
        assert!(waiting.is_empty() && waiting.bytes.capacity() == 0);
        waiting.append(b"x");
        assert_eq!(waiting.bytes().as_ptr(), place);
    }
}
