//! The peer's program: the features that Weir sends, and the messages that need them.

use super::{CONTROLS, PeerSession, SessionEvent};
use crate::message::{Breach, Extension, Message};
use crate::tables::Tables;

/// The features of a process that adds up counts of several members. Each is a bit.
pub mod features {
    /// The process returns the counts of an earlier process of the peer, and requests its own.
    pub const RETURNS_PARTS: u64 = 1;

    /// The process sends its counts of a key to the owners of the key, and sends sums of the keys that it owns.
    pub const OWNERS: u64 = 2;
}

/// The program that the peer runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PeerProgram {
    /// No message has arrived.
    Unknown,
    /// The first message was not one with features.
    Other,
    /// The peer has sent its features.
    Weir(u64),
}

impl PeerSession {
    /// Requests the counts of an earlier process with the name of this one.
    pub(crate) fn request_parts(&mut self) {
        self.asks_parts = true;
    }

    /// Returns the peer's program.
    pub(crate) fn program(&self) -> PeerProgram {
        self.program
    }

    /// Determines the peer's program from its first message.
    pub(super) fn note_program(&mut self, message: &Message<'_>, now: u64, tables: &mut impl Tables) {
        if self.program != PeerProgram::Unknown {
            return;
        }
        let bits = match message {
            Message::Extension(Extension::Features(bits)) => Some(*bits),
            _ => None,
        };
        self.program = bits.map_or(PeerProgram::Other, PeerProgram::Weir);
        if let Some(peer) = self.peer {
            tables.note_program(peer, bits.unwrap_or(0) & self.section.features, now);
        }
    }

    pub(super) fn extension(&mut self, extension: Extension) -> Result<(), Breach> {
        self.controls += 1;
        if self.controls > CONTROLS {
            return Err(Breach::Protocol("too many requests"));
        }
        match extension {
            Extension::PartsRequest => self.sender.begin_parts(),
            Extension::PartsFinished => self.events.push(SessionEvent::PartsReturned),
            // Known from the first message.
            Extension::Features(_) => {}
        }
        Ok(())
    }
}
