//! Secrets of a handshake, for logs of keys (`tune.ssl.keylog`).
//!
//! rustls tells them in the midst of a handshake; they are left for the connection whose turn it is
//! ([`take_secrets`]).

use std::cell::RefCell;

use rustls::KeyLog;

use crate::captured::Secret;

thread_local! {
    static SECRETS: RefCell<Vec<Secret>> = const { RefCell::new(Vec::new()) };
}

/// The secrets that became known during the turn that has just ended.
pub(crate) fn take_secrets() -> Vec<Secret> {
    SECRETS.take()
}

#[derive(Debug)]
pub(super) struct Keeping;

impl KeyLog for Keeping {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        SECRETS.with_borrow_mut(|all| all.push(Secret { label: label.into(), bytes: secret.into() }));
    }
}
