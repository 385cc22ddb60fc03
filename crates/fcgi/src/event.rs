//! What `receive` tells.

use std::ops::Range;

use http::ErrorKind;

use crate::StreamKey;

/// What came from the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The head of a response, in [`crate::Connection::head_mut`].
    Head {
        /// The stream.
        key: StreamKey,
    },
    /// Part of a body. The caller owes a [`crate::Connection::consume`] of as many bytes.
    Data {
        /// The stream.
        key: StreamKey,
        /// Where in the input the bytes are.
        range: Range<usize>,
    },
    /// The end of the response; trailers, where there are any, in [`crate::Connection::head_mut`].
    End {
        /// The stream.
        key: StreamKey,
        /// Whether there are trailers.
        trailers: bool,
    },
    /// There will be no response, or no more of it.
    Broken {
        /// The stream.
        key: StreamKey,
        /// What is wrong.
        how: Broken,
    },
    /// A message of the application, in [`crate::Connection::message`].
    Message,
}

/// Why a response is not whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// It ended too early.
    Cut,
    /// What came is no response.
    Malformed(ErrorKind),
    /// The application has not looked at the request: it has too many.
    Refused,
}
