//! Where filters stand in a direction (configuration manual, `filter` and `filter-sequence`).

use std::ops::Bound;

/// Where a filter stands in a direction: those of the frontend come before those of the backend, and
/// each has its place among those of its proxy (`filter`, `filter-sequence`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Whether it is one of a backend that is not the frontend.
    pub(crate) of_backend: bool,
    /// Its place in its proxy.
    pub(crate) place: u16,
}

/// A stretch of the filters of a direction.
pub(crate) type Stretch = (Bound<Rank>, Bound<Rank>);

/// All of them.
pub(crate) const EVERYWHERE: Stretch = (Bound::Unbounded, Bound::Unbounded);
