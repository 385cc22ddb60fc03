//! Secrets of a handshake, for logs of keys (`tune.ssl.keylog`) and `ssl_fc_session_key`.
//!
//! rustls tells them in the midst of a handshake; they are left for the connection whose turn it is
//! ([`take_secrets`]), where that one wants them ([`want_secrets`]).

use std::cell::{Cell, RefCell};

use rustls::KeyLog;

use crate::capture::Secret;

thread_local! {
    static WANTED: Cell<bool> = const { Cell::new(false) };
    static SECRETS: RefCell<Vec<Secret>> = const { RefCell::new(Vec::new()) };
}

/// Says whether the connection whose turn begins wants its secrets kept.
pub(crate) fn want_secrets(wanted: bool) {
    WANTED.set(wanted);
}

/// The secrets that became known during the turn that has just ended.
pub(crate) fn take_secrets() -> Vec<Secret> {
    WANTED.set(false);
    SECRETS.take()
}

/// Leaves a secret for the connection whose turn it is, if it wants it.
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

/// Keeps the secret in a line as files of `SSLKEYLOGFILE` have them, for [`take_secrets`].
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
