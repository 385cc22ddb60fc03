//! The last malformed request and response of each proxy, for `show errors`.
//!
//! Written by `proxy` for a message that violates the protocol, tolerated or not; read by `control`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use base::clock::WallTime;

/// A captured message.
#[derive(Debug, Clone, Default)]
pub struct Captured {
    /// The time of the capture.
    pub when: WallTime,
    /// The number of this event since the start.
    pub event: u64,
    /// A short description of the error.
    pub reason: &'static str,
    /// The frontend: name and id.
    pub frontend: (Box<str>, u32),
    /// The backend, when known.
    pub backend: Option<(Box<str>, u32)>,
    /// The server, when known.
    pub server: Option<(Box<str>, u32)>,
    /// The client.
    pub source: Option<SocketAddr>,
    /// The number of the stream.
    pub session: u64,
    /// Number of bytes dropped before the start of the buffer.
    pub offset: u64,
    /// The index of the invalid byte in `bytes`.
    pub position: usize,
    /// The content of the buffer.
    pub bytes: Vec<u8>,
    /// Whether the message was accepted anyway.
    pub accepted: bool,
}

/// The last request and response of a proxy.
pub type Pair = (Option<Captured>, Option<Captured>);

/// The captures of all proxies.
#[derive(Debug, Default)]
pub struct Errors {
    inner: Mutex<ErrorsInner>,
}

#[derive(Debug, Default)]
struct ErrorsInner {
    events: u64,
    proxies: HashMap<u32, Pair>,
}

impl Errors {
    fn with<R>(&self, use_it: impl FnOnce(&mut ErrorsInner) -> R) -> R {
        // Changes are atomic, so the state is valid even if the lock is poisoned.
        use_it(&mut self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Stores `captured` as the last invalid message of proxy `id`, and numbers it.
    pub fn capture(&self, id: u32, response: bool, mut captured: Captured) {
        self.with(|inner| {
            captured.event = inner.events;
            inner.events += 1;
            let pair = inner.proxies.entry(id).or_default();
            *(if response { &mut pair.1 } else { &mut pair.0 }) = Some(captured);
        });
    }

    /// Returns the number of captures since the start.
    pub fn total(&self) -> u64 {
        self.with(|inner| inner.events)
    }

    /// Returns the captures of one proxy.
    pub fn of(&self, id: u32) -> Pair {
        self.with(|inner| inner.proxies.get(&id).cloned().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_capture_of_each_direction_is_kept_and_numbered() {
        let errors = Errors::default();
        for reason in ["first", "second"] {
            errors.capture(3, false, Captured { reason, ..Captured::default() });
        }
        errors.capture(3, true, Captured::default());
        let (request, response) = errors.of(3);
        assert_eq!(request.map(|c| (c.reason, c.event)), Some(("second", 1)));
        assert_eq!(response.map(|c| c.event), Some(2));
        assert_eq!((errors.total(), errors.of(4).0.is_none()), (3, true));
    }
}
