//! How completely a keyword is supported, as declared in its table row.
//!
//! The tables of sections, parameters, actions, fetches, converters and commands use this type. `docs/compatibility.md` is
//! generated from it.

/// How completely a keyword is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Everything described in HAProxy's manual.
    Full,
    /// Partial support. The text describes the missing part and the reason.
    Partial(&'static str),
    /// No support: the keyword is refused, or has no effect and causes a warning. The text gives the reason.
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
