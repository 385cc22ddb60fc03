//! The rustls engine: handshakes, their configurations, verification by webpki, and keys. No other module uses rustls.
//!
//! The engine performs handshakes and passes the resulting keys to the record layer ([`crate::record`]). After that, the engine
//! only updates keys and processes tickets.

mod chains;
mod compression;
mod error;
pub(crate) mod key;
pub(crate) mod key_log;
pub(crate) mod provider;
pub(crate) mod quic;
pub(crate) mod session_extras;
pub(crate) mod side;
pub(crate) mod tickets;
pub(crate) mod verify;

use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, ReadEarlyData, TransmitTlsData, UnbufferedStatus};
use rustls::{CommonState, ConnectionTrafficSecrets, HandshakeKind};

use crate::error::{Error, Reason};
use crate::record::{self, Aead, Direction};
use crate::traffic::TrafficSecrets;

pub(crate) use error::error_of;

/// The maximum number of unread handshake bytes. rustls accepts messages up to 64 KiB.
const INCOMING_MAX: usize = 1 << 18;

/// A handshake in progress.
pub(crate) struct Handshake {
    end: SessionEnd,
    /// Received bytes that were not processed yet. rustls sees the first `window` bytes, which end at a record boundary.
    incoming: Vec<u8>,
    window: usize,
    early: EarlyData,
    /// A server's secrets, once they are derived.
    traffic: TrafficSecrets,
}

/// The state of early data (RFC 8446, 2.3).
#[derive(Default)]
struct EarlyData {
    /// Received early data that was not taken yet, in order.
    received: Vec<u8>,
    /// Client: whether early data should be sent. Server: whether early data was received.
    is_begun: bool,
    /// Client: whether the ClientHello that offers early data was sent, and the server has not answered yet.
    is_open: bool,
    /// Client: whether the server has answered.
    is_over: bool,
    /// Client: the number of bytes sent.
    sent: usize,
    /// Client: whether the server accepted the early data.
    is_accepted: bool,
}

enum SessionEnd {
    Server(Box<UnbufferedServerConnection>),
    Client(Box<UnbufferedClientConnection>),
}

/// The result of a handshake.
pub(crate) struct Finished {
    pub(crate) version: u16,
    pub(crate) suite: u16,
    /// The key exchange group; 0 without a key exchange.
    pub(crate) group: u16,
    pub(crate) alpn: Option<Box<[u8]>>,
    pub(crate) is_resumed: bool,
    pub(crate) peer: Arc<[Box<[u8]>]>,
    pub(crate) seal: Direction,
    pub(crate) open: Direction,
    pub(crate) kernel: Kernel,
    /// Bytes received after the handshake.
    pub(crate) rest: Vec<u8>,
    /// Whether the server rejected the early data.
    pub(crate) refused_early: bool,
}

enum HandshakeStep {
    Again,
    /// Messages with this encoded length were produced.
    Encoded(usize),
    Blocked,
    /// Data may be sent, but not received.
    MaySend,
    /// The client may send data now, as early data.
    MaySendEarly,
    PeerClosed,
}

impl Handshake {
    /// Creates a server's side. `incoming` was received already.
    pub(crate) fn server(config: &side::RustlsServerSide, incoming: Vec<u8>) -> Result<Self, Error> {
        let end = UnbufferedServerConnection::new(config.0.clone()).map_err(|error| error_of(&error))?;
        Ok(Self::new(SessionEnd::Server(Box::new(end)), incoming))
    }

    /// Creates the client side. `name` is sent as SNI if present. If `early` is set and an earlier session allows it, data is
    /// sent before the server's answer.
    pub(crate) fn client(
        config: &side::RustlsClientSide,
        name: Option<&str>,
        early: bool,
    ) -> Result<Self, Error> {
        let mut handshake = Self::new(SessionEnd::Client(Box::new(config.connect(name, early)?)), Vec::new());
        handshake.early.is_begun = early;
        Ok(handshake)
    }

    fn new(end: SessionEnd, incoming: Vec<u8>) -> Self {
        Self { end, incoming, window: 0, early: EarlyData::default(), traffic: TrafficSecrets::default() }
    }

