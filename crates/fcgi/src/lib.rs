//! FastCGI 1.0 without sockets, clock or threads, for the side that sends requests: records, parameters, streams, limits. Only the
//! responder role is supported.
//!
//! [`record`] has the record format, [`Parameters`] the name-value pairs, and [`FcgiRequest`] builds these from a [`http::Head`]
//! like HAProxy (configuration manual, 10.2). [`Connection`] does the rest: it writes requests, parses the application's records,
//! and builds response heads from its output. Called by `proxy`.

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
