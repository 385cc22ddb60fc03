//! How completely a keyword is supported, as declared in its table row.
//!
//! The tables of sections, parameters, actions, fetches, converters and commands contain it in their rows; `docs/compatibility.md`
//! is generated from it.

/// How completely a keyword is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Everything described in HAProxy's manual.
    Full,
    /// Partly; the text describes the missing part and the reason.
    Partial(&'static str),
    /// No effect, with a warning, or refused; with the reason.
    None(&'static str),
}

impl Support {
    /// The reason for incomplete support; empty if it is complete.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Full => "",
            Self::Partial(reason) | Self::None(reason) => reason,
        }
    }
}
