//! A `cache` section that is still being parsed.

use syntax::Word;

/// A section that is still being parsed.
#[derive(Debug, Default)]
pub struct CacheDraft<'a> {
    /// `total-max-size`, in megabytes.
    pub megabytes: Option<u32>,
    /// The value of `max-object-size`, in bytes, and its word.
    pub max_object: Option<(u64, &'a Word)>,
    /// `max-age`, in seconds.
    pub max_age: Option<u32>,
    /// `process-vary`.
    pub vary: Option<bool>,
    /// The value of `max-secondary-entries`, and its word.
    pub max_variants: Option<(usize, &'a Word)>,
    /// The value of `early-hints`, with the ratio if one is given.
    pub hints: Option<(cache::Hints, Option<u8>)>,
    /// `stale-while-revalidate`, in seconds.
    pub stale_while_revalidate: u32,
    /// `stale-if-error`, in seconds.
    pub stale_if_error: u32,
    /// `collapsed-forwarding`, in ms.
    pub wait_ms: u64,
    /// `process-range`.
    pub ranges: bool,
    /// `revalidation`.
    pub revalidation: bool,
    /// `disk`: the directory and its size in bytes.
    pub disk: Option<(&'a Word, u64)>,
    /// `purge-tags`.
    pub tags: Option<&'a Word>,
}
