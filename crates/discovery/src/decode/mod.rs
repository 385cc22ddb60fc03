//! Decoders: from the documents of a source to lists of instances. None of them does I/O.
//!
//! A document that is malformed, truncated or too large is refused as a whole, so it changes nothing.

pub mod consul;
pub mod containers;
pub mod etcd;
pub mod kubernetes;
pub mod nomad;
pub mod saved;
pub mod targets;

use std::fmt;
use std::net::{IpAddr, SocketAddr};

use serde_json::{Map, Value};
use state::discovery::Instance;

/// The largest document that is read, in bytes.
pub const LARGEST_DOCUMENT: usize = 16 << 20;

/// The largest number of instances in a list.
pub const MOST_INSTANCES: usize = 100_000;

/// The largest number of objects in a document. An object takes hundreds of bytes in memory, even if it has only a few in the document.
const MOST_OBJECTS: usize = 4 * MOST_INSTANCES;

/// The longest name of an instance, label or zone, in bytes.
pub const LONGEST_NAME: usize = 253;

/// The largest number of labels of an instance.
pub const MOST_LABELS: usize = 64;

/// Why a document was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DocumentError {
    /// Where in the document; empty for all of it.
    pub place: String,
    /// The reason.
    pub cause: String,
}

impl DocumentError {
    /// Creates an error about a place.
    pub fn new(place: impl Into<String>, cause: impl Into<String>) -> Self {
        Self { place: place.into(), cause: cause.into() }
    }

    /// Returns the error with a place before its own.
    #[must_use]
    pub fn within(self, outer: impl fmt::Display) -> Self {
        let place =
            if self.place.is_empty() { outer.to_string() } else { format!("{outer}, {}", self.place) };
        Self { place, ..self }
    }
}

impl fmt::Display for DocumentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.place.is_empty() {
            write!(f, "{}: ", self.place)?;
        }
        f.write_str(&self.cause)
    }
}

impl std::error::Error for DocumentError {}

/// The result of a decoder.
pub type Decoded<T> = Result<T, DocumentError>;

/// Parses a document as JSON.
///
/// # Errors
/// It is too large, or it is not JSON.
pub(crate) fn json(bytes: &[u8]) -> Decoded<Value> {
    if bytes.len() > LARGEST_DOCUMENT {
        return Err(DocumentError::new("", format!("the document has more than {LARGEST_DOCUMENT} bytes")));
    }
    // Braces in strings count too; no source has that many.
    if bytes.iter().filter(|byte| **byte == b'{').count() > MOST_OBJECTS {
        return Err(DocumentError::new("", format!("the document has more than {MOST_OBJECTS} objects")));
    }
    serde_json::from_slice(bytes).map_err(|error| {
        let (place, text) = (format!("line {}, column {}", error.line(), error.column()), error.to_string());
        // The text ends with the place.
        let cause = text.rsplit_once(" at line ").map_or(&*text, |(cause, _)| cause);
        DocumentError::new(place, cause)
    })
}

/// The members of an object.
pub(crate) fn object<'a>(value: &'a Value, what: &str) -> Decoded<&'a Map<String, Value>> {
    value.as_object().ok_or_else(|| DocumentError::new("", format!("{what} is not an object")))
}

/// The elements of an array; none if the value is missing or `null`.
pub(crate) fn array<'a>(value: Option<&'a Value>, what: &str) -> Decoded<&'a [Value]> {
    match value {
        None | Some(Value::Null) => Ok(&[]),
        Some(Value::Array(elements)) => Ok(elements),
        Some(_) => Err(DocumentError::new("", format!("`{what}` is not an array"))),
    }
}

/// A text that is used as a name: bounded, and without control characters.
pub(crate) fn name<'a>(text: &'a str, what: &str) -> Decoded<&'a str> {
    if text.len() > LONGEST_NAME {
        return Err(DocumentError::new("", format!("{what} has more than {LONGEST_NAME} bytes")));
    }
    if text.chars().any(char::is_control) {
        return Err(DocumentError::new("", format!("{what} contains a control character")));
    }
    Ok(text)
}

/// An address with a port.
pub(crate) fn socket(text: &str) -> Decoded<(IpAddr, u16)> {
    let wrong = || DocumentError::new("", format!("`{}` is not an IP address with a port", shortened(text)));
    let address: SocketAddr = text.parse().map_err(|_| wrong())?;
    if address.port() == 0 || address.ip().is_unspecified() {
        return Err(wrong());
    }
    Ok((address.ip(), address.port()))
}

/// An address and a port that are separate.
pub(crate) fn socket_of(address: Option<&str>, port: Option<&Value>) -> Decoded<(IpAddr, u16)> {
    let text = address.ok_or_else(|| DocumentError::new("", "there is no address"))?;
    let address: Option<IpAddr> = text.parse().ok();
    let address = address.filter(|address| !address.is_unspecified());
    let address = address
        .ok_or_else(|| DocumentError::new("", format!("`{}` is not an IP address", shortened(text))))?;
    let port =
        port.and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    Ok((address, port.ok_or_else(|| DocumentError::new("", "the port is not between 1 and 65535"))?))
}

/// The beginning of a text, for messages.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().filter(|own| !own.is_control()).take(60).collect()
}

/// Checks the bounds of a list, and sorts it, so that the order of a source does not matter.
pub(crate) fn list(mut instances: Vec<Instance>) -> Decoded<Vec<Instance>> {
    if instances.len() > MOST_INSTANCES {
        return Err(DocumentError::new("", format!("the list has more than {MOST_INSTANCES} instances")));
    }
    instances
        .sort_by(|one, other| (&one.id, one.address, one.port).cmp(&(&other.id, other.address, other.port)));
    instances
        .dedup_by(|one, other| (&one.id, one.address, one.port) == (&other.id, other.address, other.port));
    Ok(instances)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_would_take_much_memory_are_refused() {
        let many = |count: usize| format!("[{}]", vec![r#"{"":0}"#; count].join(","));
        assert!(json(many(MOST_OBJECTS).as_bytes()).is_ok());
        let error = json(many(MOST_OBJECTS + 1).as_bytes()).map_err(|error| error.to_string());
        assert_eq!(error, Err("the document has more than 400000 objects".to_owned()));
        assert!(json("[".repeat(10_000).as_bytes()).is_err(), "the depth is limited");
    }
}
