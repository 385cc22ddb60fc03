//! `ring` sections: the buffers for lines, and the servers to which the lines are sent.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use state::Ring;
use state::server::ServerAddress;

use crate::log::{LogFormat, LogProto};
use crate::server::ServerSettings;

/// A server that gets all messages of a ring, over a stream.
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
    /// `timeout server`: how long the server may block.
    pub server_timeout: Option<Duration>,
}

/// The address of a ring's server.
#[derive(Debug, Clone)]
pub enum RingPeer {
    /// The address of a `log tcp@…` line.
    Address(ServerAddress),
    /// A `server` line.
    Server(Arc<ServerSettings>),
}

/// A `ring` section's settings, other than its servers.
#[derive(Debug, Clone)]
pub struct RingSettings {
    /// The ring.
    pub ring: Arc<Ring>,
    /// `format`.
    pub format: LogFormat,
    /// `backing-file`.
    pub backing_file: Option<PathBuf>,
}
