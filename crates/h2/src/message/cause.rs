//! Why a message is refused.

use crate::Code;

/// What a block that is refused means for the stream or the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The connection ends: the header tables of both sides are no longer the same.
    Connection(Code),
    /// The stream alone is reset. The block was decoded to its end.
    Stream(Code, Cause),
}

/// What is wrong with a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Filled in with the code that finds it.
    Malformed,
}

impl Cause {
    /// A few words for logs and `show errors`.
    #[must_use]
    pub fn text(self) -> &'static str {
        "malformed message"
    }
}
