//! Decides whether a peer's certificate is acceptable for a line, independent of the engine.
//!
//! Engines call this module during a handshake and receive a decision. The errors, including ignored ones, are stored for the
//! connection that is being processed ([`take_outcome`]), or come from a resumed session.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use base::clock::WallTime;

use crate::error::FailureKind;
use crate::settings::{AlternativeName, ClientVerify};
use crate::verify::{Purpose, Trusted};
use crate::verify_code::{self as code, VerifyCode};
use crate::x509;

/// The errors found in the peer's chain. All are 0 if verification found no errors or did not take place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct VerifyOutcome {
    /// The last error, ignored or not (`ssl_c_verify`).
    pub last: VerifyCode,
    /// The first error above the peer's own certificate (`ssl_c_ca_err`).
    pub ca: VerifyCode,
    /// The depth of that error.
    pub ca_depth: u8,
    /// The first error in the peer's own certificate (`ssl_c_err`).
    pub own: VerifyCode,
    /// HAProxy's failure kind for the error that was not ignored.
    pub(crate) refused: Option<FailureKind>,
}

thread_local! {
    static OUTCOME: Cell<VerifyOutcome> = const { Cell::new(VerifyOutcome {
        last: code::OK, ca: code::OK, ca_depth: 0, own: code::OK, refused: None,
    }) };
    static ROOT: RefCell<Option<Arc<[u8]>>> = const { RefCell::new(None) };
}

/// Takes the last certificate of the chain that was verified during the last turn.
pub(crate) fn take_root() -> Option<Arc<[u8]>> {
    ROOT.take()
}

/// Returns the errors found so far.
pub(crate) fn outcome() -> VerifyOutcome {
    OUTCOME.get()
}

pub(crate) fn set_outcome(outcome: VerifyOutcome) {
    OUTCOME.set(outcome);
}

/// Takes the errors found during the last turn.
pub(crate) fn take_outcome() -> VerifyOutcome {
    OUTCOME.take()
}

/// The verifier for a line's peers.
#[derive(Debug)]
pub(crate) struct Judge {
    /// The trust anchors; `None` to accept any peer.
    trusted: Option<Trusted>,
    of: Of,
    /// Whether keys and digests may be weak, as on OpenSSL's security levels 0 and 1.
    takes_weak: bool,
}

#[derive(Debug)]
enum Of {
    Clients(ClientVerify),
    /// The name that the certificate must match if none was sent (`verifyhost`), and the alternative names of which it must have one
    /// (`verifysan`).
    Server(Option<Box<str>>, Box<[AlternativeName]>),
}

impl Judge {
    pub(crate) fn of_clients(trusted: Trusted, verify: &ClientVerify) -> Self {
        Self { trusted: Some(trusted), of: Of::Clients(verify.clone()), takes_weak: false }
    }

    pub(crate) fn of_server(trusted: Option<Trusted>, names: (Option<&str>, &[AlternativeName])) -> Self {
        Self { trusted, of: Of::Server(names.0.map(Box::from), names.1.into()), takes_weak: false }
    }

    /// Returns the same verifier, which accepts weak keys and digests or not.
    #[cfg_attr(not(feature = "legacy-tls"), allow(dead_code, reason = "rustls has one level"))]
    pub(crate) fn taking_weak(self, takes_weak: bool) -> Self {
        Self { takes_weak, ..self }
    }

    /// Verifies a chain in which `own` is first, and stores the outcome. `sent` is the server name that was sent.
    ///
    /// # Errors
    /// The error that was not ignored.
    pub(crate) fn verify(&self, own: &[u8], rest: &[&[u8]], sent: Option<&str>) -> Result<(), VerifyCode> {
        let Some(trusted) = &self.trusted else { return Ok(()) };
        let purpose = if matches!(self.of, Of::Clients(_)) { Purpose::Client } else { Purpose::Server };
        let mut outcome = VerifyOutcome::default();
        let result = trusted.verify(own, rest, purpose, WallTime::now().seconds, &mut |code, depth| {
            if self.takes_weak && code.is_weakness() {
                return true;
            }
            outcome.last = code;
            if depth == 0 && outcome.own == code::OK {
                outcome.own = code;
            } else if depth > 0 && outcome.ca == code::OK {
                (outcome.ca, outcome.ca_depth) = (code, u8::try_from(depth).unwrap_or(u8::MAX));
            }
            outcome.refused = self.forgives(code, depth).err();
            outcome.refused.is_none()
        });
        OUTCOME.set(outcome);
        ROOT.set(Some(result.map_err(|_| outcome.last)?));
        self.check_name(own, sent)
    }

    fn forgives(&self, code: VerifyCode, depth: usize) -> Result<(), FailureKind> {
        let (codes, kind) = match (&self.of, depth) {
            (Of::Server(..), _) => return Err(FailureKind::Handshake),
            (Of::Clients(verify), 0) => (verify.crt_ignore, FailureKind::CrtFail),
            (Of::Clients(verify), _) => (verify.ca_ignore, FailureKind::CaFail),
        };
        if codes.contains(code) { Ok(()) } else { Err(kind) }
    }

    fn check_name(&self, own: &[u8], sent: Option<&str>) -> Result<(), VerifyCode> {
        let (wanted, kind) = match &self.of {
            Of::Clients(_) => return Ok(()),
            Of::Server(_, alternatives) if !alternatives.is_empty() => {
                let has =
                    |facts: &x509::CertificateFields<'_>| alternatives.iter().any(|name| name.is_of(facts));
                if x509::CertificateFields::parse(own).is_ok_and(|facts| has(&facts)) {
                    return Ok(());
                }
                return Err(Self::refuse_name(FailureKind::Mismatch));
            }
            Of::Server(..) if sent.is_some() => (sent, FailureKind::MismatchSni),
            Of::Server(host, _) => (host.as_deref(), FailureKind::Mismatch),
        };
        let Some(wanted) = wanted else { return Ok(()) };
        if x509::CertificateFields::parse(own).is_ok_and(|facts| facts.is_for(wanted)) {
            return Ok(());
        }
        Err(Self::refuse_name(kind))
    }

    /// Stores the outcome of a name that does not match, and returns its code.
    fn refuse_name(kind: FailureKind) -> VerifyCode {
        let last = code::HOSTNAME_MISMATCH;
        OUTCOME.set(VerifyOutcome { last, own: last, refused: Some(kind), ..VerifyOutcome::default() });
        last
    }
}
