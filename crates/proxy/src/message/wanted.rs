//! How much of a body to wait for, of a request (`upload`) and of a response (`inspect`), as requested by `evaluate`.

/// How much of a body to wait for.
#[derive(Clone, Copy)]
pub(crate) struct BodyWait {
    /// The number of bytes, if the body is that long.
    pub(crate) bytes: usize,
    /// The size of a larger buffer for bodies that exceed the usual one; 0 for none.
    pub(crate) large: usize,
}

impl BodyWait {
    /// As much as fits in a usual buffer.
    pub(crate) const ALL: Self = Self { bytes: usize::MAX, large: 0 };
}
