//! The order of filters in a direction (configuration manual, `filter` and `filter-sequence`).

use std::ops::Bound;

/// The position of a filter in a direction: the frontend's filters come before the backend's, each in the order of its proxy
/// (`filter`, `filter-sequence`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Whether it belongs to a backend other than the frontend.
    pub(crate) of_backend: bool,
    /// Its index in its proxy.
    pub(crate) place: u16,
}

/// A range of the filters of a direction.
pub(crate) type Stretch = (Bound<Rank>, Bound<Rank>);

/// The whole range.
pub(crate) const EVERYWHERE: Stretch = (Bound::Unbounded, Bound::Unbounded);
