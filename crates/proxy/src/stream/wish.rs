//! Changes to the socket of a connection that rules of its streams require.

/// Changes to the socket that rules of streams require.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    /// Another type of service.
    pub(crate) tos: Option<u32>,
    /// Another firewall mark.
    pub(crate) mark: Option<u32>,
    /// Close without telling the peer, with this time to live for a last reset (`silent-drop`).
    pub(crate) vanish: Option<Option<u8>>,
}
