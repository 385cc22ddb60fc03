//! Single statistics by name: the crate `statistics` provides them, scripts read them.

/// Whose they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose<'a> {
    /// A frontend's.
    Frontend(&'a str),
    /// A backend's.
    Backend(&'a str),
    /// Those of a frontend's listener.
    Listener(&'a str, &'a str),
    /// Those of a backend's server.
    Server(&'a str, &'a str),
    /// The process's.
    Process,
}

/// A value.
#[derive(Debug, Clone, PartialEq)]
pub enum Statistic {
    /// A count, a level or a time.
    Integer(i64),
    /// A number that need not be whole.
    Number(f64),
    /// A text.
    Text(String),
}
