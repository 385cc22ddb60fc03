//! Settings of connections to servers, and the tokens that servers give.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tls::Keep;

use crate::connection_id::SocketIndex;
use crate::keys::SharedKeys;
use crate::registration::EndpointShared;
use crate::settings::Settings;

/// The maximum number of addresses and names of a server for which tokens are kept.
const TOKEN_NAMES: usize = 64;

/// The number of tokens that are kept for each. A token is used once, and each connection brings new ones.
const TOKENS: usize = 4;

/// The longest token that is kept.
const TOKEN_MAX: usize = 512;

/// The transport settings of a server's connections, and the tokens with which the server recognizes our address (RFC 9000, 8.1.3).
pub struct ClientSettings {
    pub(crate) settings: Arc<Settings>,
    pub(crate) shared: Arc<EndpointShared>,
    pub(crate) tokens: Arc<Tokens>,
}

impl ClientSettings {
    /// Prepares the settings; [`Settings::max_streams`] is the number of streams that the server may open.
    pub fn new(settings: &Settings) -> Self {
        Self {
            settings: Arc::new(settings.clone()),
            shared: Arc::new(EndpointShared::new(&SharedKeys::random(), SocketIndex(0))),
            tokens: Arc::default(),
        }
    }
}

impl std::fmt::Debug for ClientSettings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientSettings").finish_non_exhaustive()
    }
}

/// How to perform the handshake with a server.
#[derive(Debug, Clone)]
pub struct ServerHandshake {
    /// The TLS settings and sessions of the server's line.
    pub connector: Arc<tls::Connector>,
    /// The name to send as SNI.
    pub name: Option<Box<str>>,
    /// The data to keep for fetches.
    pub keep: Keep,
    /// Whether data may be sent before the server's answer, if an earlier session allows it.
    pub early: bool,
}

/// Why no connection to a server could be started.
#[derive(Debug, Clone, Copy)]
pub enum ConnectFailure {
    /// The address has no port, or is unspecified.
    Address,
    /// TLS could not be started.
    Tls(tls::Error),
}

/// Tokens by address and name: they are valid for an address, and sessions are kept by name.
#[derive(Debug, Default)]
pub(crate) struct Tokens(Mutex<HashMap<TokenPlace, Vec<Box<[u8]>>>>);

/// The address and name of a server.
pub(crate) type TokenPlace = (SocketAddr, Option<Box<str>>);

impl Tokens {
    /// Takes the newest token.
    pub(crate) fn take(&self, place: &TokenPlace) -> Option<Box<[u8]>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get_mut(place)?.pop()
    }

    pub(crate) fn put(&self, place: &TokenPlace, token: &[u8]) {
        if token.len() > TOKEN_MAX {
            return;
        }
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= TOKEN_NAMES && !all.contains_key(place) {
            all.clear();
        }
        let tokens = all.entry(place.clone()).or_default();
        if tokens.len() == TOKENS {
            tokens.remove(0);
        }
        tokens.push(token.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_are_used_once_and_limited() {
        let tokens = Tokens::default();
        let place = |port: u16| (SocketAddr::from(([192, 0, 2, 1], port)), None);
        for number in 0..10 {
            tokens.put(&place(1), &[number]);
        }
        tokens.put(&place(1), &[0; TOKEN_MAX + 1]);
        let all: Vec<_> = std::iter::from_fn(|| tokens.take(&place(1))).map(|token| token[0]).collect();
        assert_eq!(all, [9, 8, 7, 6]);
        for port in 0..1000 {
            tokens.put(&place(port), &[1]);
        }
        assert!(tokens.0.lock().is_ok_and(|all| all.len() <= TOKEN_NAMES));
    }
}
