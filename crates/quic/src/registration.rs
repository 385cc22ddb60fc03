//! The exchange between a connection and its endpoint.

use crate::connection_id::{CONNECTION_ID_LENGTH, ConnectionId, OwnId, SocketIndex};
use crate::keys::{SharedKeys, fill_random};

/// The part of an endpoint that its connections share.
pub(crate) struct EndpointShared {
    pub(crate) keys: SharedKeys,
    index: SocketIndex,
}

impl EndpointShared {
    pub(crate) fn new(keys: &SharedKeys, index: SocketIndex) -> Self {
        Self { keys: keys.clone(), index }
    }

    /// Returns a new connection ID.
    pub(crate) fn new_id(&self) -> OwnId {
        let mut id = [0; CONNECTION_ID_LENGTH];
        fill_random(&mut id);
        self.index.mark(&mut id);
        id
    }
}

/// Input for an endpoint, from a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndpointInput(pub(crate) Registration);

/// A change of what the endpoint knows of a connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Registration {
    /// Datagrams may be addressed to this ID.
    Use(OwnId),
    /// The ID is not used any more.
    Forget(ConnectionId),
    /// The token with which the peer resets the connection.
    ResetToken(Option<[u8; 16]>),
    /// The connection is over.
    Drained,
}

impl EndpointInput {
    /// Whether the connection is over and its handle becomes free.
    pub fn is_end(&self) -> bool {
        self.0 == Registration::Drained
    }
}
