//! One TLS connection without its socket: bytes go in, bytes come out.
//!
//! Received bytes are opened from the caller's buffer into the caller's buffer, and what is sent is
//! sealed into the caller's buffer. The session keeps what is not a whole record yet, plaintext
//! that the caller had no room for, and sealed bytes that were not sent. Called by `net::Stream`.

mod data;

use std::sync::Arc;

use crate::acceptor::{Acceptor, Engine, ServerConfig};
use crate::buffer::PendingBytes;
use crate::capture::Keep;
use crate::connector::{Connector, HandshakeEngine};
use crate::deframer::Deframer;
use crate::details::Details;
use crate::engine::{self, Finished, Handshake, HandshakeFacts};
use crate::error::{Error, FailureKind, Reason};
use crate::finished::Overheard;
use crate::hello::Hello;
use crate::limit::ConnectionPermit;
use crate::records::Records;
use crate::settings::Limits;
use crate::verify_policy::VerifyOutcome;
use crate::{TLS13, legacy, record, verify_policy};

pub use data::OpenedData;

/// A TLS connection.
pub struct Session {
    phase: HandshakePhase,
    /// Ciphertext that was received and is not opened.
    kept: PendingBytes,
    /// Plaintext that the caller had no room for.
    plain: PendingBytes,
    /// Ciphertext that was not sent.
    unsent: PendingBytes,
    /// Shared with those who tell of it once the handshake is over.
    details: Arc<Details>,
    limits: Limits,
    keep: Keep,
    /// Counts this one among those that live.
    _place: ConnectionPermit,
    is_client: bool,
    /// What is listened to until the handshake is over.
    overheard: Option<Box<Overheard>>,
    ended: PeerEnd,
}

/// How far a session is.
enum HandshakePhase {
    /// Waits for the whole ClientHello.
    Hello(Arc<Acceptor>, Deframer),
    Handshake(Box<Handshake>),
    Established(Box<Records>),
    /// The handshake, and later all records, with OpenSSL.
    Legacy(Box<legacy::LegacyLink>, LegacyStage),
    Failed(Error),
}

/// How far a connection is that OpenSSL makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LegacyStage {
    Handshake,
    Established,
}

/// How the peer's side ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerEnd {
    /// It did not.
    #[default]
    No,
    /// By close_notify.
    Cleanly,
    /// The transport ended without a word: what was received may not be everything.
    Cut,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let phase = match &self.phase {
            HandshakePhase::Hello(..) => "hello",
            HandshakePhase::Handshake(_) => "handshake",
            HandshakePhase::Established(_) | HandshakePhase::Legacy(_, LegacyStage::Established) => {
                "established"
            }
            HandshakePhase::Legacy(_, LegacyStage::Handshake) => "handshake",
            HandshakePhase::Failed(_) => "failed",
        };
        f.debug_struct("Session").field("phase", &phase).finish_non_exhaustive()
    }
}

impl Session {
    /// The side of a listener.
    pub fn accept(acceptor: &Arc<Acceptor>) -> Self {
        Self::accept_begun(acceptor, &[], None)
    }

    /// The side of a listener, of whose client some bytes were received already, in the place that
    /// was taken for it.
    pub fn accept_begun(acceptor: &Arc<Acceptor>, received: &[u8], place: Option<ConnectionPermit>) -> Self {
        let hello = HandshakePhase::Hello(acceptor.clone(), Deframer::with(received));
        let mut session = Self::new(hello, acceptor.limits(), place.unwrap_or_else(ConnectionPermit::force));
        session.keep(acceptor.keep());
        session
    }

    /// The side of a client; `name` is sent as SNI where there is one. The first call of
    /// [`handshake`](Self::handshake) needs no bytes.
    ///
    /// # Errors
    /// The line's settings leave nothing to offer, or there are too many connections.
    pub fn connect(connector: &Connector, name: Option<&str>) -> Result<Self, Error> {
        Self::connect_early(connector, name, false)
    }

