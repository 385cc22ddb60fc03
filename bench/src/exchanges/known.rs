//! Differences that are meant. Each is as narrow as what is known of it, with the sentence of `docs/differences.md`.

use crate::case::Case;
use crate::compare::Difference;

/// A reason for outcomes to differ.
struct Known {
    why: &'static str,
    is_so: fn(&Case, &[Difference]) -> bool,
}

const KNOWN: &[Known] = &[];

/// Why these differences are, if all of them have one known reason.
pub(crate) fn reason(case: &Case, differences: &[Difference]) -> Option<&'static str> {
    KNOWN.iter().find(|known| (known.is_so)(case, differences)).map(|known| known.why)
}
