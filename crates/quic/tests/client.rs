//! A connection to a server and the server's endpoint, connected in memory, with a simulated clock.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use quic::transport::StreamConnection as _;
use quic::{
    ClientSettings, ConnectionHandle, Demultiplexed, Endpoint, LostReason, QuicConnection, QuicEvent,
    ServerHandshake, Settings, SharedKeys, SocketIndex, StreamDirection, StreamRead, Transmit,
};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tls::{
    Acceptor, Certificate, CertificateEntry, Connecting, Connector, EntryOptions, Keep, Listening,
    Parameters, Resumption, SessionCache, TLS13, Trust,
};

/// A CA.
struct Authority(CertifiedIssuer<'static, KeyPair>);

impl Authority {
    fn new() -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, "an authority");
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    fn trust(&self) -> Arc<Trust> {
        Arc::new(Trust { authorities: vec![self.0.der().to_vec().into()], ..Trust::default() })
    }

    /// Returns a listener with a certificate for `a.test`.
    fn acceptor(&self) -> Arc<Acceptor> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
        let pem = params.signed_by(&key, &self.0).unwrap().pem() + &key.serialize_pem();
        let certificate = Arc::new(Certificate::from_pem("a.pem", pem.as_bytes()).unwrap());
        let options = EntryOptions {
            parameters: parameters(),
            alpn: vec![Box::from(*b"h3")],
            early_data: u32::MAX,
            ..EntryOptions::default()
        };
        let options = Arc::new(options);
        let entry = CertificateEntry { certificate, filters: Vec::new(), is_default: false, options };
        let resumption = Resumption { tickets: None, sessions: Some(Arc::new(SessionCache::new(100, 60))) };
        let listening = Listening { entries: vec![entry], resumption, is_quic: true, ..Listening::default() };
        Arc::new(Acceptor::new(listening).unwrap())
    }
}

fn parameters() -> Parameters {
    Parameters { min: TLS13, max: TLS13, ..Parameters::default() }
}

/// Returns the TLS settings of a server line that trusts `authority`.
fn connector(authority: &Authority) -> Arc<Connector> {
    let connecting = Connecting {
        parameters: parameters(),
        trust: Some(authority.trust()),
        alpn: vec![Box::from(*b"h3")],
        sessions: 8,
        early_data: true,
        ..Connecting::default()
    };
    Arc::new(Connector::new(&connecting).unwrap())
}

const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 1234);
const SERVER: ([u8; 4], u16) = ([192, 0, 2, 2], 443);

/// One side of the wire.
struct Side {
    connection: QuicConnection,
    events: Vec<QuicEvent>,
    /// The length of the longest batch of datagrams.
    longest: usize,
}

impl Side {
    fn new(connection: QuicConnection) -> Self {
        Self { connection, events: Vec::new(), longest: 0 }
    }

    /// Returns the datagrams to send.
    fn output(&mut self, now: Instant) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let Some(Transmit { length, segment, .. }) = self.connection.transmit(now, 64, &mut bytes) else {
                return all;
            };
            self.longest = self.longest.max(length);
            all.extend(bytes[..length].chunks(segment.unwrap_or(length)).map(<[u8]>::to_vec));
        }
    }

    fn take_events(&mut self) {
        while let Some(event) = self.connection.poll() {
            self.events.push(event);
        }
    }
}

/// The wire between both sides.
struct Wire {
    now: Instant,
    acceptor: Arc<Acceptor>,
    endpoint: Endpoint,
    client: Side,
    server: Option<(ConnectionHandle, Side)>,
    /// Whether the first datagram is answered with Retry.
    retries: bool,
    /// The share of lost datagrams, and of those that arrive late and twice, in percent.
    loss: u64,
    disorder: u64,
    late: Vec<Vec<u8>>,
    /// The client's address.
    from: SocketAddr,
    random: u64,
}

