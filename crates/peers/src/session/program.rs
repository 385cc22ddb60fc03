//! What a session knows about the peer's program: the features that Weir sends, and the messages that need them.

use super::{CONTROLS, PeerSession, SessionEvent};
use crate::message::{Breach, Extension};

/// The features of a process that adds up counts of several members. Each is a bit.
pub mod features {
    /// The process returns the counts of an earlier process of the peer, and requests its own.
    pub const RETURNS_PARTS: u64 = 1;
}

/// What is known about the program that the peer runs.
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

    /// Returns what is known about the peer's program.
    pub(crate) fn program(&self) -> PeerProgram {
        self.program
    }

    pub(super) fn extension(&mut self, extension: Extension) -> Result<(), Breach> {
        self.controls += 1;
        if self.controls > CONTROLS {
            return Err(Breach::Protocol("too many requests"));
        }
        match extension {
            Extension::PartsRequest => self.sender.begin_parts(),
            Extension::PartsFinished => self.events.push(SessionEvent::PartsReturned),
            Extension::Features(bits) => self.program = PeerProgram::Weir(bits),
        }
        Ok(())
    }
}
