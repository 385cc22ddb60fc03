//! Stick tables shared with other processes: HAProxy's peers protocol 2.1.
//!
//! `message`, `handshake`, `definition` and `row` parse and write the bytes. [`PeerSession`] is one connection; [`Group`] is a
//! `peers` section: its connections, and the resync of a new process. None of these has a socket, a clock or a table.
//! [`SectionMailbox`] is a section running on its worker. [`Tables`] abstracts the tables ([`Stick`] implements it for those of
//! `state`), [`Ways`] the opening of connections.

#![forbid(unsafe_code)]

pub mod definition;
mod dictionary;
mod group;
mod handshake;
pub mod integer;
pub mod message;
mod owners;
mod row;
mod session;
mod shard;
mod stick;
mod sums;
mod tables;
mod task;
mod transport;

pub use definition::{DataColumn, DataKind, Definition, KeyKind, Shape};
pub use group::{
    Group, GroupCommand, LinkId, PeerView, ResyncStage, SectionSettings, ShowContext, SyncProgress,
};
pub use handshake::HandshakeStatus;
pub use message::Breach;
pub use row::{EntryValue, PeerEntry, Rate};
pub use session::{
    HEARTBEAT, Over, PeerSession, PeersSection, SessionCounts, SessionEvent, TIMEOUT, features,
};
pub use shard::of as shard_of;
pub use stick::Stick;
pub use tables::{EntryOrigin, Tables};
pub use task::{Making, SectionMailbox, Ways};