    /// Processes `received` until more bytes are needed. Appends output to `out`, even on an error. Returns `true` once the
    /// handshake is complete.
    pub(crate) fn advance(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<bool, Error> {
        if self.incoming.len() + received.len() > INCOMING_MAX {
            return Err(Error::handshake(Reason::PacketLengthTooLong));
        }
        self.incoming.extend_from_slice(received);
        self.early.is_over |= !received.is_empty();
        self.early.is_open &= !self.early.is_over;
        loop {
            match self.turn(out) {
                Ok(HandshakeStep::Again) => {}
                Ok(HandshakeStep::Encoded(length)) => self.note_encoded(&out[out.len() - length..]),
                Ok(HandshakeStep::MaySendEarly) => {
                    self.early.is_open = true;
                    return Ok(false);
                }
                Ok(HandshakeStep::MaySend) => return Ok(true),
                Ok(HandshakeStep::PeerClosed) => return Err(Error::handshake(Reason::None)),
                Ok(HandshakeStep::Blocked) => match record::frame(&self.incoming[self.window..]) {
                    Ok(Some(framed)) if self.incoming.len() >= self.window + framed.length => {
                        self.window += framed.length;
                    }
                    Ok(_) => return Ok(false),
                    Err(reason) => {
                        if let Some(alert) = reason.alert() {
                            out.extend_from_slice(&[record::ALERT, 3, 3, 0, 2, 2, alert]);
                        }
                        return Err(Error::handshake(reason));
                    }
                },
                Err(error) => {
                    self.last_words(out);
                    return Err(error);
                }
            }
        }
    }

    /// Runs the engine once on the visible bytes, and drops the processed bytes.
    fn turn(&mut self, out: &mut Vec<u8>) -> Result<HandshakeStep, Error> {
        let incoming = &mut self.incoming[..self.window];
        let group = match &self.end {
            SessionEnd::Server(end) => end.negotiated_key_exchange_group(),
            SessionEnd::Client(end) => end.negotiated_key_exchange_group(),
        };
        if let Some(group) = group {
            session_extras::set_group(group.name().into());
        }
        let holds = self.early.is_begun && !self.early.is_over;
        let (discard, step) = match &mut self.end {
            SessionEnd::Server(end) => key_log::watch_traffic(&mut self.traffic, || {
                turn(&mut **end, incoming, &mut self.early.received, out, false)
            }),
            SessionEnd::Client(end) => turn(&mut **end, incoming, &mut self.early.received, out, holds),
        };
        self.incoming.drain(..discard);
        self.window -= discard;
        match (step, &self.end) {
            // A server may send data before it has received the client's last message.
            (Ok(HandshakeStep::MaySend), SessionEnd::Server(end)) if end.is_handshaking() => {
                Ok(HandshakeStep::Blocked)
            }
            (step, SessionEnd::Server(_)) => {
                self.early.is_begun |= !self.early.received.is_empty();
                step
            }
            (step, _) => step,
        }
    }

    /// Detects the end of early data among a client's messages, which only exists if the server accepts the data. With the
    /// unbuffered API, rustls does not report this in any other way. The message is identified by its length, which is unique among
    /// the messages that a client encrypts before the end of its handshake (RFC 8446, 4.4 and 4.5): an alert is 2 bytes shorter,
    /// Certificate at least 4 bytes longer, CertificateVerify and Finished 32 bytes longer. rustls puts several of these messages
    /// into one record, but never the end of early data, which is encrypted with a different key.
    fn note_encoded(&mut self, record: &[u8]) {
        const END_OF_EARLY_DATA: usize = record::HEADER + 4 + 1 + record::TAG;
        let is_end = record.len() == END_OF_EARLY_DATA && record[0] == record::APPLICATION_DATA;
        self.early.is_accepted |= self.early.is_begun && is_end;
    }

    /// Whether data can be transferred before the handshake is complete: a client's received early data and the response to it, or
    /// early data that this side sends to a server.
    pub(crate) fn is_early(&self) -> bool {
        match &self.end {
            // As in HAProxy, only if a protocol was negotiated.
            SessionEnd::Server(end) => self.early.is_begun && end.alpn_protocol().is_some(),
            SessionEnd::Client(_) => self.early.is_open || self.early.sent > 0,
        }
    }

    /// Whether a client sent early data, which may not have been accepted yet.
    pub(crate) fn has_early(&self) -> bool {
        matches!(self.end, SessionEnd::Server(_)) && self.early.is_begun
    }

    /// Takes the received early data, in order.
    pub(crate) fn take_early(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.early.received)
    }

