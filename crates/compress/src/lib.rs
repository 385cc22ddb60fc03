//! Content codings (RFC 9110, 8.4.1): gzip, deflate with and without the zlib wrapper, zstd and br. Input is coded as it arrives;
//! pending input can be flushed, so that readers need not wait for more.
//!
//! This crate has no I/O and no HTTP headers, and does not choose the coding: `proxy::message::compression` does. The state of an
//! [`Encoder`] is large and therefore pooled per thread (`pool`), and the total memory can be limited ([`memory_used`]).

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

/// A coding, by its name in `compression algo`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// No coding.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 1950: what HTTP calls deflate.
    Deflate,
    /// RFC 1951 without a wrapper, which is how some implementations interpret "deflate".
    RawDeflate,
    /// RFC 8878, with windows that every decoder supports (RFC 9659).
    Zstd,
    /// RFC 7932.
    Brotli,
}

impl Algorithm {
    /// All codings, by their configuration names.
    pub const ALL: [(&'static str, Self); 6] = [
        ("identity", Self::Identity),
        ("gzip", Self::Gzip),
        ("deflate", Self::Deflate),
        ("raw-deflate", Self::RawDeflate),
        ("zstd", Self::Zstd),
        ("br", Self::Brotli),
    ];

    /// The configuration name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, algorithm)| *algorithm == self).map_or("", |(name, _)| name)
    }

    /// The token in headers (`Accept-Encoding`, `Content-Encoding`).
    pub fn token(self) -> &'static str {
        match self {
            Self::RawDeflate => "deflate",
            other => other.name(),
        }
    }
}

/// How much of the input must be output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Until {
    /// As much as suits the coder is written.
    Later,
    /// Everything is written: a decoder gets all input so far.
    Flushed,
    /// Everything is written, and the body ends.
    Finished,
}
