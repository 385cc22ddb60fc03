//! Buffers borrowed from the worker's pool while bytes are in flight.
//!
//! The memory of a buffer is zeroed once when it is allocated, and then reused without clearing, so passing it to the kernel costs
//! nothing and needs no `unsafe`. There are two sizes: `tune.bufsize` for heads, and a larger one for bodies.

use std::cell::{Cell, RefCell};

/// The size of a body buffer: large enough for efficient system calls, small enough to stay in the second-level cache together with
/// the buffer of the other direction.
pub const LARGE: usize = 64 * 1024;

/// The number of free buffers of each size kept per worker.
const KEEP: usize = 256;

/// The number of large buffers per worker that may be in use before bodies get small ones. This keeps the memory for many slow
/// receivers in proportion to `tune.bufsize`; the few fast receivers are not affected.
const LARGE_IN_USE: isize = 8;

/// Additional large buffers for reads of multiplexed connections. Such a read holds its buffer for one turn only, so it should not
/// fail because streams hold buffers.
const LARGE_FOR_FRAMES: isize = 4;

/// One pool of one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pool {
    /// The name of the pool.
    pub name: &'static str,
    /// The size of an item in bytes.
    pub size: usize,
    /// The number of items.
    pub allocated: usize,
    /// The number of free items.
    pub free: usize,
}

thread_local! {
    static SMALL_SIZE: Cell<usize> = const { Cell::new(16 * 1024) };
    static SMALL_FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    static LARGE_FREE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    /// The buffers of each size allocated by this worker minus those freed by it. A buffer that another worker drops is subtracted
    /// there, so only the sum over all workers is meaningful.
    static MADE: Cell<[isize; 2]> = const { Cell::new([0; 2]) };
}

/// Counts allocations and frees of one size.
fn count(large: bool, by: isize) {
    // `try_with`, because a buffer may be dropped while the thread exits.
    let _ = MADE.try_with(|made| {
        let mut counts = made.get();
        counts[usize::from(large)] += by;
        made.set(counts);
    });
}

/// Ends the calling task and its connection while memory is short. Buffers take most of the memory of a connection; the remaining
/// memory is needed for other allocations. The task unwinds without a report, because this is not a bug.
#[inline]
fn refuse_in_shortage() {
    #[cold]
    fn refuse() -> ! {
        std::panic::resume_unwind(Box::new(OutOfMemory))
    }
    if base::memory::is_short() {
        refuse();
    }
}

/// The panic payload of a task that was refused a buffer.
#[derive(Debug)]
pub struct OutOfMemory;

/// The two pools of the calling worker.
pub(crate) fn pools() -> [Pool; 2] {
    let made = MADE.get();
    let of = |name, size, made, free: &'static std::thread::LocalKey<RefCell<Vec<Box<[u8]>>>>| {
        let free = free.with_borrow(Vec::len);
        Pool { name, size, allocated: isize::max(made, free as isize) as usize, free }
    };
    [of("buffer", SMALL_SIZE.get(), made[0], &SMALL_FREE), of("large_buffer", LARGE, made[1], &LARGE_FREE)]
}

/// The calling worker's small buffer size.
pub fn small_size() -> usize {
    SMALL_SIZE.get()
}

/// Sets the calling worker's small buffer size (`tune.bufsize`). Called once, before the first buffer is used.
pub fn set_small_size(bytes: usize) {
    flush();
    SMALL_SIZE.set(bytes);
}

/// Returns the calling worker's free buffers to the system.
pub fn flush() {
    for (large, free) in [(false, &SMALL_FREE), (true, &LARGE_FREE)] {
        let thrown_away = free.with_borrow_mut(std::mem::take).len();
        count(large, -(thrown_away as isize));
    }
}

/// A range of filled bytes in a block of memory of less than 4 GiB. The memory is returned to the pool of the thread that drops the
/// buffer.
#[derive(Debug)]
pub struct Buffer {
    data: Box<[u8]>,
    start: u32,
    end: u32,
}

impl Buffer {
    /// A buffer of `tune.bufsize` bytes.
    pub fn small() -> Self {
        let data = SMALL_FREE.with_borrow_mut(Vec::pop);
        Self::wrap(data.unwrap_or_else(|| {
            refuse_in_shortage();
            count(false, 1);
            vec![0; SMALL_SIZE.get()].into_boxed_slice()
        }))
    }

