//! One TLS connection without its socket. Called by `net::Stream`.
//!
//! Received bytes are decrypted from one of the caller's buffers into another one, and sent bytes are encrypted into the caller's
//! buffer. The session stores partial records, plaintext for which the caller had no room, and encrypted bytes that were not sent.

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
    /// Received ciphertext that is not decrypted yet.
    kept: PendingBytes,
    /// Plaintext for which the caller had no room.
    plain: PendingBytes,
    /// Unsent ciphertext.
    unsent: PendingBytes,
    /// Shared with logs and rules once the handshake is complete.
    details: Arc<Details>,
    limits: Limits,
    keep: Keep,
    /// Counts this connection as long as it exists.
    _place: ConnectionPermit,
    is_client: bool,
    /// The recorded handshake, until it is complete.
    overheard: Option<Box<Overheard>>,
    ended: PeerEnd,
}

/// The phase of a session.
enum HandshakePhase {
    /// Waits for the complete ClientHello.
    Hello(Arc<Acceptor>, Deframer),
    Handshake(Box<Handshake>),
    Established(Box<Records>),
    /// Handshake and records by OpenSSL.
    Legacy(Box<legacy::LegacyLink>, LegacyStage),
    Failed(Error),
}

/// The stage of an OpenSSL connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LegacyStage {
    Handshake,
    Established,
}

/// How the peer's side ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PeerEnd {
    /// The peer has not ended the connection.
    #[default]
    No,
    /// By close_notify.
    Cleanly,
    /// The transport ended without close_notify, so the data may be truncated.
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
    /// Creates a listener's side.
    pub fn accept(acceptor: &Arc<Acceptor>) -> Self {
        Self::accept_begun(acceptor, &[], None)
    }

    /// Creates the server side with bytes that were already received from the client. Uses the reserved slot.
    pub fn accept_begun(acceptor: &Arc<Acceptor>, received: &[u8], place: Option<ConnectionPermit>) -> Self {
        let hello = HandshakePhase::Hello(acceptor.clone(), Deframer::with(received));
        let mut session = Self::new(hello, acceptor.limits(), place.unwrap_or_else(ConnectionPermit::force));
        session.keep(acceptor.keep());
        session
    }

    /// Creates the client side. `name` is sent as SNI if present. The first call to [`handshake`](Self::handshake)
    /// needs no bytes.
    ///
    /// # Errors
    /// The line's settings leave nothing to offer, or there are too many connections.
    pub fn connect(connector: &Connector, name: Option<&str>) -> Result<Self, Error> {
        Self::connect_early(connector, name, false)
    }

    /// Like [`connect`](Self::connect). With `early`, data may be sent before the server's answer, if the line and an earlier
    /// session allow this ([`is_early`](Self::is_early)).
    ///
    /// # Errors
    /// The errors of [`connect`](Self::connect).
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

    /// Adds to the data that is kept from the handshake. Must be called before the handshake begins.
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

    /// Processes `received` and continues the handshake. Returns `true` once the handshake is complete. In any case, the
    /// [`unsent`](Self::unsent) bytes must be sent.
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
        // A resumed TLS 1.2 session has no key exchange, so the group is that of the original session.
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
        // In TLS 1.2, the suite is only final when the handshake is complete.
        if details.version == TLS13 {
            details.suite = suite;
        }
        self.phase = HandshakePhase::Failed(error);
    }

    /// Returns the details for writing. There are no other references before the handshake is complete.
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
                let legacy::HandshakeResult { version, suite, group, alpn, is_resumed, peer } =
                    link.handshake_result();
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

    /// Takes a client's early data. If the data may be served, publishes the details of the client now.
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
        (details.alpn, details.is_resumed, details.peer) = (alpn, is_resumed, peer);
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
        (details.alpn, details.is_resumed, details.peer) = (alpn, is_resumed, peer);
        if !is_resumed && details.peer.is_empty() {
            engine::session_extras::forget_outcome();
        }
        // rustls reports this secret whenever a session is resumed, OpenSSL only with early data.
        let said_early = details.early.came() || was_early;
        if let Some(captured) = details.captured.as_mut().filter(|_| !said_early) {
            captured.forget("CLIENT_EARLY_TRAFFIC_SECRET");
        }
        details.early.settle();
        if refused_early {
            return Err(Error { kind: FailureKind::EarlyData, reason: Reason::None, verify: 0 });
        }
        if details.is_challenge {
            // The client that validates the challenge has seen the certificate.
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

    /// Whether data can be transferred before the handshake is complete. On the server side, this means that a client's early
    /// data has arrived. It may be a replay, but only the genuine client can read the response. On the client side, data that is
    /// sent now may be rejected unprocessed.
    #[inline]
    pub fn is_early(&self) -> bool {
        matches!(&self.phase, HandshakePhase::Handshake(handshake) if handshake.is_early())
    }

    /// Returns the negotiated parameters.
    pub fn details(&self) -> &Arc<Details> {
        &self.details
    }

    /// Returns the reason why the session failed, if it did.
    pub fn failure(&self) -> Option<Error> {
        match &self.phase {
            HandshakePhase::Failed(error) => Some(*error),
            _ => None,
        }
    }

    /// Records that the transport has ended. Returns `true` if the peer had sent close_notify.
    pub fn transport_ended(&mut self) -> bool {
        if self.ended == PeerEnd::No {
            self.ended = PeerEnd::Cut;
        }
        self.ended == PeerEnd::Cleanly
    }

    /// Returns the failure of a handshake after its transport has ended.
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

    /// Whether the session uses TLS 1.3.
    pub fn is_tls13(&self) -> bool {
        self.details.version == TLS13
    }
}

/// Starts the handshake with the engine chosen by `acceptor`, once the ClientHello is complete.
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
