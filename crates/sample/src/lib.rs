//! Values, fetches, converters, ACLs, variables and log formats.
//!
//! [`Session`] and [`Transaction`] represent a connection and a request as data. [`Env`] is the view of them that compiled
//! expressions read. `rules` modifies them, and `proxy` drives them over sockets.

#![forbid(unsafe_code)]

pub mod acl;
mod alias;
pub mod args;
pub mod auth;
pub mod bandwidth;
mod captures;
pub mod condition;
pub mod convert;
mod early_id;
pub mod encode;
pub mod ending;
pub mod env;
pub mod explained;
pub mod expression;
pub mod fetch;
mod flags;
pub mod format;
pub mod keys;
pub mod length_prefixed;
pub mod limits;
pub mod live;
mod log_origin;
pub mod log_profile;
pub mod named_acls;
mod outcome;
pub mod pattern;
pub mod place;
pub mod regex;
pub mod request_trace;
pub mod scope;
pub mod script;
pub mod script_functions;
pub mod session;
mod slots;
pub mod socket;
mod table_field;
pub mod track;
mod tracked;
pub mod transaction;
pub mod value;
pub mod vars;
pub mod word_cursor;

pub use acl::Criterion;
pub use condition::{Condition, Test};
pub use ending::{ConnectionOutcome, Ending, StreamEnd};
pub use env::Env;
pub use env::Sockets;
pub use expression::Expression;
pub use format::{Format, FormatFor};
pub use log_origin::{LogOrigin, LogStep};
pub use log_profile::LogProfile;
pub use named_acls::Acls;
pub use place::Place;
pub use scope::{Names, Scope};
pub use session::{Accepted, Endpoint, Ends, Session, Tlv};
pub use slots::Slots;
pub use socket::{ConnectionError, TcpFacts};
pub use transaction::{Cause, Hedged, Phase, StreamFacts, Termination, TimeoutSlot, Times, Transaction};
pub use value::{Bytes, Scratch, Type, Value};
pub use word_cursor::{Word, Words};