    /// A buffer of [`LARGE`] bytes.
    pub fn large() -> Self {
        let data = LARGE_FREE.with_borrow_mut(Vec::pop);
        Self::wrap(data.unwrap_or_else(|| {
            refuse_in_shortage();
            count(true, 1);
            vec![0; LARGE].into_boxed_slice()
        }))
    }

    /// A buffer for a body: [`LARGE`] bytes, or a small one if many large ones are in use.
    #[inline]
    pub fn for_body() -> Self {
        Self::large_below(LARGE_IN_USE)
    }

    /// Like [`Self::for_body`], for frames of many streams, which are parsed immediately.
    #[inline]
    pub fn for_frames() -> Self {
        Self::large_below(LARGE_IN_USE + LARGE_FOR_FRAMES)
    }

    #[inline]
    fn large_below(limit: isize) -> Self {
        let free = LARGE_FREE.with_borrow(|free| free.len() as isize);
        if MADE.get()[1] - free < limit { Self::large() } else { Self::small() }
    }

    /// A buffer of at least `bytes` bytes, taken from a pool if one of the pool sizes is large enough.
    pub fn holding(bytes: usize) -> Self {
        if bytes <= SMALL_SIZE.get() {
            Self::small()
        } else if bytes <= LARGE {
            Self::large()
        } else {
            Self::sized(bytes)
        }
    }

    /// A buffer of exactly `bytes` bytes, outside the pools.
    pub fn sized(bytes: usize) -> Self {
        // A size that equals a pool's size is counted there.
        if bytes == LARGE || bytes == SMALL_SIZE.get() {
            count(bytes == LARGE, 1);
        }
        Self::wrap(vec![0; bytes].into_boxed_slice())
    }

    /// A buffer without memory, as a placeholder for one that was moved elsewhere.
    pub fn none() -> Self {
        Self::wrap(Box::default())
    }

    fn wrap(data: Box<[u8]>) -> Self {
        Self { data, start: 0, end: 0 }
    }

    /// The filled bytes.
    #[inline]
    pub fn filled(&self) -> &[u8] {
        &self.data[self.start as usize..self.end as usize]
    }

    /// The filled bytes, for modification.
    #[inline]
    pub fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.data[self.start as usize..self.end as usize]
    }

    /// The number of filled bytes.
    #[inline]
    pub fn len(&self) -> usize {
        (self.end - self.start) as usize
    }

    /// Whether nothing is filled.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.start == self.end
    }

    /// The total size.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.data.len()
    }

    /// The free space after the filled bytes.
    #[inline]
    pub fn room(&mut self) -> &mut [u8] {
        &mut self.data[self.end as usize..]
    }

    /// The size of [`room`](Self::room).
    #[inline]
    pub fn room_len(&self) -> usize {
        self.data.len() - self.end as usize
    }

    /// Marks the first `n` bytes of the free space as filled.
    #[inline]
    pub fn fill(&mut self, n: usize) {
        debug_assert!(n <= self.room_len());
        self.end += n.min(self.room_len()) as u32;
    }

    /// Drops the first `n` filled bytes.
    #[inline]
    pub fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.len());
        self.start += n.min(self.len()) as u32;
        if self.start == self.end {
            self.start = 0;
            self.end = 0;
        }
    }

    /// Keeps only the first `n` filled bytes.
    pub fn truncate(&mut self, n: usize) {
        self.end = self.start + n.min(self.len()) as u32;
    }

    /// Removes a range of filled bytes and moves up the bytes after it.
    pub fn cut(&mut self, range: std::ops::Range<usize>) {
        let (from, to, end) = (range.start.min(self.len()), range.end.min(self.len()), self.len());
        self.filled_mut().copy_within(to..end, from);
        self.truncate(end - to.saturating_sub(from));
    }

    /// Drops all bytes.
    pub fn clear(&mut self) {
        self.start = 0;
        self.end = 0;
    }

    /// Moves the filled bytes to the front, so that all free space follows them.
    pub fn compact(&mut self) {
        if self.start > 0 {
            self.data.copy_within(self.start as usize..self.end as usize, 0);
            self.end -= self.start;
            self.start = 0;
        }
    }

    /// If the filled bytes fit into a small buffer, moves them there and returns the large one to the pool.
    pub fn shrink(&mut self) {
        let small = SMALL_SIZE.get();
        if self.capacity() > small && self.len() <= small {
            let mut less = Self::small();
            less.push(self.filled());
            *self = less;
        }
    }

    /// If the filled bytes take at most a quarter of the buffer, moves them into an allocation of about their size.
    pub fn pack(&mut self) {
        let wanted = self.len().next_multiple_of(256);
        if wanted * 4 <= self.capacity() {
            let mut less = Self::sized(wanted);
            less.push(self.filled());
            *self = less;
        }
    }

    /// Moves the bytes of a [packed](Self::pack) buffer into a small one.
    pub fn unpack(&mut self) {
        if self.capacity() < SMALL_SIZE.get() {
            let mut more = Self::small();
            more.push(self.filled());
            *self = more;
        }
    }

    /// Moves the filled bytes to the front, and returns whether there is free space.
    pub fn has_room(&mut self) -> bool {
        self.compact();
        self.room_len() > 0
    }

    /// If this buffer has less than `bytes` bytes, moves the contents into a buffer of that size and returns `true`.
    pub fn enlarge(&mut self, bytes: usize) -> bool {
        if self.capacity() >= bytes {
            return false;
        }
        let mut more = Self::sized(bytes);
        more.push(self.filled());
        *self = more;
        true
    }

    /// Appends as much of `bytes` as fits; returns the number of bytes appended.
    pub fn push(&mut self, bytes: &[u8]) -> usize {
        if self.room_len() < bytes.len() {
            self.compact();
        }
        let n = bytes.len().min(self.room_len());
        self.room()[..n].copy_from_slice(&bytes[..n]);
        self.end += n as u32;
        n
    }
}

