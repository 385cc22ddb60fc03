//! OpenSSL's errors, reported with the same numbers and texts as those of rustls.

use openssl::error::ErrorStack;

use crate::error::{Error, LIBRARY_SSL, Reason};

/// Returns the error that HAProxy would log.
pub(super) fn of(error: &openssl::ssl::Error) -> Error {
    error.ssl_error().map_or(Error::handshake(Reason::InternalError), of_stack)
}

/// Returns the first reason from OpenSSL's TLS library.
pub(super) fn of_stack(stack: &ErrorStack) -> Error {
    let own = stack.errors().iter().filter(|error| error.library_code() == LIBRARY_SSL as i32);
    let mut reasons = own.filter_map(|error| Reason::of_number(error.reason_code().cast_unsigned()));
    Error::handshake(reasons.next().unwrap_or(Reason::InternalError))
}

/// Returns the reason for rejecting a line's settings.
pub(super) fn text(stack: &ErrorStack) -> String {
    let reason = stack.errors().iter().find_map(|error| error.reason());
    format!("OpenSSL: {}", reason.unwrap_or("no reason given"))
}