impl Wire {
    fn new(acceptor: &Arc<Acceptor>, settings: &ClientSettings, handshake: ServerHandshake) -> Self {
        let now = Instant::now();
        let endpoint = Endpoint::new(&SharedKeys::random(), SocketIndex(0), &Settings::default());
        let client = QuicConnection::connect(settings, now, SERVER.into(), handshake).unwrap();
        Self {
            now,
            acceptor: acceptor.clone(),
            endpoint,
            client: Side::new(client),
            server: None,
            retries: false,
            loss: 0,
            disorder: 0,
            late: Vec::new(),
            from: CLIENT.into(),
            random: 1,
        }
    }

    fn is_lost(&mut self) -> bool {
        self.happens(self.loss)
    }

    fn happens(&mut self, percent: u64) -> bool {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.random >> 33) % 100 < percent
    }

    /// Exchanges datagrams until neither side has any, and lets the next timer run.
    fn turn(&mut self) {
        loop {
            let datagrams = self.client.output(self.now);
            let mut is_quiet = datagrams.is_empty();
            for datagram in datagrams {
                if self.happens(self.disorder) {
                    self.late.push(datagram);
                } else if !self.is_lost() {
                    self.deliver_to_server(&datagram);
                }
            }
            let datagrams = self.server.as_mut().map(|(_, side)| side.output(self.now)).unwrap_or_default();
            is_quiet &= datagrams.is_empty();
            for datagram in datagrams {
                if !self.is_lost() {
                    self.deliver_to_client(&datagram);
                }
            }
            for datagram in std::mem::take(&mut self.late) {
                self.deliver_to_server(&datagram);
                self.deliver_to_server(&datagram);
            }
            self.exchange();
            if is_quiet {
                break;
            }
        }
        let timeouts = [self.client.connection.timeout()];
        let server = self.server.as_mut().and_then(|(_, side)| side.connection.timeout());
        let at = timeouts.into_iter().chain([server]).flatten().min();
        // Connections do not become idle.
        if let Some(at) = at.filter(|at| *at < self.now + Duration::from_secs(10)) {
            self.now = self.now.max(at);
            self.client.connection.handle_timeout(self.now);
            if let Some((_, side)) = &mut self.server {
                side.connection.handle_timeout(self.now);
            }
        } else {
            self.now += Duration::from_millis(10);
        }
    }

    fn exchange(&mut self) {
        while self.client.connection.endpoint_input().is_some() {}
        self.client.take_events();
        let Some((handle, side)) = &mut self.server else { return };
        while let Some(input) = side.connection.endpoint_input() {
            self.endpoint.handle(*handle, input);
        }
        side.take_events();
    }

    fn deliver_to_server(&mut self, datagram: &[u8]) {
        let (mut out, mut datagram) = (Vec::new(), datagram.to_vec());
        let client = self.from;
        match self.endpoint.demultiplex(client, None, None, &datagram, &mut out) {
            Demultiplexed::Nothing | Demultiplexed::Reply(_) => {}
            Demultiplexed::ForConnection(_) => {
                if let Some((_, side)) = &mut self.server {
                    side.connection.receive(self.now, client, None, None, &mut datagram);
                }
            }
            Demultiplexed::Reset(_) => panic!("no side resets the connection"),
            Demultiplexed::NewClient(new) if self.retries && new.may_retry() => {
                let retry = self.endpoint.retry(&new, &mut out).unwrap();
                self.deliver_to_client(&out[..retry.length]);
            }
            Demultiplexed::NewClient(new) => {
                let (now, keep) = (self.now, Keep::default());
                let accepted =
                    self.endpoint.accept(now, new, &mut datagram, &self.acceptor, keep, None, &mut out);
                let (handle, connection) = accepted.unwrap();
                self.server = Some((handle, Side::new(connection)));
            }
        }
    }

    fn deliver_to_client(&mut self, datagram: &[u8]) {
        self.client.connection.receive(self.now, SERVER.into(), None, None, &mut datagram.to_vec());
    }

    /// Takes turns until `done`, for at most a minute.
    fn run(&mut self, what: &str, mut done: impl FnMut(&mut Self) -> bool) {
        let until = self.now + Duration::from_secs(60);
        while !done(self) {
            assert!(self.now < until, "{what}: {:?}", self.client.events);
            self.turn();
        }
    }

    fn connect(&mut self) {
        self.run("handshake", |wire| wire.client.events.contains(&QuicEvent::Connected));
        // Sessions and tokens arrive after the handshake.
        self.turn();
    }

    fn server(&mut self) -> &mut QuicConnection {
        &mut self.server.as_mut().unwrap().1.connection
    }

    /// Sends bytes on a new stream, and returns what the server received.
    fn carry(&mut self, bytes: &[u8]) -> Vec<u8> {
        let stream = self.client.connection.open(StreamDirection::Both).unwrap();
        let (mut written, mut received, mut accepted) = (0, Vec::new(), None);
        self.run("transfer", |wire| {
            if written < bytes.len() {
                written += wire.client.connection.write(stream, &bytes[written..]).unwrap();
                if written == bytes.len() {
                    wire.client.connection.finish(stream);
                }
            }
            let Some((_, side)) = &mut wire.server else { return false };
            accepted = accepted.or_else(|| side.connection.accept_stream(StreamDirection::Both));
            let Some(stream) = accepted else { return false };
            loop {
                match side.connection.read(stream, 1 << 16) {
                    StreamRead::Bytes(bytes) => received.extend_from_slice(&bytes),
                    StreamRead::Finished => return true,
                    StreamRead::Blocked => return false,
                    StreamRead::Reset(code) => panic!("reset with {code}"),
                }
            }
        });
        received
    }
}

