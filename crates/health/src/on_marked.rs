//! `on-marked-down` and `on-marked-up`: ends sessions when a server goes down or comes up, for any reason: checks, the runtime
//! socket, name resolution, or a tracked server.

use std::sync::Arc;

use plan::ServerSettings;
use runtime::{shard, worker};
use state::sessions::{self, Kill};
use state::{Proxy, Server};

use crate::CheckedServer;

/// Whether [`prepare`] has an effect on a server.
pub(crate) fn applies(own: &ServerSettings) -> bool {
    own.shutdown_sessions_when_down || own.shutdown_backups_when_up
}

/// Sets the actions that the server's line specifies for going down or coming up.
pub(crate) fn prepare(peer: &CheckedServer) {
    let own = peer.own();
    let (down, up) = (own.shutdown_sessions_when_down, own.shutdown_backups_when_up && !peer.server().backup);
    if !down && !up {
        return;
    }
    // The server owns the callback.
    let (proxy, server) = (Arc::downgrade(&peer.backend.state), Arc::downgrade(peer.server()));
    peer.server().on_mark(move |is_up| match is_up {
        false if down => kill(Kill::ServerDown, server.upgrade().into_iter().collect()),
        true if up => {
            if let Some(proxy) = proxy.upgrade() {
                kill(Kill::ServerUp, backups(&proxy));
            }
        }
        _ => {}
    });
}

/// Performs the action for a server that accepts requests again.
pub(crate) fn came_up(peer: &CheckedServer) {
    if peer.own().shutdown_backups_when_up && !peer.server().backup {
        kill(Kill::ServerUp, backups(&peer.backend.state));
    }
}

fn backups(proxy: &Proxy) -> Vec<Arc<Server>> {
    proxy.servers.load().iter().filter(|server| server.backup).cloned().collect()
}

/// Ends the sessions with `servers` on all workers.
fn kill(why: Kill, servers: Vec<Arc<Server>>) {
    let servers = Arc::new(servers);
    for index in 0..shard::workers() {
        let servers = servers.clone();
        worker::post(index, move || {
            for server in servers.iter() {
                sessions::kill_server(why, server);
            }
        });
    }
}
