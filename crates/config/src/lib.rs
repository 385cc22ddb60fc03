//! Keyword tables: draft to resolved plan.
//!
//! The draft holds the words and where they stood; resolving turns every name into an index or a shared
//! object and compiles every expression. After that nothing is validated and no name is looked up again.
//! Called by the binary at boot, at reload and for `-c`.

#![forbid(unsafe_code)]

pub mod plan;

pub use plan::Plan;
