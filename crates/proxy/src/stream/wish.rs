//! Changes to a connection's socket that rules of its streams require.

/// Changes to the socket requested by streams' rules.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Another type of service.
    pub(crate) tos: Option<u32>,
    /// Another firewall mark.
    pub(crate) mark: Option<u32>,
    /// Close without notifying the peer, with this time to live for a last reset (`silent-drop`).
    pub(crate) vanish: Option<Option<u8>>,
}
