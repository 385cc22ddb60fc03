//! The Stream Processing Offload Protocol, version 2.0, without sockets, clock or threads, for the side that queries agents
//! (HAProxy's doc/SPOE.txt, chapter 3).
//!
//! [`Data`] are typed values, [`Frame`] the transport units, [`Offer`] and [`AgentHello`] the handshake, [`Messages`] the queries
//! to an agent, [`Actions`] its answers. [`Connection`] tracks the queries in progress. Called by `proxy`, and by `config` and
//! `health` for `option spop-check`.

#![forbid(unsafe_code)]

mod action;
mod connection;
mod data;
mod frame;
mod hello;
mod message;
mod status;

pub use action::{Action, Actions, Scope};
pub use connection::{Closed, Config, Connection, Event, Key, Refusal};
pub use data::Data;
pub use frame::{Frame, kind};
pub use hello::{AgentHello, Goodbye, Offer};
pub use message::Messages;
pub use status::Status;

/// The smallest frame size limit that either side may request, in bytes without the length field.
pub const LEAST_FRAME: u32 = 256;