    /// Encrypts part of `first` and `second` into `out` while [`is_early`](Self::is_early) is true. Returns the number of plaintext
    /// bytes (0 once the early data limit is reached) and of ciphertext bytes.
    pub(crate) fn seal(
        &mut self,
        first: &[u8],
        second: &[u8],
        longest: usize,
        out: &mut [u8],
    ) -> Result<(usize, usize), Error> {
        let longest = if longest == 0 { record::PLAINTEXT_MAX } else { longest.min(record::PLAINTEXT_MAX) };
        let (mut taken, mut sealed) = (0, 0);
        for mut part in [first, second] {
            while !part.is_empty() {
                let space = (out.len() - sealed).saturating_sub(record::OVERHEAD_MAX);
                let wanted = part.len().min(longest).min(space);
                if wanted == 0 {
                    return Ok((taken, sealed));
                }
                let (n, written) = self.seal_one(&part[..wanted], &mut out[sealed..])?;
                (taken, sealed) = (taken + n, sealed + written);
                if n < wanted {
                    return Ok((taken, sealed));
                }
                part = &part[n..];
            }
        }
        Ok((taken, sealed))
    }

    /// Encrypts one record.
    fn seal_one(&mut self, bytes: &[u8], out: &mut [u8]) -> Result<(usize, usize), Error> {
        let broken = Error::fatal(Reason::InternalError);
        if matches!(self.end, SessionEnd::Client(_)) && !self.early.is_open {
            return Ok((0, 0));
        }
        let incoming = &mut self.incoming[..self.window];
        let (discard, sealed) = match &mut self.end {
            SessionEnd::Server(end) => {
                let UnbufferedStatus { discard, state } = end.process_tls_records(incoming);
                let sealed = match state {
                    Ok(ConnectionState::WriteTraffic(mut data)) => data.encrypt(bytes, out).ok(),
                    _ => None,
                };
                (discard, sealed.map(|sealed| (bytes.len(), sealed)))
            }
            SessionEnd::Client(end) => {
                let UnbufferedStatus { discard, state } = end.process_tls_records(incoming);
                let sealed = match state {
                    Ok(ConnectionState::TransmitTlsData(mut data)) => {
                        data.may_encrypt_early_data().and_then(|mut data| data.encrypt(bytes, out).ok())
                    }
                    _ => None,
                };
                // Data beyond the session's limit is silently dropped, but the length of the record shows how much was encrypted.
                let taken = |sealed: usize| (sealed.saturating_sub(record::HEADER + 1 + record::TAG), sealed);
                (discard, sealed.map(taken))
            }
        };
        self.incoming.drain(..discard);
        self.window -= discard;
        let (taken, sealed) = sealed.ok_or(broken)?;
        self.early.sent += taken;
        Ok((taken, sealed))
    }

    /// Appends the engine's alert for the peer. Earlier output was already taken, and another regular call would process the same
    /// messages again.
    fn last_words(&mut self, out: &mut Vec<u8>) {
        let incoming = &mut self.incoming[..self.window];
        let _ = match &mut self.end {
            SessionEnd::Server(end) => turn(&mut **end, incoming, &mut Vec::new(), out, false),
            SessionEnd::Client(end) => turn(&mut **end, incoming, &mut Vec::new(), out, false),
        };
    }

