//! The OpenSSL engine, for features that rustls lacks: TLS 1.0 and 1.1, suites without ECDHE, small keys. No other module uses
//! OpenSSL.
//!
//! A [`LegacyLink`] performs the handshake and processes all records, because OpenSSL does not expose its keys. It has no socket;
//! bytes pass through the connection's own buffers. `config` decides which lines use OpenSSL, and [`crate::acceptor`] which
//! clients. Called by [`crate::session`].

mod context;
mod error;
mod flight;
mod keys;
mod verify;

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, PoisonError};

use openssl::pkey::Id;
use openssl::provider::Provider;
use openssl::ssl::{ErrorCode, Ssl, SslRef, SslStream, SslVersion};

use crate::buffer::PendingBytes;
use crate::error::{Error, Reason};
use crate::record::{self, PLAINTEXT_MAX};
use crate::{TLS12, names};

pub(crate) use context::{ClientSide, ServerSide};
pub(crate) use keys::{certificate_text, facts as key_facts, open_key, sign};
use verify::{Decision, DecisionState};

/// Whether OpenSSL is built in.
pub const BUILT_IN: bool = true;

/// Maximum overhead of a record: header, initialization vector, SHA-384 MAC and padding. Before TLS 1.1, also an empty record in
/// front.
const OVERHEAD: usize = 256;

/// The maximum number of bytes held while a server renegotiates.
const HELD_MOST: usize = 256 * 1024;

/// Returns OpenSSL's version string.
pub fn version() -> &'static str {
    openssl::version::version()
}

/// Loads a provider (`ssl-provider`) from the directory `path` (`ssl-provider-path`).
///
/// # Errors
/// OpenSSL's reason.
pub fn load_provider(path: Option<&str>, name: &str) -> Result<(), String> {
    /// The loaded providers, which live as long as the process. Written while a configuration is read.
    static LOADED: Mutex<Vec<Provider>> = Mutex::new(Vec::new());
    // The system's configuration is loaded first, as in OpenSSL's programs.
    openssl::init();
    let load = || {
        if let Some(path) = path {
            Provider::set_default_search_path(None, path)?;
        }
        Provider::load(None, name)
    };
    let provider = load().map_err(|stack| error::text(&stack))?;
    LOADED.lock().unwrap_or_else(PoisonError::into_inner).push(provider);
    Ok(())
}

/// A connection whose handshake and records are processed by OpenSSL.
pub(crate) struct LegacyLink {
    stream: SslStream<Wire>,
    is_server: bool,
    decision: Arc<Decision>,
    /// The key exchange group, if the server's unencrypted messages contained it; 0 before that.
    group: u16,
    /// Buffer for joining two pieces into one record.
    joint: Vec<u8>,
    /// Data to be sent when the server's renegotiation is over.
    held: Vec<u8>,
}

/// The in-memory transport that takes the place of a socket.
#[derive(Debug, Default)]
struct Wire {
    incoming: PendingBytes,
    /// How many of these bytes OpenSSL may see: all of them during the handshake, then one whole record at a time, so that the
    /// remaining bytes start with a record.
    window: usize,
    outgoing: PendingBytes,
}

impl Read for Wire {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let most = self.window.min(self.incoming.bytes().len()).min(room.len());
        if most == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.window -= most;
        Ok(self.incoming.take(&mut room[..most]))
    }
}

