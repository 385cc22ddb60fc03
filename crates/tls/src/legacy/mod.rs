//! All of OpenSSL is named in this module and those below it: what rustls does not do, TLS 1.0 and
//! 1.1, suites without ECDHE, small keys.
//!
//! A [`LegacyLink`] makes the handshake and stays for all records: OpenSSL does not hand out its keys.
//! It has no socket; bytes go through the connection's own buffers. Which lines come here is
//! decided in `config`, which clients in [`crate::acceptor`]. Called by [`crate::session`].

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

/// Whether it is built in.
pub const BUILT_IN: bool = true;

/// What a record adds at most to its plaintext: header, initialization vector, MAC of SHA-384,
/// padding; and before TLS 1.1 an empty record in front of it.
const OVERHEAD: usize = 256;

/// How many bytes are held at most while a server renegotiates.
const HELD_MOST: usize = 256 * 1024;

/// OpenSSL's version, as it says itself.
pub fn version() -> &'static str {
    openssl::version::version()
}

/// Loads a provider (`ssl-provider`), looked for in the directory `path` (`ssl-provider-path`).
///
/// # Errors
/// What OpenSSL says against it.
pub fn load_provider(path: Option<&str>, name: &str) -> Result<(), String> {
    /// They stay for as long as the process. Written while a configuration is read.
    static LOADED: Mutex<Vec<Provider>> = Mutex::new(Vec::new());
    // The configuration of the system comes first, as OpenSSL's own programs have it.
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

/// A connection whose handshake and records OpenSSL makes.
pub(crate) struct LegacyLink {
    stream: SslStream<Wire>,
    is_server: bool,
    decision: Arc<Decision>,
    /// The group that keys were exchanged with, where the server's messages named it in clear text;
    /// 0 before that.
    group: u16,
    /// Where two pieces are joined to one record.
    joint: Vec<u8>,
    /// What was to be sent while the server renegotiates: it leaves when that is over.
    held: Vec<u8>,
}

/// What stands for the socket.
#[derive(Debug, Default)]
struct Wire {
    incoming: PendingBytes,
    /// How much of that OpenSSL may see: all during the handshake, one whole record at a time
    /// behind it, so that what is left begins with a record.
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

/// What a handshake came to.
pub(crate) struct HandshakeResult {
    pub(crate) version: u16,
    pub(crate) suite: u16,
    /// 0 where no key was exchanged.
    pub(crate) group: u16,
    pub(crate) alpn: Option<Box<[u8]>>,
    pub(crate) is_resumed: bool,
    pub(crate) peer: Vec<Box<[u8]>>,
}

/// What reading came to.
pub(crate) struct ReadOutcome {
    /// So many bytes of plaintext.
    pub(crate) filled: usize,
    /// Whether the peer's close_notify came behind them, or what was wrong with what did.
    pub(crate) closed: Result<bool, Reason>,
}

impl LegacyLink {
    /// The side of a server; `received` begins with the ClientHello.
    pub(crate) fn server(side: &ServerSide, received: &[u8]) -> Result<Self, Error> {
        let (mut ssl, decision) = side.begin()?;
        ssl.set_accept_state();
        let mut link = Self::new(ssl, decision, true)?;
        link.stream.get_mut().incoming.append(received);
        Ok(link)
    }

    /// The side of a client; `name` is sent as SNI where there is one.
    pub(crate) fn client(side: &ClientSide, name: Option<&str>) -> Result<Self, Error> {
        let (mut ssl, decision) = side.begin(name)?;
        ssl.set_connect_state();
        Self::new(ssl, decision, false)
    }

    fn new(ssl: Ssl, decision: Arc<Decision>, is_server: bool) -> Result<Self, Error> {
        let stream = SslStream::new(ssl, Wire::default()).map_err(|stack| error::of_stack(&stack))?;
        Ok(Self { stream, is_server, decision, group: 0, joint: Vec::new(), held: Vec::new() })
    }

    /// Takes `received` and goes on as far as that allows. What has to be sent is appended to
    /// `out`, after an error too. `true` once the handshake is complete.
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

    /// No connection is established without the verdict of our own verification where one is due.
    fn check_decision(&self) -> Result<(), Error> {
        let ssl = self.stream.ssl();
        let undecided = self.decision.is_due()
            && self.decision.state() == DecisionState::Open
            && !ssl.session_reused()
            && ssl.peer_certificate().is_some();
        if undecided { Err(Error::handshake(Reason::CertificateVerifyFailed)) } else { Ok(()) }
    }

    /// What was negotiated.
    pub(crate) fn told(&self) -> HandshakeResult {
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

    /// The group of TLS 1.3, where OpenSSL still has the keys that were made for the exchange.
    fn group(&self) -> u16 {
        let ssl = self.stream.ssl();
        let group = if self.is_server {
            ssl.tmp_key().ok().and_then(|key| keys::group(&key))
        } else {
            ssl.peer_tmp_key().ok().and_then(|key| keys::group(&key))
        };
        group.and_then(names::group).unwrap_or(0)
    }

    /// Whether there is something to read that the socket knows nothing of.
    pub(crate) fn has_waiting(&self) -> bool {
        let incoming = self.stream.get_ref().incoming.bytes();
        let is_whole = match record::frame(incoming) {
            Ok(framed) => framed.is_some_and(|framed| framed.length <= incoming.len()),
            Err(_) => true,
        };
        self.stream.ssl().pending() > 0 || (!incoming.is_empty() && is_whole)
    }

    /// Takes what was received.
    pub(crate) fn receive(&mut self, received: &[u8]) {
        self.stream.get_mut().incoming.append(received);
    }

    /// Opens records into `room`, which is not empty, as far as both go. What has to be answered is
    /// appended to `unsent`, after an error too.
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
                    // A record that was nothing for the caller.
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

    /// Sends what was held while the server renegotiated, if that is over.
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

    /// Holds what cannot be sent while the server renegotiates.
    fn hold(&mut self, first: &[u8], second: &[u8]) -> Result<(usize, usize), Error> {
        let taken = first.len() + second.len();
        if self.held.len() + taken > HELD_MOST {
            return Err(Error::fatal(Reason::NoRenegotiation));
        }
        self.held.extend_from_slice(first);
        self.held.extend_from_slice(second);
        Ok((taken, 0))
    }

    /// Lets OpenSSL see the next record, if it has done with the last one: whether there is
    /// something to read.
    fn show_record(&mut self) -> Result<bool, Reason> {
        if self.stream.ssl().pending() > 0 || self.stream.get_ref().window > 0 {
            return Ok(true);
        }
        // Before TLS 1.3 nothing but a ClientHello makes a handshake record of a client's here.
        let refuses_handshakes = self.is_server && version_of(self.stream.ssl()) <= TLS12;
        let wire = self.stream.get_mut();
        let incoming = wire.incoming.bytes();
        match record::frame(incoming) {
            Ok(Some(framed)) if framed.length <= incoming.len() => {
                wire.window = framed.length;
                if framed.content == record::HANDSHAKE && refuses_handshakes {
                    // OpenSSL tells the client that there is none, and would go on.
                    let _ = self.stream.ssl_read(&mut [0]);
                    return Err(Reason::NoRenegotiation);
                }
                Ok(true)
            }
            Ok(_) => Ok(false),
            // OpenSSL finds the same fault, and tells the peer.
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

    /// Seals some of `first` and `second` into `out`, in records of at most `longest` bytes of
    /// plaintext: how much plaintext, how much ciphertext.
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

/// The peer's certificates, its own first. Of a resumed session OpenSSL knows that one only.
fn peer(ssl: &SslRef, is_server: bool) -> Vec<Box<[u8]>> {
    let own = ssl.peer_certificate();
    // A server finds a client's own certificate apart from the others.
    let own = own.filter(|_| is_server || ssl.peer_cert_chain().is_none());
    let rest = ssl.peer_cert_chain().into_iter().flatten().filter_map(|one| one.to_der().ok());
    own.and_then(|own| own.to_der().ok()).into_iter().chain(rest).map(Vec::into_boxed_slice).collect()
}

/// Whether the kind of key is one of elliptic curves of Montgomery's form, which have no group.
fn is_montgomery(id: Id) -> Option<&'static str> {
    match id {
        Id::X25519 => Some("X25519"),
        Id::X448 => Some("X448"),
        _ => None,
    }
}