    /// As [`connect`](Self::connect); with `early` data may be sent before the server says
    /// anything, if the line and a session of before allow it ([`is_early`](Self::is_early)).
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_early(connector: &Connector, name: Option<&str>, early: bool) -> Result<Self, Error> {
        let place = ConnectionPermit::take().ok_or(Error {
            kind: FailureKind::TooMany,
            reason: Reason::None,
            verify: 0,
        })?;
        engine::session_extras::begin_turn(VerifyOutcome::default(), 0);
        let phase = match &*connector.side(name) {
            HandshakeEngine::Rustls(side) => {
                Handshake::client(side, name, early).map(|one| HandshakePhase::Handshake(Box::new(one)))
            }
            HandshakeEngine::OpenSsl(side) => legacy::LegacyLink::client(side, name)
                .map(|link| HandshakePhase::Legacy(Box::new(link), LegacyStage::Handshake)),
        };
        let (_, group) = engine::session_extras::end_turn();
        let mut session = Self::new(phase?, connector.limits(), place);
        let details = session.details_mut();
        (details.sni, details.group) = (name.map(Box::from), group);
        session.keep(connector.keep());
        Ok(session)
    }

    /// Keeps of the handshake, which has not begun, also what `keep` says.
    pub fn keep(&mut self, keep: Keep) {
        self.keep = self.keep.or(keep);
        if self.keep.is_any() {
            self.details_mut().captured.get_or_insert_default();
        }
        if self.keep.finished {
            self.overheard.get_or_insert_default();
        }
    }

    fn new(phase: HandshakePhase, limits: Limits, place: ConnectionPermit) -> Self {
        Self {
            is_client: !matches!(phase, HandshakePhase::Hello(..)),
            phase,
            kept: PendingBytes::default(),
            plain: PendingBytes::default(),
            unsent: PendingBytes::default(),
            details: Arc::default(),
            limits,
            keep: Keep::default(),
            _place: place.begin(),
            overheard: None,
            ended: PeerEnd::No,
        }
    }

    /// Takes `received` and goes on with the handshake. `true` once it is complete. Whatever it
    /// comes to, [`unsent`](Self::unsent) bytes are to be sent.
    ///
    /// # Errors
    /// The handshake failed.
    pub fn handshake(&mut self, received: &[u8]) -> Result<bool, Error> {
        let mut out = Vec::new();
        engine::session_extras::begin_turn(self.details.verify, self.details.group);
        engine::key_log::want_secrets(self.keep.session || self.keep.finished || self.keep.secrets);
        let mut result = self.advance(received, &mut out);
        let (outcome, group) = engine::session_extras::end_turn();
        let details = Arc::make_mut(&mut self.details);
        details.verify = outcome;
        details.root = verify_policy::take_root().or(details.root.take());
        // A session of TLS 1.2 that is resumed exchanges no key: the group is that of the session.
        if !matches!(self.phase, HandshakePhase::Established(_) | HandshakePhase::Legacy(..))
            || (details.group == 0 && details.is_resumed)
        {
            details.group = group;
        }
        if let Some(captured) = &mut details.captured {
            if self.is_client {
                captured.note_own_hello(&out);
                captured.note_server(received);
            } else {
                captured.note_server(&out);
            }
            let secrets = engine::key_log::take_secrets();
            if let Some(overheard) = &mut self.overheard {
                let [client, server] = if self.is_client { [&*out, received] } else { [received, &*out] };
                overheard.listen(client, server, &secrets);
            }
            if result == Ok(true)
                && let Some(overheard) = self.overheard.take()
            {
                let randoms = [&captured.client_random, &captured.server_random];
                captured.finished = overheard.finished(details.suite, details.version == TLS13, randoms);
            }
            captured.note_secrets(secrets, self.keep);
        }
        self.unsent.append(&out);
        if let (Err(error), Some(kind)) = (&mut result, outcome.refused) {
            *error = Error { kind, reason: Reason::CertificateVerifyFailed, verify: outcome.last.0 };
        }
        if let Err(error) = result {
            self.fail(error);
        }
        result
    }

