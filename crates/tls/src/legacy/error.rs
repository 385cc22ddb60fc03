//! OpenSSL's errors, which are told by the same numbers and texts here as rustls's.

use openssl::error::ErrorStack;

use crate::error::{Error, LIBRARY_SSL, Reason};

/// What HAProxy would log of it.
pub(super) fn of(error: &openssl::ssl::Error) -> Error {
    error.ssl_error().map_or(Error::handshake(Reason::InternalError), of_stack)
}

/// The first reason that its part for TLS gave.
pub(super) fn of_stack(stack: &ErrorStack) -> Error {
    let own = stack.errors().iter().filter(|error| error.library_code() == LIBRARY_SSL as i32);
    let mut reasons = own.filter_map(|error| Reason::of_number(error.reason_code().cast_unsigned()));
    Error::handshake(reasons.next().unwrap_or(Reason::InternalError))
}

/// What it says against a line's settings.
pub(super) fn text(stack: &ErrorStack) -> String {
    let reason = stack.errors().iter().find_map(|error| error.reason());
    format!("OpenSSL: {}", reason.unwrap_or("it says no reason"))
}
