//! `peers` sections (manual, 11.2): who shares stick tables with whom. The section works like a
//! proxy: its `bind` line is one of a frontend, its peers are servers. Read by the binary, which
//! begins what each section does.

use std::sync::Arc;

use state::table::Table;

use crate::server::ServerSettings;

/// What makes a `peers` section of a proxy. Its name is the proxy's.
#[derive(Debug)]
pub struct Peers {
    /// All peers, this process among them, in their order.
    pub peers: Box<[Peer]>,
    /// Which of them this process is.
    pub local: usize,
    /// Into how many parts keys are shared out; 0 where every peer gets all (`shards`).
    pub shards: u32,
    /// The tables that are shared.
    pub tables: Box<[SharedTable]>,
    /// The worker that does the section's work.
    pub worker: usize,
}

/// A peer.
#[derive(Debug)]
pub struct Peer {
    /// Its name.
    pub name: Box<str>,
    /// The part of the keys that it gets (`shard`); 0 for all.
    pub shard: u32,
    /// How it is reached; of this process by itself, where its successor is. `None` where nothing
    /// listens.
    pub server: Option<Arc<ServerSettings>>,
}

/// A table that is shared.
#[derive(Debug)]
pub struct SharedTable {
    /// The table.
    pub table: Arc<Table>,
    /// What peers call it.
    pub name: Box<str>,
}
