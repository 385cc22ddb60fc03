//! TLS streams against OpenSSL's client and server, if they are installed.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::future::poll_fn;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use net::Stream;
use rcgen::{
    CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_ED25519, PKCS_RSA_SHA256, SignatureAlgorithm,
};
use scratch::Scratch;
use tls::{
    Acceptor, Certificate, CertificateEntry, Connecting, Connector, EntryOptions, Keep, Listening,
    Parameters, PeerEnd, Resumption, TicketKeys, Trust,
};

fn has_openssl() -> bool {
    let found = Command::new("openssl").arg("version").output().is_ok();
    if !found {
        eprintln!("openssl is not installed");
    }
    found
}

/// A self-signed certificate in a temporary file.
struct Own {
    pem: String,
    der: Vec<u8>,
    path: Scratch,
}

impl Own {
    fn new(name: &str, algorithm: &'static SignatureAlgorithm) -> Self {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let own = CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        let pem = own.pem() + &key.serialize_pem();
        let path = Scratch::holding(&format!("{name}.pem"), &pem);
        Self { pem, der: own.der().to_vec(), path }
    }

    fn acceptor(&self, alpn: &[&str]) -> Arc<Acceptor> {
        let alpn = alpn.iter().map(|name| name.as_bytes().into()).collect();
        let entry = CertificateEntry {
            certificate: Arc::new(Certificate::from_pem("own.pem", self.pem.as_bytes()).unwrap()),
            filters: Vec::new(),
            is_default: false,
            options: Arc::new(EntryOptions { alpn, ..EntryOptions::default() }),
        };
        let listening = Listening {
            entries: vec![entry],
            resumption: Resumption {
                tickets: Some(Arc::new(TicketKeys::random(300).unwrap())),
                sessions: None,
            },
            ..Listening::default()
        };
        Arc::new(Acceptor::new(listening).unwrap())
    }
}

fn run<T>(test: impl AsyncFnOnce() -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(test())
}

fn stream(socket: TcpStream) -> Stream {
    socket.set_nonblocking(true).unwrap();
    Stream::from_fd(socket.into(), true)
}

async fn write(stream: &mut Stream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let n = poll_fn(|context| stream.poll_write(context, bytes)).await.unwrap();
        bytes = &bytes[n..];
    }
    poll_fn(|context| stream.poll_flush(context)).await.unwrap();
}

