//! Filters that need no more than their line (configuration manual, 9.1). Those of bandwidth are in
//! [`sample::bandwidth`].

use std::sync::Arc;

/// `filter trace`: tells on standard error what passes, and may let it pass in random portions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFilter {
    /// `name`, `TRACE` without.
    pub name: Box<str>,
    /// `random-forwarding`.
    pub random_forwarding: bool,
    /// `max-fwd`: the most that passes at a time, 0 for no limit.
    pub max_forward: usize,
    /// `quiet`: nothing is told.
    pub quiet: bool,
    /// `hexdump`: the bytes are told too.
    pub hexdump: bool,
    /// Whether it sees requests (`filter-sequence`).
    pub on_request: bool,
    /// Whether it sees responses.
    pub on_response: bool,
}

/// The filters of scripts of a proxy (`filter lua.…`), and who of them sees which direction.
#[derive(Debug)]
pub struct ScriptFilters {
    /// The filters, in the order of their lines.
    pub declared: Vec<Arc<lua::FilterDeclared>>,
    /// Those that see requests, by their places, in their order (`filter-sequence`).
    pub request: Vec<usize>,
    /// Those that see responses.
    pub response: Vec<usize>,
}
