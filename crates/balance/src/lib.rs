//! Load-balancing algorithms: pure.
//!
//! [`Settings`] is what the configuration says, [`Picker`] what a backend keeps between picks. A picker reads
//! the servers' state and shares only its position; it takes no lock on a pick unless a weight changed since
//! the last one. Called by `proxy`.

#![forbid(unsafe_code)]

pub mod consistent;
pub mod picker;
pub mod schedule;
pub mod settings;

pub use picker::{Picker, Wish};
pub use settings::{Algorithm, HashFunction, HashKind, HashType, Settings};
