//! The outcome of a test: of one ACL line as bits, and of a whole condition.

/// Results of a test. AND and OR of results are the bitwise operations.
pub(crate) const FAIL: u8 = 0;
/// Not decided: further bytes may change the result.
pub(crate) const MISS: u8 = 1;
/// Matched.
pub(crate) const PASS: u8 = 3;

/// The result of a condition.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Test {
    /// The condition does not hold.
    No,
    /// Not decided until more bytes arrive.
    Wait,
    /// The condition is true.
    Yes,
}
