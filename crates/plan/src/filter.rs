//! Filters that are configured by a single line (configuration manual, 9.1). Bandwidth limits are in [`sample::bandwidth`].

use std::sync::Arc;

/// `filter trace`: logs the traffic on standard error, and may delay it in random portions.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFilter {
    /// `name`; `TRACE` by default.
    pub name: Box<str>,
    /// `random-forwarding`.
    pub random_forwarding: bool,
    /// `max-fwd`: maximum number of bytes forwarded at once, 0 for no limit.
    pub max_forward: usize,
    /// `quiet`: no output.
    pub quiet: bool,
    /// `hexdump`: also dumps the bytes.
    pub hexdump: bool,
    /// The position of the filter.
    pub places: FilterPlaces,
}

/// The script filters of a proxy (`filter lua.…`), in configuration order, and their positions.
#[derive(Debug)]
pub struct ScriptFilters(pub Vec<(Arc<lua::FilterDeclared>, FilterPlaces)>);

/// The position of a filter among those of its proxy, for each direction: by configuration order, or by `filter-sequence`. `None`
/// if a sequence omits the filter, which then does not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct FilterPlaces {
    /// For requests.
    pub request: Option<u16>,
    /// For responses.
    pub response: Option<u16>,
}

impl FilterPlaces {
    /// Returns the position in one direction.
    pub fn of(self, of_response: bool) -> Option<u16> {
        if of_response { self.response } else { self.request }
    }
}

/// The positions of a proxy's caches among its filters (`filter cache`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct CachePlaces {
    /// The caches with a filter line, and their positions for responses.
    pub named: Vec<(Box<str>, Option<u16>)>,
    /// The position of other caches; `None` if `filter-sequence` omits them.
    pub others: Option<u16>,
}

impl CachePlaces {
    /// Returns the position of the cache with that name; `None` if the cache stores nothing for this proxy.
    pub fn of(&self, name: &str) -> Option<u16> {
        self.named.iter().find(|(own, _)| **own == *name).map_or(self.others, |(_, place)| *place)
    }
}
