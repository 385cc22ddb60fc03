//! `ring` sections: where lines are kept, and the servers that they are sent to.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use state::Ring;
use state::server::ServerAddress;

use crate::log::{LogFormat, LogProto};
use crate::server::ServerSettings;

/// A server that everything in a ring is sent to, over a stream.
#[derive(Debug, Clone)]
pub struct RingServer {
    /// The ring.
    pub ring: Arc<Ring>,
    /// The server.
    pub peer: RingPeer,
    /// `log-proto`.
    pub proto: LogProto,
    /// `timeout connect`.
    pub connect_timeout: Option<Duration>,
    /// `timeout server`: how long it may take nothing of what it is sent.
    pub server_timeout: Option<Duration>,
}

/// How the server of a ring is reached.
#[derive(Debug, Clone)]
pub enum RingPeer {
    /// The address of a `log tcp@…` line.
    Address(ServerAddress),
    /// A `server` line.
    Server(Arc<ServerSettings>),
}

/// What a `ring` section says beside its servers.
#[derive(Debug, Clone)]
pub struct RingSettings {
    /// The ring.
    pub ring: Arc<Ring>,
    /// `format`.
    pub format: LogFormat,
    /// `backing-file`.
    pub backing_file: Option<PathBuf>,
}
