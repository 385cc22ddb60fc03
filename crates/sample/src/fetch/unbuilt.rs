//! Names that HAProxy knows and that are not built here: using one is an error that says what it
//! needs.

pub(super) const NAMES: &[&str] = &["spoe.engine-id"];

/// What each needs, by how its name begins; the first that fits counts.
const NEEDS: &[(&str, &str)] = &[("spoe.", "expressions about the connections to agents")];

/// What the name needs.
pub(super) fn needs(name: &str) -> &'static str {
    NEEDS.iter().find(|(start, _)| name.starts_with(start)).map_or("what is not built", |(_, needs)| needs)
}
