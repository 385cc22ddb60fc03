//! Streams with TLS over real sockets.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::future::poll_fn;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::task::Poll;

use net::Stream;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tls::{
    Acceptor, Certificate, CertificateEntry, Connecting, Connector, EntryOptions, Keep, Listening,
    Parameters, PeerEnd, Resumption, TLS12, TLS13, TicketKeys, Trust,
};

fn ends(version: u16) -> (Arc<Acceptor>, Connector) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "the authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let own = CertificateParams::new(vec!["a.test".to_owned()]).unwrap().signed_by(&key, &authority).unwrap();
    let pem = own.pem() + &key.serialize_pem();
    let parameters = Parameters { min: version, max: version, ..Parameters::default() };
    let entry = CertificateEntry {
        certificate: Arc::new(Certificate::from_pem("a.pem", pem.as_bytes()).unwrap()),
        filters: Vec::new(),
        is_default: false,
        options: Arc::new(EntryOptions { parameters: parameters.clone(), ..EntryOptions::default() }),
    };
    let listening = Listening {
        entries: vec![entry],
        resumption: Resumption { tickets: Some(Arc::new(TicketKeys::random(300).unwrap())), sessions: None },
        ..Listening::default()
    };
    let trust = Trust { authorities: vec![authority.der().to_vec().into()], ..Trust::default() };
    let connecting =
        Connecting { parameters, trust: Some(Arc::new(trust)), sessions: 10, ..Connecting::default() };
    (Arc::new(Acceptor::new(listening).unwrap()), Connector::new(&connecting).unwrap())
}

/// A client stream and a server stream, both with TLS started.
fn pair(acceptor: &Arc<Acceptor>, connector: &Connector) -> (Stream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    client.set_nonblocking(true).unwrap();
    server.set_nonblocking(true).unwrap();
    let (mut client, mut server) =
        (Stream::from_fd(client.into(), true), Stream::from_fd(server.into(), true));
    client.connect_tls(connector, Some("a.test"), Keep::default()).unwrap();
    server.accept_tls(acceptor, &[], Keep::default(), None);
    (client, server)
}

async fn shake(client: &mut Stream, server: &mut Stream) {
    let (one, other) = tokio::join!(
        poll_fn(|context| client.poll_handshake(context)),
        poll_fn(|context| server.poll_handshake(context)),
    );
    one.unwrap();
    other.unwrap();
}

async fn write(stream: &mut Stream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (first, second) = bytes.split_at(bytes.len() / 3);
        let n = poll_fn(|context| stream.poll_write_both(context, first, second, false)).await.unwrap();
        bytes = &bytes[n..];
    }
    poll_fn(|context| stream.poll_flush(context)).await.unwrap();
}

async fn read(stream: &mut Stream, length: usize, room: usize) -> Vec<u8> {
    let mut all = Vec::new();
    let mut space = vec![0; room];
    while all.len() < length {
        let n = poll_fn(|context| stream.poll_read(context, &mut space)).await.unwrap();
        assert!(n > 0, "it ends after {} bytes", all.len());
        all.extend_from_slice(&space[..n]);
    }
    all
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test());
}

#[test]
fn data_beyond_the_kernels_buffers_passes_in_both_directions() {
    run(async || {
        for version in [TLS12, TLS13] {
            let (acceptor, connector) = ends(version);
            let (mut client, mut server) = pair(&acceptor, &connector);
            shake(&mut client, &mut server).await;
            assert_eq!(server.tls().unwrap().details().version, version);
            let text: Vec<u8> = (0..20_000_000u32).map(|n| (n % 251) as u8).collect();
            for room in [1000, 16_384, 65_536, 300_000] {
                let (_, got) = tokio::join!(write(&mut client, &text), read(&mut server, text.len(), room));
                assert!(got == text, "room of {room}");
                let (_, got) = tokio::join!(write(&mut server, &text), read(&mut client, text.len(), room));
                assert!(got == text, "room of {room}");
            }
        }
    });
}

