//! Decodes a source's documents to lists of instances, without I/O.
//!
//! A document that is malformed, truncated or too large is refused as a whole, so it changes nothing. Invalid elements of a document
//! are left out and reported. Without a valid instance, such a document is refused too.

pub mod consul;
pub mod containers;
pub mod etcd;
pub mod kubernetes;
pub mod nomad;
pub mod saved;
pub mod targets;

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

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

/// The largest number of invalid elements that do not affect the rest of their document.
pub const MOST_INVALID: usize = 1000;

/// Why a document or an element of it was refused.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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
/// The document is too large, or is not JSON.
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

/// The place of an instance: an address or the name of a host, and a port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InstancePlace {
    address: IpAddr,
    host: Option<Box<str>>,
    port: u16,
}

impl InstancePlace {
    /// Returns an instance at this place, without other properties.
    pub(crate) fn instance(&self, id: &str) -> Instance {
        Instance { host: self.host.clone(), ..Instance::new(id, self.address, self.port) }
    }
}

/// An address or a host name.
fn host_of(text: &str) -> Option<(IpAddr, Option<Box<str>>)> {
    match text.parse::<IpAddr>() {
        Ok(address) => (!address.is_unspecified()).then_some((address, None)),
        Err(_) => is_host_name(text).then(|| (Ipv4Addr::UNSPECIFIED.into(), Some(text.into()))),
    }
}

/// Whether a text is a host name. The last part has a letter, which a mistyped address does not have.
fn is_host_name(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let is_label = |label: &str| !label.is_empty() && label.len() <= 63 && label.bytes().all(fits);
    let mut labels = text.strip_suffix('.').unwrap_or(text).split('.');
    text.len() <= LONGEST_NAME
        && labels.clone().all(is_label)
        && labels.next_back().is_some_and(|last| last.bytes().any(|byte| byte.is_ascii_alphabetic()))
}

/// An address or host name with a port.
pub(crate) fn socket(text: &str) -> Decoded<InstancePlace> {
    let wrong = || {
        let shown = shortened(text);
        DocumentError::new("", format!("`{shown}` is not an IP address or host name with a port"))
    };
    if let Ok(address) = text.parse::<SocketAddr>() {
        let is_usable = address.port() > 0 && !address.ip().is_unspecified();
        let place = InstancePlace { address: address.ip(), host: None, port: address.port() };
        return is_usable.then_some(place).ok_or_else(wrong);
    }
    let (host, port) = text.split_once(':').ok_or_else(wrong)?;
    let port = port.parse().ok().filter(|number| *number > 0 && port.as_bytes()[0].is_ascii_digit());
    let (address, host) = host_of(host).filter(|(_, host)| host.is_some()).ok_or_else(wrong)?;
    Ok(InstancePlace { address, host, port: port.ok_or_else(wrong)? })
}

/// An address or host name and a port that are separate.
pub(crate) fn socket_of(address: Option<&str>, port: Option<&Value>) -> Decoded<InstancePlace> {
    let text = address.ok_or_else(|| DocumentError::new("", "there is no address"))?;
    let wrong =
        || DocumentError::new("", format!("`{}` is not an IP address or a host name", shortened(text)));
    let (address, host) = host_of(text).ok_or_else(wrong)?;
    let port =
        port.and_then(Value::as_u64).and_then(|port| u16::try_from(port).ok()).filter(|port| *port > 0);
    let port = port.ok_or_else(|| DocumentError::new("", "the port is not between 1 and 65535"))?;
    Ok(InstancePlace { address, host, port })
}

/// The beginning of a text, for messages.
pub(crate) fn shortened(text: &str) -> String {
    text.chars().filter(|own| !own.is_control()).take(60).collect()
}

/// The instances of a document, without its invalid elements.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InstanceList {
    /// The instances.
    pub instances: Vec<Instance>,
    /// The errors of the invalid elements.
    pub invalid: Vec<DocumentError>,
}

impl InstanceList {
    /// Adds an instance, unless the list is full. A document may describe many instances with few bytes.
    ///
    /// # Errors
    /// The document is to be refused.
    pub(crate) fn add(&mut self, instance: Instance) -> Decoded<()> {
        if self.instances.len() >= MOST_INSTANCES {
            return Err(DocumentError::new("", format!("the list has more than {MOST_INSTANCES} instances")));
        }
        self.instances.push(instance);
        Ok(())
    }

    /// Adds the instance of the element at a place, or its error.
    ///
    /// # Errors
    /// The document is to be refused.
    pub(crate) fn take(&mut self, decoded: Decoded<Instance>, place: impl fmt::Display) -> Decoded<()> {
        match decoded {
            Ok(instance) => self.add(instance).map_err(|error| error.within(place)),
            Err(error) => reject(&mut self.invalid, error.within(place)),
        }
    }

    /// Returns the list in order.
    ///
    /// # Errors
    /// There are errors, but no instances: the list is not to be replaced by an empty one.
    pub(crate) fn finish(mut self) -> Decoded<Self> {
        if self.instances.is_empty() && !self.invalid.is_empty() {
            return Err(self.invalid.swap_remove(0));
        }
        Ok(Self { instances: list(self.instances)?, ..self })
    }
}

/// Adds the error of an invalid element.
///
/// # Errors
/// There are too many.
pub(crate) fn reject(invalid: &mut Vec<DocumentError>, error: DocumentError) -> Decoded<()> {
    if invalid.len() >= MOST_INVALID {
        let cause =
            format!("more than {MOST_INVALID} elements are invalid, the last one because {}", error.cause);
        return Err(DocumentError { cause, ..error });
    }
    invalid.push(error);
    Ok(())
}

/// Checks the bounds of a list, and sorts it, so that the order of a source does not matter.
pub(crate) fn list(mut instances: Vec<Instance>) -> Decoded<Vec<Instance>> {
    if instances.len() > MOST_INSTANCES {
        return Err(DocumentError::new("", format!("the list has more than {MOST_INSTANCES} instances")));
    }
    fn key(own: &Instance) -> (&str, IpAddr, Option<&str>, u16) {
        (&own.id, own.address, own.host.as_deref(), own.port)
    }
    instances.sort_by(|one, other| key(one).cmp(&key(other)));
    instances.dedup_by(|one, other| key(one) == key(other));
    instances.shrink_to_fit();
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
