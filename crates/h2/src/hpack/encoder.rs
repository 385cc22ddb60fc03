//! Fields to header blocks.

use super::FieldName;

/// What one direction of a connection remembers; nothing is allocated before it is needed.
#[derive(Debug, Default)]
pub struct Encoder {}

impl Encoder {
    /// An encoder for a peer of which no settings are known yet.
    #[must_use]
    pub fn new() -> Encoder {
        Encoder::default()
    }

    /// Takes the peer's SETTINGS_HEADER_TABLE_SIZE and the most that we want to use of it. A change
    /// is written at the start of the next block (RFC 7541 section 4.2).
    pub fn set_limit(&mut self, peer_max: u32, ours: u32) {
        let _ = (peer_max, ours);
    }

    /// Appends one field. The name is written in lower case.
    pub fn field(&mut self, name: FieldName<'_>, value: &[u8], out: &mut Vec<u8>) {
        let _ = (name, value, out);
    }
}
