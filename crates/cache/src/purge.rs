//! Removes stored responses early: by host and target, by a prefix of these, or by a tag of the responses. Called by a rule action
//! and by the runtime socket.

use http::{Name, list_values};

use crate::object::Object;

/// Selects responses to remove.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purge<'a> {
    /// All variants of one resource: `host/target`.
    Key(&'a [u8]),
    /// A prefix: `host/beginning of the target`.
    Prefix(&'a [u8]),
    /// A tag.
    Tag(&'a [u8]),
    /// Everything.
    All,
}

/// Converts a text to a key. Hosts are compared case-insensitively.
pub(crate) fn key(text: &[u8]) -> Vec<u8> {
    let end = text.iter().position(|byte| *byte == b'/').unwrap_or(text.len());
    let mut key = text[..end].to_ascii_lowercase();
    if end < text.len() {
        key.push(0);
    }
    key.extend_from_slice(&text[end..]);
    key
}

impl Purge<'_> {
    /// Whether the purge may match a response with that key; nothing else is known about the response.
    pub(crate) fn may_mean(&self, own: &[u8]) -> bool {
        match self {
            Self::Key(text) => *own == *key(text),
            Self::Prefix(text) => own.starts_with(&key(text)),
            Self::Tag(_) | Self::All => true,
        }
    }

    pub(crate) fn means(&self, object: &Object, tags: Option<&Name>) -> bool {
        match self {
            Self::Tag(tag) => tags.is_some_and(|name| has_tag(object, name, tag)),
            Self::Key(_) | Self::Prefix(_) | Self::All => self.may_mean(&object.key),
        }
    }
}

impl Purge<'_> {
    /// Whether the purge matches a response in a file with that key and these tags.
    pub(crate) fn means_file(&self, key: &[u8], tags: &[u8]) -> bool {
        match self {
            Self::Tag(tag) => has(tags, tag),
            Self::Key(_) | Self::Prefix(_) | Self::All => self.may_mean(key),
        }
    }
}

/// An owned copy.
#[derive(Debug)]
pub(crate) enum OwnedPurge {
    Key(Box<[u8]>),
    Prefix(Box<[u8]>),
    Tag(Box<[u8]>),
    All,
}

impl OwnedPurge {
    pub(crate) fn of(purge: &Purge<'_>) -> Self {
        match *purge {
            Purge::Key(key) => Self::Key(key.into()),
            Purge::Prefix(prefix) => Self::Prefix(prefix.into()),
            Purge::Tag(tag) => Self::Tag(tag.into()),
            Purge::All => Self::All,
        }
    }

    pub(crate) fn borrow(&self) -> Purge<'_> {
        match self {
            Self::Key(key) => Purge::Key(key),
            Self::Prefix(prefix) => Purge::Prefix(prefix),
            Self::Tag(tag) => Purge::Tag(tag),
            Self::All => Purge::All,
        }
    }
}

/// Tags are a list separated by commas or spaces.
fn has_tag(object: &Object, name: &Name, tag: &[u8]) -> bool {
    let mut lines = object.head.get_all(name);
    lines.any(|line| has(line, tag))
}

fn has(line: &[u8], tag: &[u8]) -> bool {
    list_values(line).flat_map(|value| value.split(|byte| *byte == b' ')).any(|own| own == tag)
}
