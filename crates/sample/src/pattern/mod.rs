//! Patterns by kind (manual, 7.1), and the lists that contain them.
//!
//! A [`List`] is the text of a pattern file, a map or the patterns of an ACL. It has a name, is shared between ACLs and maps, and
//! is changed by the runtime socket and by rules (`add-acl`, `set-map`). A [`View`] is one way of matching against a list: a match
//! method, with or without case, with the fastest index for it. Changes update every index of the list; no index is rebuilt.

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
pub(crate) use list::ValueType;
pub use list::{List, ListOrigin, NewLine, PatternLine, PatternMatch, View};
pub use method::MatchMethod;
pub use ranges::Range;
pub use sets::PatternSets;
pub use watch::{ListChange, Watcher};
