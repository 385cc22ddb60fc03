//! Codings of content (RFC 9110, 8.4.1): gzip, deflate with and without the zlib wrapper, zstd and
//! br. Bytes go in as they come, coded bytes come out; what went in so far can be flushed, so that
//! who waits for it need not wait for more.
//!
//! No I/O, no headers of HTTP, no choice of who gets which coding: that is `proxy::message::compression`.
//! What an [`Encoder`] works with is large, so that it goes back to the pool of its thread
//! (`pool`), and the memory of all threads can be limited ([`memory_used`]).

#![forbid(unsafe_code)]

mod brotli;
mod codes;
mod deflate;
mod pool;
mod wrapper;
mod zlib;
mod zstd;

pub use brotli::compress_brotli;
pub use pool::{CoderSettings, Encoder, memory_used};

/// A coding, as `compression algo` names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// The bytes as they are.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950: what HTTP calls deflate.
    Deflate,
    /// RFC 1951 without a wrapper: what many take "deflate" for.
    RawDeflate,
    /// RFC 8878, with windows that every decoder has room for (RFC 9659).
    Zstd,
    /// RFC 7932.
    Brotli,
}

impl Algorithm {
    /// All of them, by their names in configurations.
    pub const ALL: [(&'static str, Self); 6] = [
        ("identity", Self::Identity),
        ("gzip", Self::Gzip),
        ("deflate", Self::Deflate),
        ("raw-deflate", Self::RawDeflate),
        ("zstd", Self::Zstd),
        ("br", Self::Brotli),
    ];

    /// Its name in configurations.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, algorithm)| *algorithm == self).map_or("", |(name, _)| name)
    }

    /// Its name in messages (`Accept-Encoding`, `Content-Encoding`).
    pub fn token(self) -> &'static str {
        match self {
            Self::RawDeflate => "deflate",
            other => other.name(),
        }
    }
}

/// How far what was written goes at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// As far as it suits the coder.
    Later,
    /// All of it: a decoder gets everything that was written so far.
    Flushed,
    /// All of it, and nothing follows.
    Finished,
}
