//! `peers` sections (manual, 11.2): the peers that share stick tables. A section works like a proxy: its `bind` line is that of a
//! frontend, and its peers are servers. Read by the binary, which starts the tasks of each section.

use std::sync::Arc;

use state::table::Table;

use crate::server::ServerSettings;

/// The `peers` settings of a proxy with the section's name.
#[derive(Debug)]
pub struct Peers {
    /// All peers, including this process, in order.
    pub peers: Box<[Peer]>,
    /// The index of this process.
    pub local: usize,
    /// The number of shards into which keys are divided; 0 if every peer gets all keys (`shards`).
    pub shards: u32,
    /// The shared tables.
    pub tables: Box<[SharedTable]>,
    /// The worker that runs the section's tasks.
    pub worker: usize,
}

/// A peer.
#[derive(Debug)]
pub struct Peer {
    /// The name of the peer.
    pub name: Box<str>,
    /// The shard of keys that the peer gets (`shard`); 0 for all keys.
    pub shard: u32,
    /// The address of the peer. For this process, it is the address of its successor. `None` without a listener.
    pub server: Option<Arc<ServerSettings>>,
}

/// A shared table.
#[derive(Debug)]
pub struct SharedTable {
    /// The table.
    pub table: Arc<Table>,
    /// The name of the table in the peers' protocol.
    pub name: Box<str>,
}
