//! A response too long for memory, which is sent from its file block by block: a thread that may block on the disk reads each
//! block, while the previous one is being sent.

use std::ops::Range;
use std::sync::Arc;
use std::task::{Context, Poll};

use http::Head;

use crate::blocks::{Fetch, Fetches};
use crate::file::{BLOCK, Described};
use crate::growing::Piece;
use crate::times::FreshnessTimes;

/// A response in an open file.
#[derive(Debug)]
pub struct Long {
    head: Head,
    times: FreshnessTimes,
    length: u64,
    source: Box<dyn Fetches>,
}

impl Long {
    /// Creates a response of `length` bytes.
    pub(crate) fn new(described: Described, length: u64, source: Box<dyn Fetches>) -> Arc<Self> {
        let Described { head, times, .. } = described;
        Arc::new(Self { head, times, length, source })
    }

    /// Whether the response is fresh.
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.times.expires_ms
    }
}

/// A reader of a long response.
#[derive(Debug)]
pub struct FileFeed {
    long: Arc<Long>,
    /// The requested range of bytes that is left.
    at: u64,
    until: u64,
    /// The number of the block being read, and the read.
    next: Option<(u64, Arc<Fetch>)>,
}

impl FileFeed {
    pub(crate) fn new(long: Arc<Long>) -> Self {
        let until = long.length;
        Self { long, at: 0, until, next: None }
    }

    /// Returns the head to send, including the length.
    pub fn head(&self) -> &Head {
        &self.long.head
    }

    /// Returns the size of the body.
    pub fn length(&self) -> u64 {
        self.long.length
    }

    /// Returns the date for `If-Modified-Since`, in seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.long.times.modified
    }

    /// Returns the age of the response, in seconds (RFC 9111, 4.2.3).
    pub fn age(&self, now_ms: u64) -> u64 {
        u64::from(self.long.times.age) + now_ms.saturating_sub(self.long.times.stored_ms) / 1000
    }

    /// Restricts the reader to this part.
    pub fn narrow(&mut self, part: Range<u64>) {
        (self.at, self.until) = (part.start, part.end.min(self.long.length));
    }

    /// Ready once the next bytes are available, or at the end.
    pub fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<Piece> {
        if self.at >= self.until {
            return Poll::Ready(Piece::End);
        }
        let block = self.at / BLOCK as u64;
        let fetch = match self.next.take().filter(|(next, _)| *next == block) {
            Some((_, fetch)) => fetch,
            None => self.fetch(block),
        };
        let data = match fetch.poll(context) {
            Poll::Ready(data) => data,
            Poll::Pending => {
                self.next = Some((block, fetch));
                return Poll::Pending;
            }
        };
        let within = (self.at % BLOCK as u64) as usize;
        let Some(data) = data.filter(|data| within < data.len()) else { return Poll::Ready(Piece::Cut) };
        let end = data.len().min(within + usize::try_from(self.until - self.at).unwrap_or(usize::MAX));
        self.at += (end - within) as u64;
        if self.at < self.until {
            // Read in advance, while this block is being sent.
            let following = self.at / BLOCK as u64;
            self.next = Some((following, self.fetch(following)));
        }
        Poll::Ready(Piece::Bytes(data, within..end))
    }

    fn fetch(&self, block: u64) -> Arc<Fetch> {
        let fetch = Arc::new(Fetch::default());
        self.long.source.fetch(block, &fetch);
        fetch
    }
}
