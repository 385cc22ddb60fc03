//! The events of `receive`.

use std::ops::Range;

use http::ErrorKind;

use crate::StreamKey;

/// An event from the application.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// The head of a response, in [`crate::Connection::head_mut`].
    Head {
        /// The stream.
        key: StreamKey,
    },
    /// A part of a body. The caller must [`crate::Connection::consume`] the same number of bytes later.
    Data {
        /// The stream.
        key: StreamKey,
        /// The position of the bytes in the input.
        range: Range<usize>,
    },
    /// The end of the response. Trailers, if there are any, are in [`crate::Connection::head_mut`].
    End {
        /// The stream.
        key: StreamKey,
        /// Whether there are trailers.
        trailers: bool,
    },
    /// The response failed, or was cut short.
    Broken {
        /// The stream.
        key: StreamKey,
        /// The reason.
        how: Broken,
    },
    /// A message from the application, in [`crate::Connection::message`].
    Message,
}

/// Why a response is incomplete or missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Broken {
    /// The response ended too early.
    Cut,
    /// The output is not a valid response.
    Malformed(ErrorKind),
    /// The application refused the request because it has too many requests.
    Refused,
}
