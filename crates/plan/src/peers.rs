//! `peers` sections (manual, 11.2): the peers that share stick tables. A section works like a proxy: its `bind` line is that of a
//! frontend, and its peers are servers. Read by the binary, which starts the tasks of each section.

use std::sync::Arc;

use state::server::ServerAddress;
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
    /// The name of the peer. For a peer that DNS provides, it is the name of its server, which other peers do not know.
    pub name: Box<str>,
    /// Whether DNS provides the peer's name and address (`server-template`).
    pub is_from_dns: bool,
    /// The shard of keys that the peer gets (`shard`); 0 for all keys.
    pub shard: u32,
    /// The address of the peer. For this process, it is the address of its successor. `None` without a listener.
    pub server: Option<Arc<ServerSettings>>,
}

impl Peer {
    /// Returns the name of the peer among peers. A peer that DNS provides is named after the host of its SRV record, without the
    /// domain, or after its address. `None` while DNS provides no peer.
    pub fn member_name(&self) -> Option<String> {
        let server = self.server.as_ref().filter(|_| self.is_from_dns);
        let Some(server) = server else { return (!self.is_from_dns).then(|| self.name.to_string()) };
        if server.state.srv_record.get().is_none() {
            return match &**server.state.address.load() {
                ServerAddress::Ip(address) => Some(address.ip().to_string()),
                _ => None,
            };
        }
        let host = server.state.fqdn.load();
        let label = host.as_ref()?.split('.').next()?.to_ascii_lowercase();
        (!label.is_empty()).then_some(label)
    }
}

/// A shared table.
#[derive(Debug)]
pub struct SharedTable {
    /// The table.
    pub table: Arc<Table>,
    /// The name of the table in the peers' protocol.
    pub name: Box<str>,
}
