//! Handshake secrets, for key logs (`tune.ssl.keylog`) and `ssl_fc_session_key`.
//!
//! rustls reports secrets during a handshake. They are stored for the connection that is being processed ([`take_secrets`]), if it
//! has enabled this ([`want_secrets`]).

use std::cell::{Cell, RefCell};

use rustls::KeyLog;

use crate::capture::Secret;

thread_local! {
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
        leave(label, secret);
    }

    fn will_log(&self, _: &str) -> bool {
        WANTED.get()
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