impl AsRef<[u8]> for Buffer {
    fn as_ref(&self) -> &[u8] {
        self.filled()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let data = std::mem::take(&mut self.data);
        let size = data.len();
        // `try_with`, because a buffer may be dropped while the thread exits.
        let keep = |free: &RefCell<Vec<Box<[u8]>>>| {
            let mut free = free.borrow_mut();
            if free.len() < KEEP {
                free.push(data);
            } else {
                count(size == LARGE, -1);
            }
        };
        if size == LARGE {
            let _ = LARGE_FREE.try_with(keep);
        } else if size > 0 && SMALL_SIZE.try_with(Cell::get) == Ok(size) {
            let _ = SMALL_FREE.try_with(keep);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pushed_bytes_are_read_back_and_room_returns() {
        let mut buffer = Buffer::sized(8);
        assert_eq!(buffer.push(b"abcdef"), 6);
        buffer.consume(4);
        assert_eq!(buffer.push(b"ghijklm"), 6);
        assert_eq!(buffer.filled(), b"efghijkl");
        buffer.consume(8);
        assert_eq!(buffer.room_len(), 8);
    }

    #[test]
    fn bodies_get_small_buffers_while_many_large_ones_are_in_use() {
        let mut held: Vec<Buffer> = (0..LARGE_IN_USE).map(|_| Buffer::for_body()).collect();
        assert!(held.iter().all(|buffer| buffer.capacity() == LARGE));
        assert_eq!(Buffer::for_body().capacity(), small_size());
        held.pop();
        assert_eq!(Buffer::for_body().capacity(), LARGE);
    }

    #[test]
    fn shrinking_keeps_bytes_and_full_buffers_their_size() {
        let mut buffer = Buffer::large();
        buffer.push(&vec![1; small_size() + 1]);
        buffer.shrink();
        assert_eq!(buffer.capacity(), LARGE);
        buffer.consume(1);
        buffer.shrink();
        assert_eq!((buffer.capacity(), buffer.len()), (small_size(), small_size()));
    }

    #[test]
    fn packed_buffers_are_tight_and_unpack_for_more() {
        let mut buffer = Buffer::small();
        buffer.push(b"xabc");
        buffer.consume(1);
        buffer.pack();
        assert_eq!((buffer.capacity(), buffer.filled()), (256, &b"abc"[..]));
        buffer.unpack();
        assert_eq!((buffer.capacity(), buffer.filled()), (small_size(), &b"abc"[..]));
        buffer.push(&vec![1; small_size() / 2]);
        buffer.pack();
        assert_eq!(buffer.capacity(), small_size());
    }

    #[test]
    fn cutting_keeps_the_surrounding_bytes() {
        let mut buffer = Buffer::sized(8);
        buffer.push(b"xabcdef");
        buffer.consume(1);
        buffer.cut(2..4);
        assert_eq!(buffer.filled(), b"abef");
        buffer.cut(4..9);
        assert_eq!(buffer.filled(), b"abef");
    }

    #[test]
    fn dropped_pool_buffers_are_reused() {
        let first = Buffer::small();
        let address = first.data.as_ptr();
        drop(first);
        assert_eq!(Buffer::small().data.as_ptr(), address);
    }
}
