//! Responses kept for other requests (configuration manual, chapter 6; RFC 9111): which requests may
//! be answered from a cache, which responses may be kept and for how long, and the store that all
//! workers share.
//!
//! No I/O and no clock: instants are passed in, as milliseconds of the monotonic clock and seconds
//! of the calendar. `proxy` looks up, fills and delivers; `control` shows; `config` makes the
//! stores.

#![forbid(unsafe_code)]

mod condition;
mod filling;
mod flight;
mod freshness;
mod hints;
mod key;
mod object;
mod order;
mod purge;
mod range;
mod request;
mod room;
mod settings;
mod store;
mod vary;

pub use condition::is_unchanged;
pub use filling::Filling;
pub use flight::{Follow, Landed, Lead, Turn};
pub use freshness::{Lifetime, Now};
pub use hints::hints;
pub use key::write_key;
pub use object::{Object, Shown};
pub use purge::Purge;
pub use range::{Ranged, ranged};
pub use request::Request;
pub use settings::{Hints, Settings};
pub use store::{Found, Store};
pub use vary::Variant;
