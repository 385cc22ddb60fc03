//! Why a file of a configuration cannot be used.

use std::fmt;

/// Why something could not be loaded: which file, perhaps which line, and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The file, or how the configuration calls it.
    pub file: Box<str>,
    /// Counted from 1; 0 where the fault has no line.
    pub line: usize,
    /// What is wrong, with file and line: what a user is told.
    pub cause: Box<str>,
}

impl LoadError {
    /// A fault of the whole file.
    pub fn new(file: &str, cause: impl Into<Box<str>>) -> Self {
        Self { file: file.into(), line: 0, cause: cause.into() }
    }

    /// A fault at one line.
    pub fn at(file: &str, line: usize, cause: impl Into<Box<str>>) -> Self {
        Self { file: file.into(), line, cause: cause.into() }
    }
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.cause)
    }
}

impl std::error::Error for LoadError {}
