//! A server's connection that receives frames which our client does not send.

use tls::{
    Acceptor, Certificate, CertificateEntry, Connecting, Connector, EntryOptions, Keep, Listening,
    Parameters, TLS13,
};

use super::frames::write_path_frame;
use super::*;
use crate::frame;
use crate::{ClientSettings, Demultiplexed, Endpoint, ServerHandshake, SharedKeys, SocketIndex};

const CLIENT: ([u8; 4], u16) = ([192, 0, 2, 1], 1234);
const SERVER: ([u8; 4], u16) = ([192, 0, 2, 2], 443);
const OTHER: ([u8; 4], u16) = ([198, 51, 100, 7], 5678);

const TAG: usize = 16;

fn acceptor() -> Arc<Acceptor> {
    let key = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["a.test".to_owned()]).expect("a name");
    let pem = params.self_signed(&key).expect("a certificate").pem() + &key.serialize_pem();
    let certificate = Arc::new(Certificate::from_pem("a.pem", pem.as_bytes()).expect("a certificate"));
    let options = Arc::new(EntryOptions {
        parameters: parameters(),
        alpn: vec![Box::from(*b"h3")],
        ..EntryOptions::default()
    });
    let entry = CertificateEntry { certificate, filters: Vec::new(), is_default: false, options };
    let listening = Listening { entries: vec![entry], is_quic: true, ..Listening::default() };
    Arc::new(Acceptor::new(listening).expect("valid settings"))
}

fn parameters() -> Parameters {
    Parameters { min: TLS13, max: TLS13, ..Parameters::default() }
}

/// Returns the datagrams that a connection has to send, with their destinations.
fn output(connection: &mut QuicConnection, now: Instant) -> Vec<(SocketAddr, Vec<u8>)> {
    let mut all = Vec::new();
    let mut bytes = Vec::new();
    while let Some(transmit) = connection.transmit(now, 64, &mut bytes) {
        let segment = transmit.segment.unwrap_or(transmit.length);
        all.extend(bytes.chunks(segment).map(|datagram| (transmit.destination, datagram.to_vec())));
        bytes.clear();
    }
    all
}

/// Both sides of a connection.
struct ConnectedSides {
    now: Instant,
    client: QuicConnection,
    server: QuicConnection,
}

impl ConnectedSides {
    /// Returns both sides after the handshake.
    fn connected() -> Self {
        let now = Instant::now();
        let connecting =
            Connecting { parameters: parameters(), alpn: vec![Box::from(*b"h3")], ..Connecting::default() };
        let handshake = ServerHandshake {
            connector: Arc::new(Connector::new(&connecting).expect("valid settings")),
            name: Some("a.test".into()),
            keep: Keep::default(),
            early: false,
        };
        let settings = ClientSettings::new(&Settings::default());
        let client = QuicConnection::connect(&settings, now, SERVER.into(), handshake);
        let mut client = client.expect("valid settings");
        let mut endpoint = Endpoint::new(&SharedKeys::random(), SocketIndex(0), &Settings::default());
        let mut sent = output(&mut client, now).into_iter();
        let (mut first, mut out) = (sent.next().expect("a first datagram").1, Vec::new());
        let Demultiplexed::NewClient(new) = endpoint.demultiplex(CLIENT.into(), None, None, &first, &mut out)
        else {
            panic!("the first datagram of a client");
        };
        let accepted = endpoint.accept(now, new, &mut first, &acceptor(), Keep::default(), None, &mut out);
        let (_, server) = accepted.expect("a valid datagram");
        let mut pair = Self { now, client, server };
        sent.for_each(|(_, datagram)| pair.deliver(CLIENT, &datagram));
        pair.exchange();
        assert!(pair.client.is_confirmed && pair.server.is_confirmed);
        pair
    }

