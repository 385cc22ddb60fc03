//! The order of filters in a direction (configuration manual, `filter` and `filter-sequence`).

use std::ops::Bound;

/// The position of a filter in a direction. The frontend's filters come before the backend's. Those of one proxy are in the order
/// that it configures (`filter`, `filter-sequence`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rank {
    /// Whether the filter belongs to a backend other than the frontend.
    pub(crate) of_backend: bool,
    /// The index of the filter in its proxy.
    pub(crate) place: u16,
}

/// A range of the filters of a direction.
pub(crate) type Stretch = (Bound<Rank>, Bound<Rank>);

/// The whole range.
pub(crate) const EVERYWHERE: Stretch = (Bound::Unbounded, Bound::Unbounded);