#[test]
fn regular_ends_send_close_notify_and_aborts_do_not() {
    run(async || {
        let (acceptor, connector) = ends(TLS13);
        for clean in [true, false] {
            let (mut client, mut server) = pair(&acceptor, &connector);
            shake(&mut client, &mut server).await;
            write(&mut client, b"abc").await;
            if clean {
                poll_fn(|context| client.poll_shutdown(context)).await.unwrap();
            } else {
                client.shutdown_write();
            }
            assert_eq!(read(&mut server, 3, 100).await, b"abc");
            assert_eq!(poll_fn(|context| server.poll_read(context, &mut [0; 9])).await.unwrap(), 0);
            let ended = if clean { PeerEnd::Cleanly } else { PeerEnd::Cut };
            assert_eq!(server.tls().unwrap().ended(), ended);
            // The other direction still works.
            write(&mut server, b"defg").await;
            assert_eq!(read(&mut client, 4, 100).await, b"defg");
        }
    });
}

#[test]
fn aborted_connections_send_no_close_notify_on_close() {
    run(async || {
        for version in [TLS12, TLS13] {
            for breaks_off in [false, true] {
                let (acceptor, connector) = ends(version);
                let (mut client, mut server) = pair(&acceptor, &connector);
                shake(&mut client, &mut server).await;
                if breaks_off {
                    server.reset_on_close();
                }
                server.close();
                drop(server);
                let mut room = [0; 100];
                let read = poll_fn(|context| client.poll_read(context, &mut room)).await;
                let clean = read.is_ok_and(|n| n == 0) && client.tls().unwrap().ended() == PeerEnd::Cleanly;
                assert_eq!(clean, !breaks_off, "{version:x}");
            }
        }
    });
}

#[test]
fn session_tickets_do_not_end_idleness_but_data_does() {
    run(async || {
        let (acceptor, connector) = ends(TLS13);
        let (mut client, mut server) = pair(&acceptor, &connector);
        shake(&mut client, &mut server).await;
        client.watch().unwrap();
        let idle = poll_fn(|context| Poll::Ready(client.poll_idle(context).is_pending())).await;
        assert!(idle && client.is_idle() && client.is_quiet());
        let (_, idle) =
            tokio::join!(write(&mut server, b"data"), poll_fn(|context| client.poll_idle(context)));
        idle.unwrap();
        assert!(!client.is_idle() && !client.is_quiet());
        assert_eq!(read(&mut client, 4, 10).await, b"data");
        assert!(client.is_idle());
        // The tickets arrived before the data, so the next connection resumes the session.
        let (mut client, mut server) = pair(&acceptor, &connector);
        shake(&mut client, &mut server).await;
        assert!(client.tls().unwrap().details().is_resumed && server.tls().unwrap().details().is_resumed);
    });
}

#[test]
fn connections_move_between_threads_with_their_state() {
    let (acceptor, connector) = ends(TLS13);
    let mut moved = None;
    run(async || {
        let (mut client, mut server) = pair(&acceptor, &connector);
        shake(&mut client, &mut server).await;
        write(&mut client, b"abcdef").await;
        assert_eq!(read(&mut server, 1, 1).await, b"a");
        moved = Some((client.detach(), server.detach()));
    });
    let (client, server) = moved.unwrap();
    let elsewhere = std::thread::spawn(move || {
        run(async || {
            let (mut client, mut server) = (Stream::attach(client), Stream::attach(server));
            assert_eq!(read(&mut server, 5, 100).await, b"bcdef");
            write(&mut server, b"back").await;
            assert_eq!(read(&mut client, 4, 100).await, b"back");
        });
    });
    elsewhere.join().unwrap();
}

#[test]
fn failed_handshakes_are_reported_to_both_sides() {
    run(async || {
        let (acceptor, _) = ends(TLS13);
        let (_, connector) = ends(TLS12);
        let (mut client, mut server) = pair(&acceptor, &connector);
        let (one, other) = tokio::join!(
            poll_fn(|context| client.poll_handshake(context)),
            poll_fn(|context| server.poll_handshake(context)),
        );
        assert_eq!(one.unwrap_err().text(), "error:0A00042E:SSL routines::tlsv1 alert protocol version");
        assert_eq!(other.unwrap_err().text(), "error:0A000102:SSL routines::unsupported protocol");
    });
}
