//! Resumption on a listener's side: tickets and the cache of sessions.

use crate::engine::side::{Shared, no_sessions};
use crate::engine::tickets;

/// What a listener gives clients to resume their sessions with.
#[derive(Clone, Debug)]
pub struct Resumption(Shared);

impl Resumption {
    /// Tickets under keys of our own, and room for `sessions` sessions of clients without tickets.
    ///
    /// # Errors
    /// The system gave no random bytes.
    pub fn new(tickets: bool, sessions: usize) -> Result<Self, String> {
        let tickets = tickets.then(tickets::random).transpose()?;
        let sessions = if sessions == 0 { no_sessions() } else { tickets::sessions(sessions) };
        Ok(Self(Shared { sessions, tickets }))
    }

    pub(crate) fn shared(self) -> Shared {
        self.0
    }
}

impl Default for Resumption {
    fn default() -> Self {
        Self(Shared { sessions: no_sessions(), tickets: None })
    }
}