    /// Returns the cipher suite, as its TLS number; 0 before it is negotiated.
    pub(crate) fn suite(&self) -> u16 {
        let suite = match &self.end {
            SessionEnd::Server(end) => end.negotiated_cipher_suite(),
            SessionEnd::Client(end) => end.negotiated_cipher_suite(),
        };
        suite.map_or(0, |suite| suite.suite().into())
    }

    /// Returns the facts about a client with accepted early data.
    pub(crate) fn facts(&self) -> Result<HandshakeFacts, Error> {
        match &self.end {
            SessionEnd::Server(end) => HandshakeFacts::of(end),
            SessionEnd::Client(end) => HandshakeFacts::of(end),
        }
    }

    /// Extracts keys and facts from a complete handshake.
    pub(crate) fn finish(self) -> Result<Finished, Error> {
        let is_client = matches!(self.end, SessionEnd::Client(_));
        let internal = |_| Error::handshake(Reason::InternalError);
        let (mut facts, secrets, kernel) = match self.end {
            SessionEnd::Server(end) => {
                let facts = HandshakeFacts::of(&end)?;
                let (secrets, _) = end.dangerous_into_kernel_connection().map_err(internal)?;
                (facts, secrets, Kernel::Server(self.traffic))
            }
            SessionEnd::Client(end) => {
                let facts = HandshakeFacts::of(&end)?;
                let (secrets, kernel) = end.dangerous_into_kernel_connection().map_err(internal)?;
                (facts, secrets, Kernel::Client(Box::new(kernel)))
            }
        };
        let is_tls13 = facts.version == crate::TLS13;
        let direction = |(sequence, secrets): (u64, ConnectionTrafficSecrets)| {
            direction(sequence, &secrets, is_tls13).ok_or(Error::handshake(Reason::InternalError))
        };
        Ok(Finished {
            version: facts.version,
            suite: facts.suite,
            group: facts.group,
            alpn: facts.alpn.take(),
            is_resumed: facts.is_resumed,
            peer: facts.peer,
            seal: direction(secrets.tx)?,
            open: direction(secrets.rx)?,
            // TLS 1.2 has no key updates.
            kernel: if is_tls13 { kernel } else { Kernel::None },
            rest: self.incoming,
            refused_early: is_client && self.early.sent > 0 && !self.early.is_accepted,
        })
    }
}

/// The facts that rustls reports once the server has answered.
pub(crate) struct HandshakeFacts {
    pub(crate) version: u16,
    pub(crate) suite: u16,
    pub(crate) group: u16,
    pub(crate) alpn: Option<Box<[u8]>>,
    pub(crate) is_resumed: bool,
    pub(crate) peer: Arc<[Box<[u8]>]>,
}

impl HandshakeFacts {
    fn of(state: &CommonState) -> Result<Self, Error> {
        let missing = Error::handshake(Reason::InternalError);
        Ok(Self {
            version: state.protocol_version().ok_or(missing)?.into(),
            suite: state.negotiated_cipher_suite().ok_or(missing)?.suite().into(),
            group: state.negotiated_key_exchange_group().map_or(0, |group| group.name().into()),
            alpn: state.alpn_protocol().map(Box::from),
            is_resumed: state.handshake_kind() == Some(HandshakeKind::Resumed),
            peer: chains::share(state.peer_certificates().unwrap_or_default()),
        })
    }
}

fn direction(sequence: u64, secrets: &ConnectionTrafficSecrets, is_tls13: bool) -> Option<Direction> {
    let (aead, key, iv) = match secrets {
        ConnectionTrafficSecrets::Aes128Gcm { key, iv } => (Aead::Aes128Gcm, key, iv),
        ConnectionTrafficSecrets::Aes256Gcm { key, iv } => (Aead::Aes256Gcm, key, iv),
        ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv } => (Aead::Chacha20Poly1305, key, iv),
        _ => return None,
    };
    Direction::new(aead, key.as_ref(), iv.as_ref().try_into().ok()?, sequence, is_tls13)
}

/// The state after a complete handshake for new keys and session tickets.
pub(crate) enum Kernel {
    Server(TrafficSecrets),
    Client(Box<KernelConnection<ClientConnectionData>>),
    None,
}

