//! Measures the server side of a handshake: full handshakes with both kinds of keys, and resumption. `cargo run --release --example
//! handshakes`.

#![allow(clippy::unwrap_used, reason = "a measurement that cannot go on stops")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use rcgen::{CertificateParams, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use tls::{
    Acceptor, Certificate, CertificateEntry, Connecting, Connector, EntryOptions, Listening, Parameters,
    Resumption, Session, SessionCache, TLS12, TLS13, TicketKeys,
};

/// Performs one handshake; returns the time spent on the server side and whether the session was resumed.
fn shake(acceptor: &Arc<Acceptor>, connector: &Connector) -> (Duration, bool) {
    let mut client = Session::connect(connector, Some("a.test")).unwrap();
    let mut server = Session::accept(acceptor);
    let mut took = Duration::ZERO;
    let _ = client.handshake(&[]);
    loop {
        let sent = client.unsent().to_vec();
        client.sent(sent.len());
        let start = Instant::now();
        let done = server.handshake(&sent).unwrap();
        took += start.elapsed();
        let answer = server.unsent().to_vec();
        server.sent(answer.len());
        if !client.is_established() {
            client.handshake(&answer).unwrap();
        }
        if done {
            // TLS 1.3 tickets follow the handshake.
            let mut answer = answer;
            let _ = client.open(&mut answer, &mut []);
            return (took, server.details().is_resumed);
        }
    }
}

fn main() {
    let rounds = std::env::args().nth(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(1000u32);
    for (name, algorithm) in [("P-256", &PKCS_ECDSA_P256_SHA256), ("RSA-2048", &PKCS_RSA_SHA256)] {
        let key = KeyPair::generate_for(algorithm).unwrap();
        let own = CertificateParams::new(vec!["a.test".to_owned()]).unwrap().self_signed(&key).unwrap();
        let pem = own.pem() + &key.serialize_pem();
        let certificate = Arc::new(Certificate::from_pem("own", pem.as_bytes()).unwrap());
        for version in [TLS12, TLS13] {
            for sessions in [0, 10] {
                let parameters =
                    Parameters { min: version, max: version, groups: vec![0x1d], ..Parameters::default() };
                let options =
                    Arc::new(EntryOptions { parameters: parameters.clone(), ..EntryOptions::default() });
                let entries = vec![CertificateEntry {
                    certificate: certificate.clone(),
                    filters: Vec::new(),
                    is_default: false,
                    options,
                }];
                let resumption = Resumption {
                    tickets: Some(Arc::new(TicketKeys::random(300).unwrap())),
                    sessions: Some(Arc::new(SessionCache::new(20_000, 300))),
                };
                let listening = Listening { entries, resumption, ..Listening::default() };
                let acceptor = Arc::new(Acceptor::new(listening).unwrap());
                let connector =
                    Connector::new(&Connecting { parameters, sessions, ..Connecting::default() }).unwrap();
                shake(&acceptor, &connector);
                let (mut total, mut resumed) = (Duration::ZERO, 0);
                for _ in 0..rounds {
                    let (took, is_resumed) = shake(&acceptor, &connector);
                    total += took;
                    resumed += u32::from(is_resumed);
                }
                let each = total.as_secs_f64() * 1e6 / f64::from(rounds);
                println!("{name} {version:x} resumed {resumed}/{rounds}: {each:.1} µs each");
            }
        }
    }
}
