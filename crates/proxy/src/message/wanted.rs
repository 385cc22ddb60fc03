//! How much of a body is waited for, of a request (`upload`) and of a response (`inspect`). Asked for
//! by `evaluate`.

/// How much of a body is waited for.
#[derive(Clone, Copy)]
pub(crate) struct BodyWait {
    /// So many bytes, if there are as many.
    pub(crate) bytes: usize,
    /// The bytes of the buffer that holds what a usual one does not; 0 for none.
    pub(crate) large: usize,
}

impl BodyWait {
    /// As much as a usual buffer holds.
    pub(crate) const ALL: Self = Self { bytes: usize::MAX, large: 0 };
}
