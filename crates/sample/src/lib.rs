//! Values, fetches, converters, ACLs, variables and log formats.
//!
//! [`Session`] and [`Transaction`] are what a connection and a request are, as data; [`Env`] is the view of
//! them that a compiled expression reads. `rules` changes them, `proxy` drives them over sockets.

#![forbid(unsafe_code)]

pub mod env;
pub mod session;
pub mod transaction;
pub mod words;

pub use env::{Env, Names, Place, Scope};
pub use session::{Endpoint, Session, Tlv};
pub use transaction::{Cause, Phase, Termination, Times, Transaction};
pub use words::{Word, Words};
