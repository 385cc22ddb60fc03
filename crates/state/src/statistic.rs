//! Individual statistics by name. The crate `statistics` provides them, and scripts read them.

/// The owner of a statistic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StatisticOwner<'a> {
    /// A frontend.
    Frontend(&'a str),
    /// A backend.
    Backend(&'a str),
    /// A frontend's listener.
    Listener(&'a str, &'a str),
    /// A backend's server.
    Server(&'a str, &'a str),
    /// The process.
    Process,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Statistic {
    /// A count, a level or a time.
    Integer(i64),
    /// A number that may be fractional.
    Number(f64),
    /// A text.
    Text(String),
}