/// Starts `openssl s_client`.
fn client(port: u16, arguments: &[&str]) -> Child {
    Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-servername", "a.test"])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Serves one connection: echoes up to `length` bytes and closes. Returns the negotiated parameters.
fn echo(listener: &TcpListener, acceptor: &Arc<Acceptor>, length: usize) -> (u16, u16, Option<Box<[u8]>>) {
    let (socket, _) = listener.accept().unwrap();
    run(async || {
        let mut stream = stream(socket);
        stream.accept_tls(acceptor, &[], Keep::default(), None);
        poll_fn(|context| stream.poll_handshake(context)).await.unwrap();
        let mut room = vec![0; 40_000];
        let mut all = 0;
        while all < length {
            let n = poll_fn(|context| stream.poll_read(context, &mut room)).await.unwrap();
            assert!(n > 0);
            all += n;
            write(&mut stream, &room[..n]).await;
        }
        poll_fn(|context| stream.poll_shutdown(context)).await.unwrap();
        let details = stream.tls().unwrap().details();
        (details.version, details.suite, details.alpn.clone())
    })
}

#[test]
fn openssl_clients_work_with_every_suite_and_key_type() {
    if !has_openssl() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (rsa, ecdsa, ed25519) = (
        Own::new("rsa", &PKCS_RSA_SHA256),
        Own::new("ecdsa", &PKCS_ECDSA_P256_SHA256),
        Own::new("ed25519", &PKCS_ED25519),
    );
    // The text contains no bytes that s_client interprets at the start of a line.
    let text: Vec<u8> = (0..300_000u32).map(|n| b'a' + (n % 23) as u8).chain(*b"\n").collect();
    for (own, arguments, version, suite) in [
        (&ecdsa, &["-tls1_3", "-ciphersuites", "TLS_AES_128_GCM_SHA256"][..], 0x0304, 0x1301),
        (&rsa, &["-tls1_3", "-ciphersuites", "TLS_AES_256_GCM_SHA384"], 0x0304, 0x1302),
        (&ed25519, &["-tls1_3", "-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256"], 0x0304, 0x1303),
        (&rsa, &["-tls1_3", "-groups", "P-384"], 0x0304, 0x1302),
        (&rsa, &["-tls1_3", "-groups", "X448:P-521"], 0x0304, 0x1302),
        (&rsa, &["-tls1_2", "-groups", "P-521", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], 0x0303, 0xc02f),
        (&rsa, &["-tls1_2", "-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], 0x0303, 0xc02f),
        (&rsa, &["-tls1_2", "-cipher", "ECDHE-RSA-AES256-GCM-SHA384"], 0x0303, 0xc030),
        (&rsa, &["-tls1_2", "-cipher", "ECDHE-RSA-CHACHA20-POLY1305"], 0x0303, 0xcca8),
        (&ecdsa, &["-tls1_2", "-cipher", "ECDHE-ECDSA-AES256-GCM-SHA384"], 0x0303, 0xc02c),
        (&ecdsa, &["-tls1_2", "-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305"], 0x0303, 0xcca9),
        (&ecdsa, &["-alpn", "x,http/1.1"], 0x0304, 0x1302),
        (&ecdsa, &["-alpn", "nothing-in-common", "-max_send_frag", "512"], 0x0304, 0x1302),
    ] {
        let acceptor = own.acceptor(&["h2", "http/1.1"]);
        let mut child = client(port, &[arguments, &["-quiet"]].concat());
        let (mut input, sent) = (child.stdin.take().unwrap(), text.clone());
        // The input stays open until everything was echoed, because its end would close the connection.
        let sender = std::thread::spawn(move || input.write_all(&sent).map(|()| input));
        let (negotiated, with, alpn) = echo(&listener, &acceptor, text.len());
        let output = child.wait_with_output().unwrap();
        let _ = sender.join();
        assert_eq!((negotiated, with), (version, suite), "{arguments:?}");
        let expected = arguments.contains(&"x,http/1.1").then_some(&b"http/1.1"[..]);
        assert_eq!(alpn.as_deref(), expected, "{arguments:?}");
        assert!(output.stdout == text, "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn openssl_clients_may_update_keys_but_not_renegotiate() {
    if !has_openssl() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let own = Own::new("keys", &PKCS_ECDSA_P256_SHA256);
    let acceptor = own.acceptor(&[]);
    // s_client interprets a line `K` as a command to update the keys on both sides, `k` to update its own keys, and `R` to
    // renegotiate. It prints a confirmation.
    for (version, orders, survives) in [("-tls1_3", "Kk", true), ("-tls1_2", "R", false)] {
        let mut child = client(port, &[version]);
        let (socket, _) = listener.accept().unwrap();
        let mut input = child.stdin.take().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        run(async || {
            let mut stream = stream(socket);
            stream.accept_tls(&acceptor, &[], Keep::default(), None);
            poll_fn(|context| stream.poll_handshake(context)).await.unwrap();
            let mut room = [0; 100];
            for order in orders.chars() {
                input.write_all(b"text\n").unwrap();
                assert_eq!(poll_fn(|context| stream.poll_read(context, &mut room)).await.unwrap(), 5);
                input.write_all(format!("{order}\n").as_bytes()).unwrap();
                let word = if order == 'R' { "RENEGOTIATING" } else { "KEYUPDATE" };
                assert!(said.any(|line| line == word));
            }
            if survives {
                input.write_all(b"text\n").unwrap();
                assert_eq!(poll_fn(|context| stream.poll_read(context, &mut room)).await.unwrap(), 5);
                write(&mut stream, b"the end").await;
                poll_fn(|context| stream.poll_shutdown(context)).await.unwrap();
                return;
            }
            let error = poll_fn(|context| stream.poll_read(context, &mut room)).await.unwrap_err();
            let error = error.get_ref().unwrap().downcast_ref::<tls::Error>().unwrap();
            assert_eq!(error.kind, tls::FailureKind::Renegotiation);
        });
        let output = child.wait_with_output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout).contains("the end"), survives);
    }
}

/// Starts `openssl s_server` and waits for its port.
fn server(own: &Own, arguments: &[&str]) -> (Child, u16) {
    let mut child = Command::new("openssl")
        .args(["s_server", "-accept", "127.0.0.1:0", "-cert"])
        .args([own.path.as_os_str(), "-key".as_ref(), own.path.as_os_str()])
        .args(arguments)
        .current_dir(own.path.directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let port = loop {
        let mut line = String::new();
        assert!(lines.read_line(&mut line).unwrap() > 0, "s_server ended");
        if let Some(address) = line.strip_prefix("ACCEPT ") {
            break address.trim().rsplit(':').next().unwrap().parse().unwrap();
        }
    };
    std::thread::spawn(move || {
        let _ = lines.read_to_end(&mut Vec::new());
    });
    (child, port)
}

#[test]
fn openssl_servers_work_and_sessions_are_resumed() {
    if !has_openssl() {
        return;
    }
    let own = Own::new("server", &PKCS_RSA_SHA256);
    let text: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
    fs::write(own.path.with_file_name("file"), &text).unwrap();
    let trust = Trust { authorities: vec![own.der.clone().into()], ..Trust::default() };
    for (version, arguments, suite) in [
        (0x0304, &["-ciphersuites", "TLS_AES_256_GCM_SHA384"][..], 0x1302),
        (0x0304, &["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256", "-groups", "P-256"], 0x1303),
        (0x0303, &["-cipher", "ECDHE-RSA-AES128-GCM-SHA256"], 0xc02f),
        (0x0303, &["-cipher", "ECDHE-RSA-CHACHA20-POLY1305", "-no_ticket"], 0xcca8),
    ] {
        let (mut child, port) = server(&own, &[arguments, &["-WWW"]].concat());
        let connecting = Connecting {
            parameters: Parameters { min: version, max: version, ..Parameters::default() },
            trust: Some(Arc::new(trust.clone())),
            sessions: 10,
            ..Connecting::default()
        };
        let connector = Connector::new(&connecting).unwrap();
        for resumed in [false, true, true] {
            let (got, ended) = run(async || {
                let mut stream = stream(TcpStream::connect(("127.0.0.1", port)).unwrap());
                stream.connect_tls(&connector, Some("a.test"), Keep::default()).unwrap();
                poll_fn(|context| stream.poll_handshake(context)).await.unwrap();
                write(&mut stream, b"GET /file HTTP/1.0\r\n\r\n").await;
                let (mut got, mut room) = (Vec::new(), vec![0; 100_000]);
                loop {
                    let n = poll_fn(|context| stream.poll_read(context, &mut room)).await.unwrap();
                    if n == 0 {
                        break;
                    }
                    got.extend_from_slice(&room[..n]);
                }
                let details = stream.tls().unwrap().details();
                assert_eq!((details.version, details.suite, details.is_resumed), (version, suite, resumed));
                (got, stream.tls().unwrap().ended())
            });
            assert!(got.ends_with(&text), "{version:x}: {} bytes", got.len());
            assert_eq!(ended, PeerEnd::Cleanly);
        }
        let _ = child.kill();
        child.wait().unwrap();
    }
}

#[test]
fn ocsp_responses_are_stapled_until_they_expire() {
    if !has_openssl() {
        return;
    }
    let folder = Scratch::new("ocsp");
    let file = |name: &str, text: &str| {
        fs::write(folder.join(name), text).unwrap();
        folder.join(name).to_str().unwrap().to_owned()
    };
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    let authority = rcgen::CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new(vec!["a.test".to_owned()]).unwrap();
    params.serial_number = Some(0x1234u64.into());
    let own = params.signed_by(&key, &authority).unwrap();
    let ca = file("ca.pem", &(authority.pem() + &authority.key().serialize_pem()));
    let index = file("index", "V\t310101000000Z\t\t1234\tunknown\t/CN=x\n");
    let answer = folder.join("answer");
    let made = Command::new("openssl")
        .args([
            "ocsp",
            "-index",
            &index,
            "-rsigner",
            &ca,
            "-CA",
            &ca,
            "-issuer",
            &ca,
            "-ndays",
            "3",
            "-noverify",
        ])
        .args(["-cert", &file("own.pem", &own.pem()), "-respout", answer.to_str().unwrap()])
        .output()
        .unwrap();
    assert!(made.status.success());
    let pem = own.pem() + &key.serialize_pem() + &authority.pem();
    let mut certificate = Certificate::from_pem("own.pem", pem.as_bytes()).unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs() as i64;
    certificate.staple(&fs::read(&answer).unwrap(), now).unwrap();
    let mut old = certificate.clone();
    old.ocsp.as_mut().unwrap().next_update = Some(now - 1);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    for (certificate, stapled) in [(certificate, true), (old, false)] {
        for version in ["-tls1_2", "-tls1_3"] {
            let entry = CertificateEntry {
                certificate: Arc::new(certificate.clone()),
                filters: Vec::new(),
                is_default: false,
                options: Arc::default(),
            };
            let listening = Listening { entries: vec![entry], ..Listening::default() };
            let acceptor = Arc::new(Acceptor::new(listening).unwrap());
            let mut child = client(port, &["-status", version]);
            child.stdin.take().unwrap().write_all(b"x\n").unwrap();
            echo(&listener, &acceptor, 2);
            let output = child.wait_with_output().unwrap();
            let shown = String::from_utf8_lossy(&output.stdout);
            assert_eq!(shown.contains("OCSP Response Status: successful"), stapled, "{version}: {shown}");
        }
    }
}

#[test]
fn early_data_is_read_after_the_handshake() {
    if !has_openssl() {
        return;
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let own = Own::new("early", &PKCS_ECDSA_P256_SHA256);
    let entry = CertificateEntry {
        certificate: Arc::new(Certificate::from_pem("own.pem", own.pem.as_bytes()).unwrap()),
        filters: Vec::new(),
        is_default: false,
        options: Arc::new(EntryOptions { early_data: 16384, ..EntryOptions::default() }),
    };
    let resumption =
        Resumption { tickets: None, sessions: Some(Arc::new(tls::SessionCache::new(1000, 300))) };
    let listening = Listening { entries: vec![entry], resumption, ..Listening::default() };
    let acceptor = Arc::new(Acceptor::new(listening).unwrap());
    let (session, early) = (own.path.with_extension("session"), own.path.with_extension("early"));
    fs::write(&early, "early\n").unwrap();
    let (session_name, early_name) = (session.to_str().unwrap(), early.to_str().unwrap());
    let mut child = client(port, &["-tls1_3", "-sess_out", session_name]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"first\n").unwrap();
    echo(&listener, &acceptor, 6);
    child.wait_with_output().unwrap();
    let mut child = client(port, &["-tls1_3", "-sess_in", session_name, "-early_data", early_name]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"later\n").unwrap();
    echo(&listener, &acceptor, 12);
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("Early data was accepted"), "{shown}");
    assert!(shown.find("early\n") < shown.find("later\n"), "{shown}");
    // The session was already used, so its early data is not accepted again.
    let mut child = client(port, &["-tls1_3", "-sess_in", session_name, "-early_data", early_name]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(b"later\n").unwrap();
    echo(&listener, &acceptor, 6);
    let output = child.wait_with_output().unwrap();
    let shown = String::from_utf8_lossy(&output.stdout);
    assert!(shown.contains("Early data was rejected"), "{shown}");
}
