//! The last malformed request and response of each proxy, for `show errors`.
//!
//! Written by `proxy` when a message breaks the rules (or broke them and was let pass), read by
//! `control`.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;

use base::clock::WallTime;

/// A captured message.
#[derive(Debug, Clone, Default)]
pub struct Captured {
    /// When.
    pub when: WallTime,
    /// Number of this event since the start.
    pub event: u64,
    /// What was wrong, in a few words.
    pub reason: &'static str,
    /// The frontend: name and id.
    pub frontend: (Box<str>, u32),
    /// The backend, when known.
    pub backend: Option<(Box<str>, u32)>,
    /// The server, when known.
    pub server: Option<(Box<str>, u32)>,
    /// The client.
    pub source: Option<SocketAddr>,
    /// Number of the stream.
    pub session: u64,
    /// Bytes that were dropped from the front of the buffer before.
    pub offset: u64,
    /// The offending byte within `bytes`.
    pub position: usize,
    /// What was in the buffer.
    pub bytes: Vec<u8>,
    /// Whether the message was accepted all the same.
    pub accepted: bool,
}

/// Both of a proxy: request, response.
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
        // Every change below is whole, so a panic elsewhere leaves nothing half done.
        use_it(&mut self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner()))
    }

    /// Keeps `captured` as the last of proxy `id`; numbers it.
    pub fn capture(&self, id: u32, response: bool, mut captured: Captured) {
        self.with(|inner| {
            captured.event = inner.events;
            inner.events += 1;
            let pair = inner.proxies.entry(id).or_default();
            *(if response { &mut pair.1 } else { &mut pair.0 }) = Some(captured);
        });
    }

    /// How many were captured since the start.
    pub fn total(&self) -> u64 {
        self.with(|inner| inner.events)
    }

    /// The captures of one proxy.
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
