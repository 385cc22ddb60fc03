//! Load-balancing algorithms: pure.
//!
//! [`Settings`] is what the configuration says, [`Picker`] what a backend keeps between picks,
//! [`key`] how a request's key becomes a hash. A picker reads the servers' state and takes no lock.
//! Called by `proxy`.

#![forbid(unsafe_code)]

mod choose;
pub mod draw;
pub mod in_flight;
pub mod key;
pub mod least;
pub mod loads;
pub mod map;
pub mod picker;
pub mod ring;
pub mod settings;
pub mod table;
pub mod turns;

pub use picker::{Picker, Wish};
pub use settings::{
    Algorithm, HashFunction, HashKey, HashKind, HashType, PreserveAffinity, Settings, UriPart,
};
pub use table::Member;
