//! The Stream Processing Offload Protocol, version 2.0, without sockets, clock or threads, for the
//! side that asks agents (HAProxy's doc/SPOE.txt, chapter 3).
//!
//! [`Data`] are typed values, [`Frame`] what everything is sent in, [`Offer`] and [`AgentHello`] the
//! handshake, [`Messages`] what an agent is told, [`Actions`] what it answers. [`Connection`] keeps
//! which question is still to be answered. Callers: `proxy`; `config` and `health` for
//! `option spop-check`.

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

/// The smallest limit of a frame that either side may ask for, in bytes without the length itself.
pub const LEAST_FRAME: u32 = 256;
