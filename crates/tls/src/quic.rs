//! TLS handshakes over QUIC (RFC 9001): CRYPTO bytes in and out, and keys that protect packets.
//!
//! For a listener, a [`QuicHandshake`] waits for the whole ClientHello, and then chooses the certificate as for TCP
//! ([`Acceptor::choose`]). For a server, it uses the settings and sessions of the server's line ([`Connector`]). Both publish the
//! same [`Details`] as over TCP. Called by the crate `quic`.

use std::sync::Arc;

use crate::acceptor::{Acceptor, Engine, ServerConfig};
use crate::capture::Keep;
use crate::connector::Connector;
use crate::details::Details;
use crate::engine::quic::QuicEngine;
use crate::engine::{self, HandshakeFacts};
use crate::error::{Error, FailureKind, Reason};
use crate::finished;
use crate::hello::Hello;
use crate::limit::ConnectionPermit;
use crate::verify_policy::{self, VerifyOutcome};

pub use crate::engine::quic::{DirectionKeys, Forged, HeaderKey, LevelKeys, PacketKey, is_retry, retry_tag};
pub use crate::quic_options::PROTOCOLS;

/// The maximum size of a ClientHello over QUIC. Post-quantum key shares and long tickets fit several times.
const HELLO_MAX: usize = 1 << 16;

/// The alert for failures without their own.
const HANDSHAKE_FAILURE: u8 = 40;

/// A failed handshake.
#[derive(Debug, Clone, Copy)]
pub struct QuicFailure {
    /// The error, as logged.
    pub error: Error,
    /// The TLS alert for the CONNECTION_CLOSE frame (RFC 9001, 4.8).
    pub alert: u8,
}

/// One side of a TLS handshake over QUIC.
pub struct QuicHandshake {
    phase: Phase,
    details: Arc<Details>,
    keep: Keep,
    /// The messages of the client and the server, if the Finished messages are kept.
    overheard: Option<Box<[Vec<u8>; 2]>>,
    is_client: bool,
    /// Counts this connection as long as it exists.
    _place: ConnectionPermit,
}

enum Phase {
    /// Waits for the complete ClientHello: the settings of the listener, our transport parameters, and the bytes so far.
    Hello(Arc<Acceptor>, Vec<u8>, Vec<u8>),
    Running(QuicEngine),
    Failed(QuicFailure),
}

impl QuicHandshake {
    /// Creates the server side for a listener. `parameters` are the local transport parameters. `place` is the slot reserved for
    /// the connection.
    pub fn accept(
        acceptor: &Arc<Acceptor>,
        parameters: Vec<u8>,
        keep: Keep,
        place: Option<ConnectionPermit>,
    ) -> Self {
        let keep = keep.or(acceptor.keep());
        let mut details = Details::default();
        if keep.is_any() {
            details.captured.get_or_insert_default();
        }
        Self {
            phase: Phase::Hello(acceptor.clone(), parameters, Vec::new()),
            details: Arc::new(details),
            keep,
            overheard: keep.finished.then(Box::default),
            is_client: false,
            _place: place.unwrap_or_else(ConnectionPermit::force).begin(),
        }
    }

    /// Creates the client side with the settings of a server line, and `name` as SNI if present. `parameters` are the local
    /// transport parameters. If `early` is set, data may be sent before the server's answer, provided that the line and an
    /// earlier session allow this ([`early_keys`](Self::early_keys)).
    ///
    /// # Errors
    /// The settings leave nothing to offer, or there are too many connections.
    pub fn connect(
        connector: &Connector,
        name: Option<&str>,
        parameters: Vec<u8>,
        keep: Keep,
        early: bool,
    ) -> Result<Self, Error> {
        let place = ConnectionPermit::take().ok_or(Error {
            kind: FailureKind::TooMany,
            reason: Reason::None,
            verify: 0,
        })?;
        let side = connector.quic_side().ok_or(Error::handshake(Reason::UnsupportedProtocol))?;
        let keep = keep.or(connector.keep());
        engine::session_extras::begin_turn(VerifyOutcome::default(), 0);
        let engine = QuicEngine::client(&side, name, early, parameters);
        let (_, group) = engine::session_extras::end_turn();
        let mut details = Details { sni: name.map(Box::from), group, ..Details::default() };
        if keep.is_any() {
            details.captured.get_or_insert_default();
        }
        Ok(Self {
            phase: Phase::Running(engine?),
            details: Arc::new(details),
            keep,
            overheard: keep.finished.then(Box::default),
            is_client: true,
            _place: place.begin(),
        })
    }

