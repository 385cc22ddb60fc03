//! Stick tables shared with other processes: HAProxy's peers protocol 2.1.
//!
//! `message`, `handshake`, `definition` and `row` are the bytes; [`Session`] is one connection;
//! [`Group`] is a `peers` section: who is connected to whom, and who teaches a process that has
//! just begun. None of these has a socket, a clock or a table. [`Desk`] is a section at work on its
//! worker; tables are behind [`Tables`], which [`Stick`] is with those of `state`; the making of
//! connections is behind [`Ways`].

#![forbid(unsafe_code)]

pub mod definition;
mod dictionary;
mod group;
mod handshake;
pub mod integer;
pub mod message;
mod row;
mod session;
mod shard;
pub mod stick;
mod tables;
mod task;
mod transport;

pub use definition::{Column, Definition, KeyKind, Kind, Shape};
pub use group::{Command, Group, Link, Progress, Settings, Shown, Stage, View};
pub use handshake::Status;
pub use message::Breach;
pub use row::{Rate, Row, Value};
pub use session::{Counts, Event, HEARTBEAT, Over, Section, Session, TIMEOUT};
pub use shard::of as shard_of;
pub use stick::Stick;
pub use tables::{Origin, Tables};
pub use task::{Desk, Making, Ways};
