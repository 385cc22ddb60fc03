//! Comparison operators for filtering entries by stored values (management guide, `show table`; `StickTable.dump` of scripts).

/// An operator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operator {
    /// `eq`
    Equal,
    /// `ne`
    Other,
    /// `le`
    AtMost,
    /// `ge`
    AtLeast,
    /// `lt`
    Below,
    /// `gt`
    Above,
}

impl Operator {
    /// Returns the operator with that name.
    pub fn named(name: &str) -> Option<Self> {
        Some(match name {
            "eq" => Self::Equal,
            "ne" => Self::Other,
            "le" => Self::AtMost,
            "ge" => Self::AtLeast,
            "lt" => Self::Below,
            "gt" => Self::Above,
            _ => return None,
        })
    }

    /// Whether the comparison of `value` and `other` is true.
    pub fn holds(self, value: i64, other: i64) -> bool {
        match self {
            Self::Equal => value == other,
            Self::Other => value != other,
            Self::AtMost => value <= other,
            Self::AtLeast => value >= other,
            Self::Below => value < other,
            Self::Above => value > other,
        }
    }
}
