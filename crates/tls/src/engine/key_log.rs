//! Handshake secrets, for key logs (`tune.ssl.keylog`) and `ssl_fc_session_key`.
//!
//! rustls reports secrets during a handshake. They are stored for the connection that is being processed ([`take_secrets`]), if it
//! has enabled this ([`want_secrets`]). A server's own traffic secrets are always stored ([`watch_traffic`]).

use std::cell::{Cell, RefCell};

use rustls::KeyLog;

use crate::capture::Secret;
use crate::traffic::{TrafficSecret, TrafficSecrets};

/// The labels of the first application traffic secrets.
const CLIENT_TRAFFIC: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER_TRAFFIC: &str = "SERVER_TRAFFIC_SECRET_0";

thread_local! {
    /// The traffic secrets reported by the engine that is running, if they are watched.
    static TRAFFIC: RefCell<Option<TrafficSecrets>> = const { RefCell::new(None) };
    static WANTED: Cell<bool> = const { Cell::new(false) };
    static SECRETS: RefCell<Vec<Secret>> = const { RefCell::new(Vec::new()) };
}

/// Sets whether to store the secrets of the connection that is processed next.
pub(crate) fn want_secrets(wanted: bool) {
    WANTED.set(wanted);
}

/// Takes the secrets reported while the last connection was processed.
pub(crate) fn take_secrets() -> Vec<Secret> {
    WANTED.set(false);
    SECRETS.take()
}

/// Runs an engine, and adds the traffic secrets that it derives to `secrets`.
pub(super) fn watch_traffic<R>(secrets: &mut TrafficSecrets, run: impl FnOnce() -> R) -> R {
    TRAFFIC.set(Some(TrafficSecrets::default()));
    let result = run();
    let TrafficSecrets { client, server } = TRAFFIC.take().unwrap_or_default();
    secrets.client = client.or(secrets.client.take());
    secrets.server = server.or(secrets.server.take());
    result
}

/// Stores a traffic secret, if they are watched.
fn note_traffic(label: &str, secret: &[u8]) {
    TRAFFIC.with_borrow_mut(|all| {
        let Some(all) = all else { return };
        match label {
            CLIENT_TRAFFIC => all.client = TrafficSecret::new(secret),
            SERVER_TRAFFIC => all.server = TrafficSecret::new(secret),
            _ => {}
        }
    });
}

/// Stores a secret for the current connection, if that was enabled.
pub(super) fn leave(label: &str, secret: &[u8]) {
    if WANTED.get() {
        SECRETS.with_borrow_mut(|all| all.push(Secret { label: label.into(), bytes: secret.into() }));
    }
}

#[derive(Debug)]
pub(super) struct Keeping;

impl KeyLog for Keeping {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        note_traffic(label, secret);
        leave(label, secret);
    }

    fn will_log(&self, label: &str) -> bool {
        WANTED.get() || [CLIENT_TRAFFIC, SERVER_TRAFFIC].contains(&label)
    }
}

/// Stores a secret, given as a line of `SSLKEYLOGFILE`, for [`take_secrets`].
#[cfg_attr(not(feature = "legacy-tls"), allow(dead_code, reason = "OpenSSL tells in lines"))]
pub(crate) fn keep(line: &str) {
    let mut words = line.split(' ');
    let (Some(label), Some(secret)) = (words.next(), words.nth(1)) else { return };
    if !WANTED.get() {
        return;
    }
    let digits = secret.as_bytes().as_chunks::<2>().0;
    let byte = |pair: &[u8; 2]| u8::from_str_radix(str::from_utf8(pair).ok()?, 16).ok();
    let Some(bytes) = digits.iter().map(byte).collect::<Option<Box<[u8]>>>() else { return };
    leave(label, &bytes);
}
