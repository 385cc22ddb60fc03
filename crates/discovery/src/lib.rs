//! Discovery of servers (`discovery` sections, docs/discovery.md): decoders of the sources' documents, and the engine that keeps the
//! lists of instances current.
//!
//! One thread of the process, which is not a worker, runs a task for each list (`engine`, `follow`). A task reads a file, repeats a request,
//! or follows a stream; a decoder ([`decode`]) turns the document into instances, which are stored in `state::discovery`. The binary
//! adds and removes the servers ([`reconcile`] decides which). A source that does not answer changes nothing.

#![forbid(unsafe_code)]

mod callbacks;
pub mod decode;
mod delays;
mod engine;
mod fetch;
mod follow;
mod names;
pub mod reconcile;

pub use callbacks::{DiscoveryCallbacks, ListChanged, NotifyDiscovery, SweptServers};
pub use engine::Discoverer;
pub use follow::read_now;
