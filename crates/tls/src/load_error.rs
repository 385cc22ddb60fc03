//! Why a file of a configuration cannot be used.

use std::fmt;

/// Why loading failed: the file, the line if known, and the cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadError {
    /// The file, or its name in the configuration.
    pub file: Box<str>,
    /// The line, from 1; 0 if unknown.
    pub line: usize,
    /// The cause with file and line, as shown to the user.
    pub cause: Box<str>,
}

impl LoadError {
    /// Creates an error about a whole file.
    pub fn new(file: &str, cause: impl Into<Box<str>>) -> Self {
        Self { file: file.into(), line: 0, cause: cause.into() }
    }

    /// Creates an error at one line.
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