fn handshake(connector: &Arc<Connector>, early: bool) -> ServerHandshake {
    ServerHandshake {
        connector: connector.clone(),
        name: Some("a.test".into()),
        keep: Keep::default(),
        early,
    }
}

fn settings() -> ClientSettings {
    ClientSettings::new(&Settings { max_streams: 0, ..Settings::default() })
}

#[test]
fn both_sides_agree_on_the_handshake_and_exchange_data() {
    let authority = Authority::new();
    let mut wire = Wire::new(&authority.acceptor(), &settings(), handshake(&connector(&authority), false));
    wire.connect();
    let (client, server) = (wire.client.connection.details(), wire.server().details());
    assert_eq!((client.alpn.as_deref(), client.version), (Some(&b"h3"[..]), TLS13));
    assert_eq!((client.suite, client.group), (server.suite, server.group));
    assert_eq!(server.sni.as_deref(), Some("a.test"));
    assert!(!client.peer.is_empty() && client.root.is_some() && !client.is_resumed);
    assert!(!wire.client.connection.has_early());
    let bytes: Vec<u8> = (0..300_000).map(|at: u32| at as u8).collect();
    assert!(wire.carry(&bytes) == bytes);
    wire.server().close(Instant::now(), 7, b"");
    wire.run("close", |wire| wire.client.events.contains(&QuicEvent::Lost(LostReason::Application(7))));
}

#[test]
fn lost_datagrams_are_repeated() {
    let authority = Authority::new();
    let connector = connector(&authority);
    for loss in [2, 10, 20] {
        let mut wire = Wire::new(&authority.acceptor(), &settings(), handshake(&connector, false));
        wire.loss = loss;
        wire.connect();
        let bytes: Vec<u8> = (0..50_000).map(|at: u32| at as u8).collect();
        assert!(wire.carry(&bytes) == bytes, "{loss}");
    }
}

