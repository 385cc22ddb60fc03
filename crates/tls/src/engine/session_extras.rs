//! Additional data in sessions, as in OpenSSL's sessions: the verification result of the peer, and the group of the key exchange.
//!
//! rustls encrypts and decrypts sessions during a handshake. The additional data is taken from the connection that is being
//! processed, and returned to it ([`begin_turn`], [`end_turn`]).

use std::cell::Cell;

use aws_lc_rs::digest;

use super::key_log;
use crate::capture::TICKET;
use crate::settings::{ClientVerify, VerifyMode};
use crate::verify_code::VerifyCode;
use crate::verify_policy::{self, VerifyOutcome};

thread_local! {
    static GROUP: Cell<u16> = const { Cell::new(0) };
}

/// Sets the state of the connection that is processed next, for verifiers and sessions.
pub(crate) fn begin_turn(outcome: VerifyOutcome, group: u16) {
    verify_policy::set_outcome(outcome);
    GROUP.set(group);
}

/// Returns the state after processing.
pub(crate) fn end_turn() -> (VerifyOutcome, u16) {
    (verify_policy::take_outcome(), GROUP.take())
}

/// Resets the result to "no peer was verified", neither in this handshake nor in a resumed session.
pub(crate) fn forget_outcome() {
    verify_policy::set_outcome(VerifyOutcome::default());
}

pub(super) fn group() -> u16 {
    GROUP.get()
}

pub(crate) fn set_group(group: u16) {
    GROUP.set(group);
}

/// Identifies the rules under which a client was verified. Its session is only valid under the same rules.
pub(super) type VerifyRules = [u8; 16];

const LENGTH: usize = size_of::<VerifyRules>() + 3;

/// The maximum size of a session, including the client's certificates.
const SESSION_MAX: usize = 1 << 14;

/// Returns the rules of a listener's line.
pub(super) fn rules(verify: &ClientVerify) -> VerifyRules {
    let mut rules = VerifyRules::default();
    if verify.mode == VerifyMode::None {
        return rules;
    }
    let mut all = digest::Context::new(&digest::SHA256);
    all.update(&[verify.mode as u8]);
    all.update(&verify.ca_ignore.bits().to_be_bytes());
    all.update(&verify.crt_ignore.bits().to_be_bytes());
    let trust = &verify.trust;
    for list in [&trust.authorities, &trust.unnamed, &trust.crls] {
        all.update(&list.len().to_be_bytes());
        for der in list {
            all.update(&der.len().to_be_bytes());
            all.update(der);
        }
    }
    rules.copy_from_slice(&all.finish().as_ref()[..16]);
    rules
}

/// Appends the additional data to a rustls session. Returns `None` if the result is too long.
pub(super) fn with(rules: &VerifyRules, session: &[u8]) -> Option<Vec<u8>> {
    if session.len() > SESSION_MAX {
        return None;
    }
    if let Some(key) = key(session) {
        key_log::leave(TICKET, key);
    }
    let mut kept = Vec::with_capacity(LENGTH + session.len());
    kept.extend_from_slice(rules);
    kept.push(verify_policy::outcome().last.0);
    kept.extend_from_slice(&group().to_be_bytes());
    kept.extend_from_slice(session);
    Some(kept)
}

/// Returns the resumption secret of a rustls session, which follows the optional server name, version and suite.
fn key(session: &[u8]) -> Option<&[u8]> {
    let (named, rest) = session.split_first()?;
    let rest = if *named == 1 { rest.get(1 + usize::from(*rest.first()?)..)? } else { rest };
    let (length, rest) = rest.get(4..)?.split_first()?;
    rest.get(..usize::from(*length))
}

/// Returns the rustls session, and passes the additional data to the current connection. Returns `None` if the client was verified
/// under other rules.
pub(super) fn without(rules: &VerifyRules, kept: &[u8]) -> Option<Vec<u8>> {
    let (own, rest) = kept.split_first_chunk()?;
    let (&[last, high, low], session) = rest.split_first_chunk()?;
    if own != rules {
        return None;
    }
    verify_policy::set_outcome(VerifyOutcome { last: VerifyCode(last), ..VerifyOutcome::default() });
    set_group(u16::from_be_bytes([high, low]));
    Some(session.to_vec())
}
