//! Load-balancing algorithms, without I/O.
//!
//! [`BalanceSettings`] is the configuration, [`Picker`] the state of a backend between picks, and [`key`] hashes the key of a
//! request. A picker reads the servers' state and takes no lock. [`budget`] and [`hedge`] limit extra attempts, and [`outliers`]
//! decides which servers are ejected. Called by `proxy`.

#![forbid(unsafe_code)]

pub mod budget;
mod choose;
pub mod draw;
pub mod ejection;
pub mod hedge;
pub mod in_flight;
pub mod key;
pub mod least;
pub mod loads;
pub mod map;
pub mod outliers;
pub mod picker;
mod preview;
mod request_key;
pub mod ring;
pub mod settings;
pub mod table;
pub mod turns;

pub use budget::Budget;
pub use hedge::Hedge;
pub use outliers::Outliers;
pub use picker::{Picker, Wish};
pub use preview::{Preview, preview};
pub use settings::{
    Algorithm, BalanceSettings, HashFunction, HashKey, HashKind, HashType, PreserveAffinity, UriPart,
};
pub use table::Member;
