//! How much of the body of a request (`upload`) or a response (`inspect`) `evaluate` wants to wait for.

/// How much of a body to wait for.
#[derive(Clone, Copy)]
pub(crate) struct BodyWait {
    /// The number of bytes to wait for, if the body is that long.
    pub(crate) bytes: usize,
    /// The size of a larger buffer, for bodies that exceed the usual one; 0 for none.
    pub(crate) large: usize,
}

impl BodyWait {
    /// As much as fits in a usual buffer.
    pub(crate) const ALL: Self = Self { bytes: usize::MAX, large: 0 };
}
