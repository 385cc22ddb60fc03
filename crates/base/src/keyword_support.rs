//! How much of a keyword works: what each row of a keyword table says of itself.
//!
//! The tables of sections, parameters, actions, fetches, converters and commands have it in their
//! rows; `docs/compatibility.md` is made of it.

/// How much of a keyword works.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// All that HAProxy's manual says of it.
    Full,
    /// Some of it; what does not, and why.
    Partial(&'static str),
    /// It has no effect, with a warning, or is refused; and why.
    None(&'static str),
}

impl Support {
    /// Why it is not all there; empty where it is.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Full => "",
            Self::Partial(reason) | Self::None(reason) => reason,
        }
    }
}
