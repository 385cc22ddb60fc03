//! Response cache (configuration manual, chapter 6; RFC 9111): which requests may be answered from a cache, which responses may be
//! stored and for how long, and the store shared by all workers.
//!
//! Responses evicted from memory may be kept in files (`disk`). This crate contains their format and metadata; the crate `disk`
//! reads and writes them.
//!
//! This crate has no I/O and no clock: times are passed in, as milliseconds of the monotonic clock and wall-clock seconds. `proxy`
//! looks up, fills and delivers; `control` and `statistics` show the contents; `config` creates the stores.

#![forbid(unsafe_code)]

mod blocks;
mod by_use;
mod condition;
mod entry;
mod file;
mod files;
mod filling;
mod flight;
mod freshness;
mod growing;
mod hints;
mod identity;
mod jobs;
mod key;
mod loading;
mod long;
mod object;
mod order;
mod promote;
mod purge;
mod range;
mod request;
mod room;
mod settings;
mod spool;
mod spooled;
mod store;
mod times;
mod validation;
mod vary;

#[cfg(test)]
mod model_tests;

pub use blocks::{Blocks, Fetch};
pub use condition::is_unchanged;
pub use entry::Entry;
pub use file::{BLOCK, Clocks, Described, FileHeader, HEADER, SUM, Wrong, describe, header, read, sum};
pub use files::{FileCounts, StoreFiles};
pub use filling::Filling;
pub use flight::{FlightTurn, Follow, Landed, Lead};
pub use freshness::{Lifetime, Now};
pub use growing::{Feed, Piece};
pub use hints::hints;
pub use jobs::{FileChange, FileRead};
pub use key::write_key;
pub use loading::{Loaded, Loading, ObjectRead};
pub use long::{FileFeed, Long};
pub use object::{Object, ObjectSummary, StoredBody};
pub use promote::Reserved;
pub use purge::Purge;
pub use range::{Ranged, ranged};
pub use request::CacheRequest;
pub use settings::{CacheSettings, Disk, Hints};
pub use spooled::Spooled;
pub use store::{Lookup, Store};
pub use validation::{Conditions, ask_for_whole, ask_whether, is_about, may_validate};
pub use vary::Variant;
