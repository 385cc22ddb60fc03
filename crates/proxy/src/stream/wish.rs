//! Changes to the socket of a connection that rules of its streams have requested.

/// Changes to the socket requested by streams' rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// The new type of service.
    pub(crate) tos: Option<u32>,
    /// The new firewall mark.
    pub(crate) mark: Option<u32>,
    /// Closes the connection without notifying the peer. The value is the time to live of a final reset (`silent-drop`).
    pub(crate) vanish: Option<Option<u8>>,
}