#[test]
fn retry_is_followed_and_forged_ones_are_not() {
    let authority = Authority::new();
    let (acceptor, connector) = (authority.acceptor(), connector(&authority));
    let mut wire = Wire::new(&acceptor, &settings(), handshake(&connector, false));
    wire.retries = true;
    wire.connect();
    assert_eq!(wire.carry(b"data"), b"data");
    let mut wire = Wire::new(&acceptor, &settings(), handshake(&connector, false));
    let first = wire.client.output(wire.now);
    // A Retry packet with a wrong tag: its connection IDs are those of the client.
    wire.deliver_to_client(&[&[0xf0, 0, 0, 0, 1, 0, 4][..], b"abcd", b"token", &[0; 16]].concat());
    first.iter().for_each(|datagram| wire.deliver_to_server(datagram));
    wire.connect();
    assert_eq!(wire.carry(b"data"), b"data");
}

#[test]
fn untrusted_servers_fail_the_handshake() {
    let (authority, other) = (Authority::new(), Authority::new());
    let mut wire = Wire::new(&authority.acceptor(), &settings(), handshake(&connector(&other), false));
    let lost = |event: &QuicEvent| matches!(event, QuicEvent::Lost(LostReason::Violation(..)));
    wire.run("failure", |wire| wire.client.events.iter().any(lost));
    let failure = wire.client.connection.details().failure.expect("a failure");
    assert_eq!(failure.reason, tls::Reason::CertificateVerifyFailed);
}

#[test]
fn resumed_connections_may_send_early_data() {
    let authority = Authority::new();
    let (acceptor, connector, settings) = (authority.acceptor(), connector(&authority), settings());
    let mut first = Wire::new(&acceptor, &settings, handshake(&connector, true));
    assert!(!first.client.connection.has_early(), "there is no session");
    first.connect();
    // The caller can do without it.
    let mut plain = Wire::new(&acceptor, &settings, handshake(&connector, false));
    assert!(!plain.client.connection.has_early());
    plain.connect();
    assert!(plain.client.connection.details().is_resumed);
    let mut early = Wire::new(&acceptor, &settings, handshake(&connector, true));
    assert!(early.client.connection.has_early());
    assert_eq!(early.carry(b"early"), b"early");
    early.connect();
    assert!(!early.client.connection.refused_early());
    // Another server does not know the session.
    let other = authority.acceptor();
    let mut refused = Wire::new(&other, &settings, handshake(&connector, true));
    assert!(refused.client.connection.has_early());
    let stream = refused.client.connection.open(StreamDirection::Both).unwrap();
    refused.client.connection.write(stream, b"early").unwrap();
    refused.connect();
    assert!(refused.client.connection.refused_early());
    assert_eq!(refused.carry(b"again"), b"again");
}

#[test]
fn data_before_a_close_is_read_before_the_end_is_reported() {
    let authority = Authority::new();
    let mut wire = Wire::new(&authority.acceptor(), &settings(), handshake(&connector(&authority), false));
    wire.connect();
    let stream = wire.server().open(StreamDirection::One).unwrap();
    wire.server().write(stream, b"last words").unwrap();
    wire.server().finish(stream);
    let now = wire.now;
    let (_, side) = wire.server.as_mut().unwrap();
    let mut datagrams = side.output(now);
    side.connection.close(now, 7, b"");
    datagrams.extend(side.output(now));
    datagrams.iter().for_each(|datagram| wire.deliver_to_client(datagram));
    wire.client.take_events();
    let lost = QuicEvent::Lost(LostReason::Application(7));
    let position = |event: &QuicEvent| wire.client.events.iter().position(|other| other == event);
    assert!(position(&QuicEvent::Opened(StreamDirection::One)) < position(&lost), "{:?}", wire.client.events);
    assert!(position(&lost).is_some());
    assert_eq!(wire.client.connection.accept_stream(StreamDirection::One), Some(stream));
    assert_eq!(wire.client.connection.read(stream, 100), StreamRead::Bytes("last words".into()));
    assert_eq!(wire.client.connection.read(stream, 100), StreamRead::Finished);
}

