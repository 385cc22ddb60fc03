//! Patterns by kind (manual, 7.1): what a value is compared with, and the lists they come from.
//!
//! A [`List`] is the text of a pattern file, a map or the words of one ACL: named, shared between
//! ACLs and maps, changed by the runtime socket and by rules (`add-acl`, `set-map`). A [`View`] is
//! one way to look into a list: a match method, with or without case, with the index that answers
//! fastest. A change goes into each index of its list; nothing is built anew.

pub(crate) mod entries;
mod exact;
mod index;
mod list;
mod method;
mod networks;
mod parts;
mod ranges;
mod regexes;
mod sets;
mod substrings;
mod watch;

pub(crate) use index::PatternIndex;
pub use list::{List, ListOrigin, NewLine, PatternLine, PatternMatch, View};
pub use method::MatchMethod;
pub use ranges::Range;
pub use sets::PatternSets;
pub use watch::{ListChange, Watcher};
