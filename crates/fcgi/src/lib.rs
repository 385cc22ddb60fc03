//! FastCGI 1.0 without sockets, clock or threads, for the side that sends requests: records,
//! parameters, streams, limits. Only the role of a responder is spoken.
//!
//! [`record`] knows records, [`Parameters`] the pairs of names and values, [`FcgiRequest`] makes them
//! from a [`http::Head`] as HAProxy does (configuration manual, 10.2). [`Connection`] is everything
//! else: it writes requests, takes apart what the application sends, and makes heads of responses
//! of its output. Caller: `proxy`.

#![forbid(unsafe_code)]

mod connection;
mod event;
mod parameters;
pub mod record;
mod request;
mod response;
mod stream;

pub use connection::{Closed, Config, Connection, OpenError};
pub use event::{Broken, Event};
pub use parameters::{Pairs, Parameters, TooLong};
pub use request::{FcgiRequest, ParamValue, ScriptPath, hides};
pub use stream::StreamKey;
