//! Load-balancing algorithms, persistence and queueing policy: pure.

#![forbid(unsafe_code)]

pub mod settings;

pub use settings::{Algorithm, HashFunction, HashKind, HashType, Settings};
