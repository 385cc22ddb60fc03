//! One session, and the limits of a section's sessions.

use std::net::{IpAddr, SocketAddr};

/// The addresses that identify a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionKey {
    /// The client.
    pub source: SocketAddr,
    /// The address that the client sends to, if the kernel reports it. The server's datagrams are sent from there.
    pub destination: Option<IpAddr>,
}

/// When sessions end. Times are in ms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SessionLimits {
    /// How long a session may be idle after a datagram of the client.
    pub after_request: u64,
    /// How long a session may be idle after a datagram of the server.
    pub after_response: u64,
    /// After this number of datagrams, the client's next datagram begins another session.
    pub requests: Option<u32>,
    /// The number of datagrams with which the server answers each of the client's. A session ends when all received so far are
    /// answered and, with a number of `requests`, no more of the client's datagrams belong to it.
    pub responses: Option<u32>,
}

/// The state of a session after a datagram.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// More datagrams may follow.
    Open,
    /// Everything that the limits expect has been forwarded.
    Complete,
}

/// A session with the caller's `data`.
#[derive(Debug)]
pub struct UdpSession<T> {
    /// The addresses.
    pub key: SessionKey,
    /// The caller's data.
    pub data: T,
    /// When the session began, in ms.
    pub since_ms: u64,
    /// The number of datagrams from the client.
    pub requests: u64,
    /// The number of datagrams from the server.
    pub responses: u64,
    /// The bytes of the client's datagrams.
    pub bytes_in: u64,
    /// The bytes of the server's datagrams.
    pub bytes_out: u64,
    /// When the last datagram was forwarded, in ms.
    pub active_ms: u64,
    /// Whether the client's next datagram belongs to this session.
    pub is_listed: bool,
    /// Whether the last datagram was the client's.
    pub awaits_server: bool,
}

impl<T> UdpSession<T> {
    pub(crate) fn new(key: SessionKey, data: T, now_ms: u64) -> Self {
        Self {
            key,
            data,
            since_ms: now_ms,
            requests: 0,
            responses: 0,
            bytes_in: 0,
            bytes_out: 0,
            active_ms: now_ms,
            is_listed: true,
            awaits_server: true,
        }
    }

    /// When the session expires unless another datagram is forwarded, in ms.
    pub fn deadline(&self, limits: &SessionLimits) -> u64 {
        let idle = if self.awaits_server { limits.after_request } else { limits.after_response };
        self.active_ms.saturating_add(idle)
    }

    /// How many datagrams of the client still belong to this session.
    pub fn room(&self, limits: &SessionLimits) -> u64 {
        limits.requests.map_or(u64::MAX, |most| u64::from(most).saturating_sub(self.requests))
    }

    /// Whether the limits expect another answer of the server.
    pub fn lacks_answers(&self, limits: &SessionLimits) -> bool {
        limits.responses.is_some_and(|each| self.responses < u64::from(each).saturating_mul(self.requests))
    }

    pub(crate) fn progress(&self, limits: &SessionLimits) -> Progress {
        // Without a number of responses, only a timeout ends the session.
        let is_complete = self.room(limits) == 0 || limits.requests.is_none();
        if limits.responses.is_some() && is_complete && !self.lacks_answers(limits) {
            Progress::Complete
        } else {
            Progress::Open
        }
    }
}