    /// Processes received CRYPTO bytes.
    ///
    /// # Errors
    /// The handshake failed.
    pub fn read(&mut self, bytes: &[u8]) -> Result<(), QuicFailure> {
        self.overhear(usize::from(self.is_client), bytes);
        if self.is_client
            && self.details.captured.is_some()
            && let Some(captured) = &mut Arc::make_mut(&mut self.details).captured
        {
            captured.note_server_message(bytes);
        }
        let read = self.turn(|this| this.advance(bytes));
        if let Err(mut failure) = read {
            if let Some(kind) = self.details.verify.refused {
                let verify = self.details.verify.last.0;
                failure.error = Error { kind, reason: Reason::CertificateVerifyFailed, verify };
            }
            self.fail(failure);
            return Err(failure);
        }
        if self.is_established()
            && let Some(messages) = self.overheard.take()
            && let Some(captured) = &mut Arc::make_mut(&mut self.details).captured
        {
            captured.finished = messages.map(|messages| finished::of_messages(&messages).unwrap_or_default());
        }
        Ok(())
    }

    /// Records messages of one side, up to a limit.
    fn overhear(&mut self, side: usize, bytes: &[u8]) {
        if let Some(messages) = &mut self.overheard
            && messages[side].len() + bytes.len() <= 2 * HELLO_MAX
        {
            messages[side].extend_from_slice(bytes);
        }
    }

    /// Appends CRYPTO bytes to `out`. Returned keys protect what the next call appends.
    pub fn write(&mut self, out: &mut Vec<u8>) -> Option<LevelKeys> {
        let from = out.len();
        let keys = self.turn(|this| match &mut this.phase {
            Phase::Running(engine) => engine.write(out),
            Phase::Hello(..) | Phase::Failed(_) => None,
        });
        self.overhear(usize::from(!self.is_client), &out[from..]);
        if out.len() > from
            && self.details.captured.is_some()
            && let Some(captured) = &mut Arc::make_mut(&mut self.details).captured
        {
            match self.is_client {
                true => captured.note_own_message(&out[from..]),
                false => captured.note_server_message(&out[from..]),
            }
        }
        keys
    }

    /// Runs the engine with the state of this connection for verifiers, sessions and key logs.
    fn turn<R>(&mut self, run: impl FnOnce(&mut Self) -> R) -> R {
        engine::session_extras::begin_turn(self.details.verify, self.details.group);
        engine::key_log::want_secrets(self.keep.session || self.keep.finished || self.keep.secrets);
        let was_established = self.is_established();
        let result = run(self);
        let (outcome, group) = engine::session_extras::end_turn();
        let secrets = engine::key_log::take_secrets();
        let keep = self.keep;
        // The last turn may have verified the peer.
        if was_established && secrets.is_empty() {
            return result;
        }
        let details = Arc::make_mut(&mut self.details);
        details.verify = outcome;
        details.root = verify_policy::take_root().or(details.root.take());
        details.group = group;
        if let Some(captured) = &mut details.captured {
            captured.note_secrets(secrets, keep);
        }
        result
    }

    fn advance(&mut self, bytes: &[u8]) -> Result<(), QuicFailure> {
        match &mut self.phase {
            Phase::Hello(acceptor, parameters, received) => {
                received.extend_from_slice(bytes);
                let wanted = Hello::length(received).map_err(failure)?;
                if wanted.is_some_and(|wanted| wanted > HELLO_MAX) || received.len() > HELLO_MAX {
                    return Err(failure(Reason::PacketLengthTooLong));
                }
                let Some(wanted) = wanted.filter(|wanted| received.len() >= *wanted) else { return Ok(()) };
                let hello = Hello::parse(&received[..wanted]).map_err(failure)?;
                let details = Arc::make_mut(&mut self.details);
                let mut captured = details.captured.take();
                if let Some(captured) = &mut captured {
                    captured.note_hello(&hello, self.keep);
                }
                let chosen = acceptor.choose(&hello);
                *details = Details { captured, ..chosen.details };
                let of_error = |error: Error| QuicFailure {
                    error,
                    alert: error.reason.alert().unwrap_or(HANDSHAKE_FAILURE),
                };
                let side = match chosen.config.map_err(of_error)? {
                    ServerConfig(Engine::Rustls(side)) => side,
                    // OpenSSL serves clients without TLS 1.3, which QUIC requires.
                    ServerConfig(Engine::OpenSsl(_)) => return Err(failure(Reason::UnsupportedProtocol)),
                };
                let mut engine = QuicEngine::server(&side, std::mem::take(parameters)).map_err(of_error)?;
                let read = engine.read(received);
                self.phase = Phase::Running(engine);
                read
            }
            Phase::Running(engine) => engine.read(bytes),
            Phase::Failed(failure) => return Err(*failure),
        }
        .map_err(|(error, alert)| QuicFailure { error, alert })?;
        self.publish()
    }