    fn exchange(&mut self) {
        loop {
            let (now, mut is_quiet) = (self.now, true);
            for (_, mut datagram) in output(&mut self.server, now) {
                self.client.receive(now, SERVER.into(), None, None, &mut datagram);
                is_quiet = false;
            }
            for (_, datagram) in output(&mut self.client, now) {
                self.deliver(CLIENT, &datagram);
                is_quiet = false;
            }
            if is_quiet {
                return;
            }
        }
    }

    /// Delivers a datagram to the server.
    fn deliver(&mut self, from: ([u8; 4], u16), datagram: &[u8]) {
        self.server.receive(self.now, from.into(), None, None, &mut datagram.to_vec());
    }

    /// Returns a datagram of the client with `payload`, padded to `length` bytes.
    fn datagram(&mut self, payload: &[u8], length: usize) -> Vec<u8> {
        let mut out = Vec::new();
        let draft = self.client.write_header(SpaceId::Application, &mut out);
        out.extend_from_slice(payload);
        let end = length.max(out.len() + TAG);
        out.resize(end, 0);
        self.client.finish_packet(self.now, &mut out, draft, end);
        out
    }
}

/// Returns PATH_CHALLENGE frames.
fn challenges(count: u8) -> Vec<u8> {
    let mut out = Vec::new();
    (0..count).for_each(|number| write_path_frame(&mut out, frame::PATH_CHALLENGE, [number; 8]));
    out
}

#[test]
fn answers_to_other_addresses_are_not_amplified() {
    let mut pair = ConnectedSides::connected();
    for count in [1, 2, 4, 9] {
        for length in [0, 64, 300, 1200] {
            // Several datagrams may arrive at once.
            let datagrams = [(); 3].map(|()| pair.datagram(&challenges(count), length));
            datagrams.iter().for_each(|datagram| pair.deliver(OTHER, datagram));
            let answers = output(&mut pair.server, pair.now);
            let answers: Vec<_> = answers.iter().filter(|(to, _)| *to == OTHER.into()).collect();
            assert_eq!(answers.len(), datagrams.len(), "{count} {length}");
            for ((_, answer), datagram) in answers.iter().zip(&datagrams) {
                assert_eq!(answer.len(), 1200.min(3 * datagram.len()), "{count} {length}");
            }
            assert_eq!(pair.server.remote(), CLIENT.into());
        }
    }
}

#[test]
fn an_unproven_address_gets_three_times_what_it_sent() {
    let mut pair = ConnectedSides::connected();
    let stream = pair.server.open(StreamDirection::One).expect("the client permits one");
    pair.server.write(stream, &[7; 50_000]).expect("there is room");
    // These are lost.
    assert!(!output(&mut pair.server, pair.now).is_empty());
    let mut received = 0;
    for (count, length) in [(4, 64), (4, 64), (0, 100), (1, 0)] {
        let datagram = pair.datagram(&[&challenges(count)[..], &[frame::PING as u8]].concat(), length);
        received += datagram.len();
        pair.deliver(OTHER, &datagram);
    }
    assert_eq!(pair.server.remote(), OTHER.into());
    let mut sent = 0;
    for _ in 0..40 {
        let answers = output(&mut pair.server, pair.now);
        sent += answers.iter().filter(|(to, _)| *to == OTHER.into()).map(|(_, one)| one.len()).sum::<usize>();
        let Some(at) = pair.server.timeout() else { break };
        pair.now = pair.now.max(at);
        pair.server.handle_timeout(pair.now);
    }
    assert!(sent > 0 && sent <= 3 * received, "{sent} for {received}");
}

#[test]
fn a_path_that_was_left_gets_no_answers() {
    let mut pair = ConnectedSides::connected();
    let datagram = pair.datagram(&challenges(4), 64);
    pair.deliver(CLIENT, &datagram);
    let datagram = pair.datagram(&[frame::PING as u8], 64);
    pair.deliver(OTHER, &datagram);
    let answers = output(&mut pair.server, pair.now);
    assert!(!answers.is_empty() && answers.iter().all(|(to, _)| *to == OTHER.into()));
}
