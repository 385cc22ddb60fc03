//! Patterns by kind (manual, 7.1), and the lists they come from.
//!
//! A [`List`] is the text of a pattern file, a map or the patterns of an ACL: named, shared between ACLs and maps, changed by the
//! runtime socket and by rules (`add-acl`, `set-map`). A [`View`] is one way of matching against a list: a match method, with or
//! without case, with the fastest index for it. Changes update every index of the list; nothing is rebuilt.

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