    /// Updates the details once the parameters of the connection are known.
    fn publish(&mut self) -> Result<(), QuicFailure> {
        let Phase::Running(engine) = &self.phase else { return Ok(()) };
        let Ok(HandshakeFacts { version, suite, group, alpn, is_resumed, peer }) = engine.facts() else {
            return Ok(());
        };
        let is_over = !engine.is_handshaking();
        let details = Arc::make_mut(&mut self.details);
        (details.version, details.suite, details.group) = (version, suite, group);
        (details.alpn, details.is_resumed, details.peer) = (alpn, is_resumed, peer);
        engine::session_extras::set_group(group);
        if is_over && !is_resumed && details.peer.is_empty() {
            engine::session_extras::forget_outcome();
        }
        if is_over {
            details.early.settle();
        } else if !engine.is_client() && engine.early_keys().is_some() {
            details.early.note(true);
        }
        Ok(())
    }

    fn fail(&mut self, failure: QuicFailure) {
        let details = Arc::make_mut(&mut self.details);
        details.failure = Some(failure.error);
        self.phase = Phase::Failed(failure);
    }

    /// Records that the connection ended before the handshake.
    pub fn cut_off(&mut self) -> Error {
        let error = Error { kind: FailureKind::Handshake, reason: Reason::UnexpectedEof, verify: 0 };
        if !matches!(self.phase, Phase::Failed(_)) {
            self.fail(QuicFailure { error, alert: HANDSHAKE_FAILURE });
        }
        error
    }

    /// Whether the handshake is complete.
    pub fn is_established(&self) -> bool {
        matches!(&self.phase, Phase::Running(engine) if !engine.is_handshaking())
    }

    /// Whether the ClientHello was received and answered, or sent.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running(_))
    }

    /// Returns the negotiated parameters so far.
    pub fn details(&self) -> &Arc<Details> {
        &self.details
    }

    /// Returns the peer's transport parameters (RFC 9000, 18) once they are known. For a server, these are at first the ones that
    /// it sent in the resumed session.
    pub fn peer_parameters(&self) -> Option<&[u8]> {
        match &self.phase {
            Phase::Running(engine) => engine.peer_parameters(),
            Phase::Hello(..) | Phase::Failed(_) => None,
        }
    }

    /// Returns the keys of 0-RTT packets: on the server's side if they are accepted, on the client's if they may be sent.
    pub fn early_keys(&self) -> Option<DirectionKeys> {
        match &self.phase {
            Phase::Running(engine) => engine.early_keys(),
            Phase::Hello(..) | Phase::Failed(_) => None,
        }
    }

    /// Whether the server has accepted our early data.
    pub fn accepts_early(&self) -> bool {
        matches!(&self.phase, Phase::Running(engine) if engine.accepts_early())
    }

    /// Returns the packet keys for the next key update (RFC 9001, 6): for sending, for receiving.
    pub fn next_keys(&mut self) -> Option<(PacketKey, PacketKey)> {
        match &mut self.phase {
            Phase::Running(engine) => engine.next_keys(),
            Phase::Hello(..) | Phase::Failed(_) => None,
        }
    }

    /// Drops the state of a complete handshake. Afterwards keys can only be updated: servers send no more messages, and clients have
    /// none to send.
    pub fn settle(&mut self) {
        if let Phase::Running(engine) = &mut self.phase {
            engine.settle();
        }
    }
}

fn failure(reason: Reason) -> QuicFailure {
    QuicFailure { error: Error::handshake(reason), alert: reason.alert().unwrap_or(HANDSHAKE_FAILURE) }
}
