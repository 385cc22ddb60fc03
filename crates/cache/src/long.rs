//! A response that is sent out of its file, as memory does not hold it whole: block by block, each
//! read by a thread that may wait for the disk while the one before is being sent.

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
    /// A response of so many bytes.
    pub(crate) fn new(described: Described, length: u64, source: Box<dyn Fetches>) -> Arc<Self> {
        let Described { head, times, .. } = described;
        Arc::new(Self { head, times, length, source })
    }

    /// Whether it may be used by all who ask.
    pub(crate) fn is_fresh(&self, now_ms: u64) -> bool {
        now_ms < self.times.expires_ms
    }
}

/// One reader of it.
#[derive(Debug)]
pub struct FileFeed {
    long: Arc<Long>,
    /// The next byte that is wanted, and the one behind the last.
    at: u64,
    until: u64,
    /// The block that is being read, and which one it is.
    next: Option<(u64, Arc<Fetch>)>,
}

impl FileFeed {
    pub(crate) fn new(long: Arc<Long>) -> Self {
        let until = long.length;
        Self { long, at: 0, until, next: None }
    }

    /// What is sent of its head, its length with it.
    pub fn head(&self) -> &Head {
        &self.long.head
    }

    /// Bytes of the body.
    pub fn length(&self) -> u64 {
        self.long.length
    }

    /// What `If-Modified-Since` is compared with, in seconds since 1970.
    pub fn modified(&self) -> i64 {
        self.long.times.modified
    }

    /// How old it is, in seconds (RFC 9111, 4.2.3).
    pub fn age(&self, now_ms: u64) -> u64 {
        u64::from(self.long.times.age) + now_ms.saturating_sub(self.long.times.stored_ms) / 1000
    }

    /// Leaves this part of it.
    pub fn narrow(&mut self, part: Range<u64>) {
        (self.at, self.until) = (part.start, part.end.min(self.long.length));
    }

    /// Ready once the next bytes are there, or nothing will come.
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
            // While this one is being sent.
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