impl Write for Wire {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.append(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The result of a handshake.
pub(crate) struct HandshakeResult {
    pub(crate) version: u16,
    pub(crate) suite: u16,
    /// The key exchange group; 0 without a key exchange.
    pub(crate) group: u16,
    pub(crate) alpn: Option<Box<[u8]>>,
    pub(crate) is_resumed: bool,
    pub(crate) peer: Vec<Box<[u8]>>,
}

/// The result of a read.
pub(crate) struct ReadOutcome {
    /// The number of plaintext bytes.
    pub(crate) filled: usize,
    /// Whether the peer's close_notify followed the data, or the reason for a failure.
    pub(crate) closed: Result<bool, Reason>,
}

impl LegacyLink {
    /// Creates the server side. `received` begins with the ClientHello.
    pub(crate) fn server(side: &ServerSide, received: &[u8]) -> Result<Self, Error> {
        let (mut ssl, decision) = side.begin()?;
        ssl.set_accept_state();
        let mut link = Self::new(ssl, decision, true)?;
        link.stream.get_mut().incoming.append(received);
        Ok(link)
    }

    /// Creates the client side. `name` is sent as SNI if present.
    pub(crate) fn client(side: &ClientSide, name: Option<&str>) -> Result<Self, Error> {
        let (mut ssl, decision) = side.begin(name)?;
        ssl.set_connect_state();
        Self::new(ssl, decision, false)
    }

    fn new(ssl: Ssl, decision: Arc<Decision>, is_server: bool) -> Result<Self, Error> {
        let stream = SslStream::new(ssl, Wire::default()).map_err(|stack| error::of_stack(&stack))?;
        Ok(Self { stream, is_server, decision, group: 0, joint: Vec::new(), held: Vec::new() })
    }

    /// Processes `received` until more bytes are needed. Appends output to `out`, even on an error. Returns `true` once the
    /// handshake is complete.
    pub(crate) fn handshake(&mut self, received: &[u8], out: &mut Vec<u8>) -> Result<bool, Error> {
        let wire = self.stream.get_mut();
        wire.incoming.append(received);
        wire.window = wire.incoming.bytes().len();
        let result = self.stream.do_handshake();
        self.stream.get_mut().window = 0;
        let sent = &mut self.stream.get_mut().outgoing;
        let start = out.len();
        out.extend_from_slice(sent.bytes());
        sent.consume(usize::MAX);
        let from_server = if self.is_server { &out[start..] } else { received };
        self.group = flight::group(from_server).unwrap_or(self.group);
        match result {
            Ok(()) => self.check_decision().map(|()| true),
            Err(error) if error.code() == ErrorCode::WANT_READ => Ok(false),
            Err(error) => {
                if let DecisionState::Refused(code) = self.decision.state() {
                    verify::put_alert(code, &mut out[start..]);
                }
                Err(error::of(&error))
            }
        }
    }

    /// Fails unless Weir's own verification has accepted the peer, if verification is required.
    fn check_decision(&self) -> Result<(), Error> {
        let ssl = self.stream.ssl();
        let undecided = self.decision.is_due()
            && self.decision.state() == DecisionState::Open
            && !ssl.session_reused()
            && ssl.peer_certificate().is_some();
        if undecided { Err(Error::handshake(Reason::CertificateVerifyFailed)) } else { Ok(()) }
    }

    /// Returns the negotiated parameters.
    pub(crate) fn handshake_result(&self) -> HandshakeResult {
        let ssl = self.stream.ssl();
        let version = version_of(ssl);
        let suite = ssl.current_cipher().map(|cipher| u16::from_be_bytes(cipher.protocol_id()));
        HandshakeResult {
            version,
            suite: suite.unwrap_or(0),
            group: if version > TLS12 { self.group() } else { self.group },
            alpn: ssl.selected_alpn_protocol().map(Box::from),
            is_resumed: ssl.session_reused(),
            peer: peer(ssl, self.is_server),
        }
    }

    /// Returns the TLS 1.3 group, if OpenSSL still has the ephemeral keys.
    fn group(&self) -> u16 {
        let ssl = self.stream.ssl();
        let group = if self.is_server {
            ssl.tmp_key().ok().and_then(|key| keys::group(&key))
        } else {
            ssl.peer_tmp_key().ok().and_then(|key| keys::group(&key))
        };
        group.and_then(names::group).unwrap_or(0)
    }

    /// Whether there is readable data that does not make the socket readable.
    pub(crate) fn has_waiting(&self) -> bool {
        let incoming = self.stream.get_ref().incoming.bytes();
        let is_whole = match record::frame(incoming) {
            Ok(framed) => framed.is_some_and(|framed| framed.length <= incoming.len()),
            Err(_) => true,
        };
        self.stream.ssl().pending() > 0 || (!incoming.is_empty() && is_whole)
    }

    /// Adds received bytes.
    pub(crate) fn receive(&mut self, received: &[u8]) {
        self.stream.get_mut().incoming.append(received);
    }

    /// Decrypts records into `room`, which must not be empty, until all records are processed or `room` is full. Appends output
    /// to `unsent`, even if there is an error.
    pub(crate) fn read(&mut self, room: &mut [u8], unsent: &mut PendingBytes) -> ReadOutcome {
        let mut filled = 0;
        let closed = loop {
            if filled == room.len() {
                break Ok(false);
            }
            match self.show_record() {
                Ok(true) => {}
                Ok(false) => break Ok(false),
                Err(reason) => break Err(reason),
            }
            match self.stream.ssl_read(&mut room[filled..]) {
                Ok(n) => filled += n,
                Err(error) => match error.code() {
                    // The record had no data for the caller.
                    ErrorCode::WANT_READ => {}
                    ErrorCode::ZERO_RETURN => break Ok(true),
                    _ => break Err(error::of(&error).reason),
                },
            }
        };
        let closed = closed.and_then(|closed| self.let_go().map(|()| closed));
        self.take_outgoing(unsent);
        ReadOutcome { filled, closed }
    }

    /// Sends the held data if the server's renegotiation is over.
    fn let_go(&mut self) -> Result<(), Reason> {
        if self.held.is_empty() || !self.stream.ssl().is_init_finished() {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held);
        match self.stream.ssl_write(&held) {
            Ok(written) if written == held.len() => Ok(()),
            _ => Err(Reason::InternalError),
        }
    }

    /// Holds back data that cannot be sent while the server renegotiates.
    fn hold(&mut self, first: &[u8], second: &[u8]) -> Result<(usize, usize), Error> {
        let taken = first.len() + second.len();
        if self.held.len() + taken > HELD_MOST {
            return Err(Error::fatal(Reason::NoRenegotiation));
        }
        self.held.extend_from_slice(first);
        self.held.extend_from_slice(second);
        Ok((taken, 0))
    }

    /// Shows OpenSSL the next record if it has finished the previous one. Returns whether there is data to read.
    fn show_record(&mut self) -> Result<bool, Reason> {
        if self.stream.ssl().pending() > 0 || self.stream.get_ref().window > 0 {
            return Ok(true);
        }
        // Before TLS 1.3, a handshake record from a client can only be a ClientHello at this point.
        let refuses_handshakes = self.is_server && version_of(self.stream.ssl()) <= TLS12;
        let wire = self.stream.get_mut();
        let incoming = wire.incoming.bytes();
        match record::frame(incoming) {
            Ok(Some(framed)) if framed.length <= incoming.len() => {
                wire.window = framed.length;
                if framed.content == record::HANDSHAKE && refuses_handshakes {
                    // OpenSSL rejects the renegotiation, but would keep the connection.
                    let _ = self.stream.ssl_read(&mut [0]);
                    return Err(Reason::NoRenegotiation);
                }
                Ok(true)
            }
            Ok(_) => Ok(false),
            // OpenSSL detects the same error and sends an alert to the peer.
            Err(_) => {
                wire.window = incoming.len();
                Ok(true)
            }
        }
    }

    fn take_outgoing(&mut self, unsent: &mut PendingBytes) {
        let outgoing = &mut self.stream.get_mut().outgoing;
        unsent.append(outgoing.bytes());
        outgoing.consume(usize::MAX);
    }

    /// Encrypts part of `first` and `second` into `out`, in records of at most `longest` bytes of plaintext. Returns the number
    /// of plaintext and ciphertext bytes.
    pub(crate) fn write(
        &mut self,
        mut first: &[u8],
        mut second: &[u8],
        longest: usize,
        out: &mut [u8],
    ) -> Result<(usize, usize), Error> {
        if !self.held.is_empty() || !self.stream.ssl().is_init_finished() {
            return self.hold(first, second);
        }
        let longest = if longest == 0 { PLAINTEXT_MAX } else { longest.min(PLAINTEXT_MAX) };
        let (mut taken, mut sealed) = (0, 0);
        while !first.is_empty() || !second.is_empty() {
            let Some(space) = (out.len() - sealed).checked_sub(OVERHEAD).filter(|space| *space > 0) else {
                break;
            };
            let most = longest.min(space);
            let (one, first_rest) = first.split_at(first.len().min(most));
            let (two, second_rest) = second.split_at(second.len().min(most - one.len()));
            let written = if one.is_empty() || two.is_empty() {
                self.stream.ssl_write(if one.is_empty() { two } else { one })
            } else {
                self.joint.clear();
                self.joint.extend_from_slice(one);
                self.joint.extend_from_slice(two);
                self.stream.ssl_write(&self.joint)
            };
            if written.as_ref().ok() != Some(&(one.len() + two.len())) {
                return Err(Error::fatal(Reason::InternalError));
            }
            taken += one.len() + two.len();
            (first, second) = (first_rest, second_rest);
            sealed += self.stream.get_mut().outgoing.take(&mut out[sealed..]);
        }
        self.joint = Vec::new();
        Ok((taken, sealed))
    }

    /// Appends close_notify to `unsent`, once.
    pub(crate) fn close(&mut self, unsent: &mut PendingBytes) {
        let _ = self.stream.shutdown();
        self.take_outgoing(unsent);
    }
}

fn version_of(ssl: &SslRef) -> u16 {
    match ssl.version2() {
        Some(SslVersion::TLS1) => 0x0301,
        Some(SslVersion::TLS1_1) => 0x0302,
        Some(SslVersion::TLS1_3) => crate::TLS13,
        Some(SslVersion::TLS1_2) => TLS12,
        _ => 0,
    }
}

/// Returns the peer's certificates, starting with the peer's own. For a resumed session, OpenSSL only has that one.
fn peer(ssl: &SslRef, is_server: bool) -> Vec<Box<[u8]>> {
    let own = ssl.peer_certificate();
    // On a server, OpenSSL stores the client's own certificate separately.
    let own = own.filter(|_| is_server || ssl.peer_cert_chain().is_none());
    let rest = ssl.peer_cert_chain().into_iter().flatten().filter_map(|one| one.to_der().ok());
    own.and_then(|own| own.to_der().ok()).into_iter().chain(rest).map(Vec::into_boxed_slice).collect()
}

/// Returns the name of the algorithm if the key is on a Montgomery curve, which has no group.
fn is_montgomery(id: Id) -> Option<&'static str> {
    match id {
        Id::X25519 => Some("X25519"),
        Id::X448 => Some("X448"),
        _ => None,
    }
}