impl Kernel {
    /// Returns the next key for sending. `aead` is the algorithm of the current one.
    pub(crate) fn next_seal(&mut self, aead: Aead) -> Option<Direction> {
        let (sequence, secrets) = match self {
            Self::Server(secrets) => return secrets.server.as_mut()?.update(aead),
            Self::Client(kernel) => kernel.update_tx_secret().ok()?,
            Self::None => return None,
        };
        direction(sequence, &secrets, true)
    }

    /// Returns the next key for receiving. `aead` is the algorithm of the current one.
    pub(crate) fn next_open(&mut self, aead: Aead) -> Option<Direction> {
        let (sequence, secrets) = match self {
            Self::Server(secrets) => return secrets.client.as_mut()?.update(aead),
            Self::Client(kernel) => kernel.update_rx_secret().ok()?,
            Self::None => return None,
        };
        direction(sequence, &secrets, true)
    }

    /// Processes the body of a NewSessionTicket. Returns `None` if no ticket is allowed.
    pub(crate) fn take_ticket(&mut self, body: &[u8]) -> Option<Result<(), Reason>> {
        match self {
            Self::Client(kernel) => {
                Some(kernel.handle_new_session_ticket(body).map_err(|_| Reason::LengthMismatch))
            }
            _ => None,
        }
    }
}

/// The operations that both ends share.
trait HandshakeTurn {
    type Data;
    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn early(data: ReadEarlyData<'_, '_, Self::Data>, into: &mut Vec<u8>);
    fn may_send_early(data: &mut TransmitTlsData<'_, Self::Data>) -> bool;
}

impl HandshakeTurn for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn early(mut data: ReadEarlyData<'_, '_, Self::Data>, into: &mut Vec<u8>) {
        while let Some(Ok(record)) = data.next_record() {
            into.extend_from_slice(record.payload);
        }
    }

    fn may_send_early(_: &mut TransmitTlsData<'_, Self::Data>) -> bool {
        false
    }
}

impl HandshakeTurn for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }

    fn early(_: ReadEarlyData<'_, '_, Self::Data>, _: &mut Vec<u8>) {}

    fn may_send_early(data: &mut TransmitTlsData<'_, Self::Data>) -> bool {
        data.may_encrypt_early_data().is_some()
    }
}

/// Runs the engine once. Returns how many bytes of `incoming` were processed, and the next step. If `holds` is set, a client
/// stops at the point where early data may be sent.
fn turn<T: HandshakeTurn>(
    end: &mut T,
    incoming: &mut [u8],
    early: &mut Vec<u8>,
    out: &mut Vec<u8>,
    holds: bool,
) -> (usize, Result<HandshakeStep, Error>) {
    let UnbufferedStatus { discard, state } = end.process(incoming);
    let step = match state {
        Err(error) => Err(error_of(&error)),
        Ok(ConnectionState::EncodeTlsData(mut data)) => {
            let start = out.len();
            if let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) {
                out.resize(start + needed.required_size, 0);
                let written = data.encode(&mut out[start..]).unwrap_or(0);
                out.truncate(start + written);
            }
            Ok(HandshakeStep::Encoded(out.len() - start))
        }
        Ok(ConnectionState::TransmitTlsData(mut data)) => {
            if holds && T::may_send_early(&mut data) {
                return (discard, Ok(HandshakeStep::MaySendEarly));
            }
            data.done();
            Ok(HandshakeStep::Again)
        }
        Ok(ConnectionState::ReadEarlyData(data)) => {
            T::early(data, early);
            Ok(HandshakeStep::Again)
        }
        Ok(ConnectionState::BlockedHandshake) => Ok(HandshakeStep::Blocked),
        Ok(ConnectionState::WriteTraffic(_)) => Ok(HandshakeStep::MaySend),
        Ok(ConnectionState::PeerClosed | ConnectionState::Closed) => Ok(HandshakeStep::PeerClosed),
        // Data records arrive one at a time, and only after the end of the handshake.
        Ok(_) => Err(Error::handshake(Reason::InternalError)),
    };
    (discard, step)
}
