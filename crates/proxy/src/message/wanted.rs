//! How much of the body of a request (`upload`) or a response (`inspect`) `evaluate` waits for.

/// How much of a body to wait for.
#[derive(Clone, Copy)]
pub(crate) struct BodyWait {
    /// The number of bytes to wait for. A shorter body suffices if it is complete.
    pub(crate) bytes: usize,
    /// The size of the larger buffer for bodies that exceed the usual one, or 0 if there is only the usual one.
    pub(crate) large: usize,
}

impl BodyWait {
    /// As many bytes as fit in a usual buffer.
    pub(crate) const ALL: Self = Self { bytes: usize::MAX, large: 0 };
}