#[test]
fn late_and_repeated_datagrams_are_put_in_order() {
    let authority = Authority::new();
    let mut wire = Wire::new(&authority.acceptor(), &settings(), handshake(&connector(&authority), false));
    wire.disorder = 30;
    wire.connect();
    let bytes: Vec<u8> = (0..200_000).map(|at: u32| (at ^ (at >> 8)) as u8).collect();
    assert!(wire.carry(&bytes) == bytes);
}

#[test]
fn a_batch_is_not_longer_than_the_largest_datagram() {
    let authority = Authority::new();
    let mut wire = Wire::new(&authority.acceptor(), &settings(), handshake(&connector(&authority), false));
    wire.connect();
    let bytes: Vec<u8> = (0..4_000_000).map(|at: u32| (at ^ (at >> 8)) as u8).collect();
    assert!(wire.carry(&bytes) == bytes);
    let longest = wire.client.longest;
    assert!((63_000..=65_507).contains(&longest), "{longest}");
}

#[test]
fn clients_may_move_to_another_address() {
    let authority = Authority::new();
    let mut wire = Wire::new(&authority.acceptor(), &settings(), handshake(&connector(&authority), false));
    wire.connect();
    for (last, port) in [(1, 4321), (9, 4321), (9, 1000)] {
        wire.from = ([192, 0, 2, last], port).into();
        // The first datagram is small, so that little may be sent to the new address.
        assert_eq!(wire.carry(b"small"), b"small");
        let bytes: Vec<u8> = (0..50_000).map(|at: u32| at as u8).collect();
        assert!(wire.carry(&bytes) == bytes);
        let from = wire.from;
        assert_eq!(wire.server().remote(), from);
    }
}

#[test]
fn unproven_addresses_get_three_times_what_they_sent() {
    let authority = Authority::new();
    let mut wire = Wire::new(&authority.acceptor(), &settings(), handshake(&connector(&authority), false));
    let mut received = 0;
    for datagram in wire.client.output(wire.now) {
        received += datagram.len();
        wire.deliver_to_server(&datagram);
    }
    let mut sent = 0;
    for _ in 0..20 {
        let now = wire.now;
        let (_, side) = wire.server.as_mut().unwrap();
        sent += side.output(now).iter().map(Vec::len).sum::<usize>();
        if let Some(at) = side.connection.timeout() {
            wire.now = wire.now.max(at);
            side.connection.handle_timeout(wire.now);
        }
    }
    assert!(sent > 0 && sent <= 3 * received, "{sent} for {received}");
}

#[test]
fn silent_connections_time_out() {
    let authority = Authority::new();
    let mut wire = Wire::new(&authority.acceptor(), &settings(), handshake(&connector(&authority), false));
    wire.connect();
    wire.run("silence", |wire| {
        wire.client.connection.timeout().is_none_or(|at| at > wire.now + Duration::from_secs(9))
    });
    let until = wire.client.connection.timeout().unwrap();
    assert!(until <= wire.now + Duration::from_secs(30));
    wire.client.connection.handle_timeout(until);
    wire.client.take_events();
    assert_eq!(wire.client.events.last(), Some(&QuicEvent::Lost(LostReason::TimedOut)));
    assert!(wire.client.connection.is_drained());
}

#[test]
fn tokens_of_earlier_connections_prove_the_address() {
    let authority = Authority::new();
    let (acceptor, connector, settings) = (authority.acceptor(), connector(&authority), settings());
    let mut first = Wire::new(&acceptor, &settings, handshake(&connector, false));
    first.connect();
    let mut second = Wire::new(&acceptor, &settings, handshake(&connector, false));
    std::mem::swap(&mut second.endpoint, &mut first.endpoint);
    let datagram = second.client.output(second.now).remove(0);
    let mut out = Vec::new();
    let Demultiplexed::NewClient(client) =
        second.endpoint.demultiplex(CLIENT.into(), None, None, &datagram, &mut out)
    else {
        panic!("the first datagram of a client")
    };
    assert!(client.is_validated() && client.may_retry());
}
