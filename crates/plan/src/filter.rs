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
    /// Where it stands.
    pub places: FilterPlaces,
}

/// The filters of scripts of a proxy (`filter lua.…`), in the order of their lines, and where they
/// stand.
#[derive(Debug)]
pub struct ScriptFilters(pub Vec<(Arc<lua::FilterDeclared>, FilterPlaces)>);

/// Where a filter stands among those of its proxy, in each direction: the order of the lines, or what
/// `filter-sequence` says. `None` where a sequence leaves it out: it does not run there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilterPlaces {
    /// Among those that requests pass.
    pub request: Option<u16>,
    /// Among those that responses pass.
    pub response: Option<u16>,
}

impl FilterPlaces {
    /// Its place in one direction.
    pub fn of(self, of_response: bool) -> Option<u16> {
        if of_response { self.response } else { self.request }
    }
}

/// Where the caches of a proxy keep responses (`filter cache`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CachePlaces {
    /// Those that lines name, and where among the filters of responses they stand.
    pub named: Vec<(Box<str>, Option<u16>)>,
    /// Where others stand; `None` where `filter-sequence` leaves them out.
    pub others: Option<u16>,
}

impl CachePlaces {
    /// Where the cache of that name stands; `None` where it keeps nothing of this proxy.
    pub fn of(&self, name: &str) -> Option<u16> {
        self.named.iter().find(|(own, _)| **own == *name).map_or(self.others, |(_, place)| *place)
    }
}