    fn fail(&mut self, error: Error) {
        let suite =
            if let HandshakePhase::Handshake(handshake) = &self.phase { handshake.suite() } else { 0 };
        let details = self.details_mut();
        details.failure = Some(error);
        // In TLS 1.2 a suite counts only once the handshake is over.
        if details.version == TLS13 {
            details.suite = suite;
        }
        self.phase = HandshakePhase::Failed(error);
    }

    /// Nobody else has them before the handshake is over.
    fn details_mut(&mut self) -> &mut Details {
        Arc::make_mut(&mut self.details)
    }

    fn advance(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<bool, Error> {
        match &mut self.phase {
            HandshakePhase::Hello(acceptor, deframer) => {
                match begin(acceptor, deframer, received, Arc::make_mut(&mut self.details), self.keep) {
                    Ok(None) => return Ok(false),
                    Ok(Some(phase)) => self.phase = phase,
                    Err(error) => {
                        out.extend(error.reason.alert().map(fatal_alert).iter().flatten());
                        return Err(error);
                    }
                }
                self.advance(&[], out)
            }
            HandshakePhase::Handshake(handshake) => {
                let complete = handshake.advance(received, out)?;
                self.take_early()?;
                self.conclude(complete)
            }
            HandshakePhase::Legacy(link, stage @ LegacyStage::Handshake) => {
                if !link.handshake(received, out)? {
                    return Ok(false);
                }
                let legacy::HandshakeResult { version, suite, group, alpn, is_resumed, peer } = link.told();
                *stage = LegacyStage::Established;
                let details = Arc::make_mut(&mut self.details);
                (details.version, details.suite, details.group) = (version, suite, group);
                (details.alpn, details.is_resumed, details.peer) = (alpn, is_resumed, peer.into());
                Ok(true)
            }
            HandshakePhase::Established(_) | HandshakePhase::Legacy(_, LegacyStage::Established) => Ok(true),
            HandshakePhase::Failed(error) => Err(*error),
        }
    }

    /// Takes what a client sent before the end of its handshake. Where it may be served, what is
    /// known of the client is told now.
    fn take_early(&mut self) -> Result<(), Error> {
        let HandshakePhase::Handshake(handshake) = &mut self.phase else { return Ok(()) };
        if !handshake.has_early() {
            return Ok(());
        }
        self.plain.append(&handshake.take_early());
        if self.details.early.came() {
            return Ok(());
        }
        let HandshakeFacts { version, suite, group, alpn, is_resumed, peer } = handshake.facts()?;
        let pending = handshake.is_early();
        let details = self.details_mut();
        (details.version, details.suite, details.group) = (version, suite, group);
        (details.alpn, details.is_resumed, details.peer) = (alpn, is_resumed, peer.into());
        details.early.note(pending);
        Ok(())
    }

    /// Turns a complete handshake into an established connection.
    fn conclude(&mut self, complete: bool) -> Result<bool, Error> {
        if !complete {
            return Ok(false);
        }
        let failed = HandshakePhase::Failed(Error::handshake(Reason::InternalError));
        let HandshakePhase::Handshake(handshake) = std::mem::replace(&mut self.phase, failed) else {
            return Err(Error::handshake(Reason::InternalError));
        };
        let was_early = handshake.is_early();
        let Finished {
            version,
            suite,
            group,
            alpn,
            is_resumed,
            peer,
            seal,
            open,
            kernel,
            rest,
            refused_early,
        } = handshake.finish()?;
        let details = self.details_mut();
        (details.version, details.suite, details.group) = (version, suite, group);
        (details.alpn, details.is_resumed, details.peer) = (alpn, is_resumed, peer.into());
        if !is_resumed && details.peer.is_empty() {
            engine::session_extras::forget_outcome();
        }
        // rustls tells this secret whenever a session is resumed, OpenSSL where there is such data.
        let said_early = details.early.came() || was_early;
        if let Some(captured) = details.captured.as_mut().filter(|_| !said_early) {
            captured.forget("CLIENT_EARLY_TRAFFIC_SECRET");
        }
        details.early.settle();
        if refused_early {
            return Err(Error { kind: FailureKind::EarlyData, reason: Reason::None, verify: 0 });
        }
        if details.is_challenge {
            // The client has seen what it wanted to see.
            self.ended = PeerEnd::Cleanly;
        } else {
            self.kept.append(&rest);
        }
        self.phase = HandshakePhase::Established(Box::new(Records::new(
            seal,
            open,
            kernel,
            self.limits.key_updates,
            self.is_client,
        )));
        Ok(true)
    }

    /// Whether the handshake is complete.
    pub fn is_established(&self) -> bool {
        matches!(
            self.phase,
            HandshakePhase::Established(_) | HandshakePhase::Legacy(_, LegacyStage::Established)
        )
    }

    /// Whether data go either way though the handshake is not complete. Of a listener: a client's
    /// early data have come, which somebody else may have sent once more; what is sent goes to the
    /// client alone. Of a client: what is sent now may be refused, and then was not served.
    #[inline]
    pub fn is_early(&self) -> bool {
        matches!(&self.phase, HandshakePhase::Handshake(handshake) if handshake.is_early())
    }

    /// What was negotiated.
    pub fn details(&self) -> &Arc<Details> {
        &self.details
    }

    /// Why it failed, if it did.
    pub fn failure(&self) -> Option<Error> {
        match &self.phase {
            HandshakePhase::Failed(error) => Some(*error),
            _ => None,
        }
    }

    /// Notes that the transport ended. `true` where the peer had said so before.
    pub fn transport_ended(&mut self) -> bool {
        if self.ended == PeerEnd::No {
            self.ended = PeerEnd::Cut;
        }
        self.ended == PeerEnd::Cleanly
    }

    /// Why a handshake failed whose transport ended.
    pub fn cut_off(&mut self, failed: bool) -> Error {
        let said_nothing = matches!(&self.phase, HandshakePhase::Hello(_, deframer) if deframer.is_empty());
        let kind = match failed {
            true => FailureKind::Abort,
            false if said_nothing => FailureKind::Empty,
            false => FailureKind::Handshake,
        };
        let reason = if kind == FailureKind::Handshake { Reason::UnexpectedEof } else { Reason::None };
        let error = Error { kind, reason, verify: 0 };
        self.fail(error);
        error
    }

    /// Whether it speaks TLS 1.3.
    pub fn is_tls13(&self) -> bool {
        self.details.version == TLS13
    }
}

/// Begins the handshake with the engine that `acceptor` chooses, once the ClientHello is complete.
fn begin(
    acceptor: &Acceptor,
    deframer: &mut Deframer,
    received: &[u8],
    details: &mut Details,
    keep: Keep,
) -> Result<Option<HandshakePhase>, Error> {
    let Some(message) = deframer.push(received).map_err(Error::handshake)? else { return Ok(None) };
    let hello = Hello::parse(message).map_err(Error::handshake)?;
    let mut captured = details.captured.take();
    if let Some(captured) = &mut captured {
        captured.note_hello(&hello, keep);
    }
    let chosen = acceptor.choose(&hello);
    *details = Details { captured, ..chosen.details };
    let ServerConfig(engine) = chosen.config?;
    let received = std::mem::take(deframer).into_received();
    Ok(Some(match engine {
        Engine::Rustls(side) => HandshakePhase::Handshake(Box::new(Handshake::server(&side, received)?)),
        Engine::OpenSsl(side) => HandshakePhase::Legacy(
            Box::new(legacy::LegacyLink::server(&side, &received)?),
            LegacyStage::Handshake,
        ),
    }))
}

fn fatal_alert(alert: u8) -> [u8; 7] {
    [record::ALERT, 3, 3, 0, 2, 2, alert]
}
