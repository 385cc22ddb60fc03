//! Successful and failing handshakes, and what both sides report.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::sync::Arc;

use common::{Authority, acceptor, certificate, connector, entry, listening, pair, shake};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256, date_time_ymd};
use tls::capture::CapturedList;
use tls::verify_code as code;
use tls::{
    Acceptor, AlternativeName, ClientVerify, Connecting, Connector, Details, EntryOptions, FailureKind, Keep,
    Listening, Parameters, Reason, Resumption, Session, SessionCache, TLS12, TLS13, TicketKeys, Trust,
    VerifyCodes, VerifyMode,
};

/// Connects a client with the settings `connecting`; returns both sides.
fn meet(acceptor: &Arc<Acceptor>, connecting: &Connecting, name: Option<&str>) -> (Session, Session) {
    let connector = Connector::new(connecting).unwrap();
    let mut client = Session::connect(&connector, name).unwrap();
    let mut server = Session::accept(acceptor);
    let _ = shake(&mut client, &mut server);
    (client, server)
}

fn trusting(authority: &Authority) -> Connecting {
    Connecting { trust: Some(authority.trust()), ..Connecting::default() }
}

fn served(details: &Details) -> &str {
    details.own.as_ref().map_or("", |own| own.names.first().map_or("", |name| name))
}

#[test]
fn servers_are_verified_with_openssls_error_numbers() {
    let authority = Authority::new();
    let stranger = Authority::named("a stranger");
    let old = |params: &mut rcgen::CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let new = |params: &mut rcgen::CertificateParams| params.not_before = date_time_ymd(2090, 1, 1);
    let server_of = |pem: &str| {
        let entry = entry(certificate(pem), &Arc::default());
        Arc::new(Acceptor::new(listening(vec![entry])).unwrap())
    };
    let spiffe = |params: &mut rcgen::CertificateParams| {
        params.subject_alt_names.push(rcgen::SanType::URI("spiffe://a/b".try_into().unwrap()));
    };
    let named = |name| Connecting { alternative_names: vec![name], ..trusting(&authority) };
    let host = |host: &str| Connecting { verify_host: Some(host.into()), ..trusting(&authority) };
    for (pem, connecting, name, verify) in [
        (authority.issue(&["a.test"], |_| {}), trusting(&authority), Some("a.test"), 0),
        (authority.issue(&["*.a.test"], |_| {}), trusting(&authority), Some("x.a.test"), 0),
        (authority.issue(&["a.test"], |_| {}), trusting(&authority), None, 0),
        (authority.issue(&["a.test"], |_| {}), host("a.test"), Some("other.test"), 62),
        (authority.issue(&["a.test"], |_| {}), trusting(&authority), Some("b.test"), 62),
        (authority.issue(&["a.test"], |_| {}), host("b.test"), Some("a.test"), 0),
        (authority.issue(&["a.test"], |_| {}), host("a.test"), None, 0),
        (authority.issue(&["a.test"], |_| {}), host("b.test"), None, 62),
        (
            authority.issue(&["a.test"], |_| {}),
            named(AlternativeName::Dns("a.test".into())),
            Some("b.test"),
            0,
        ),
        (
            authority.issue(&["a.test"], |_| {}),
            named(AlternativeName::Dns("b.test".into())),
            Some("a.test"),
            62,
        ),
        (authority.issue(&["a.test"], spiffe), named(AlternativeName::Uri("spiffe://a/b".into())), None, 0),
        (
            authority.issue(&["a.test"], spiffe),
            named(AlternativeName::Uri("spiffe://a/c".into())),
            Some("a.test"),
            62,
        ),
        (authority.issue(&["a.test"], old), trusting(&authority), Some("a.test"), 10),
        (authority.issue(&["a.test"], new), trusting(&authority), Some("a.test"), 9),
        (authority.issue(&["a.test"], |_| {}), trusting(&stranger), Some("a.test"), 20),
        (authority.issue(&["a.test"], old), Connecting::default(), Some("b.test"), 0),
    ] {
        let (client, server) = meet(&server_of(&pem), &connecting, name);
        assert_eq!(client.failure().map_or(0, |error| error.verify), verify, "{name:?}");
        assert_eq!(client.is_established(), verify == 0);
        assert_eq!(server.is_established(), verify == 0);
        if verify != 0 {
            let error = client.failure().unwrap();
            assert_eq!(error.text(), "error:0A000086:SSL routines::certificate verify failed");
        }
    }
}

#[test]
fn clients_are_verified_by_the_lines_settings() {
    let (authority, stranger) = (Authority::new(), Authority::named("a stranger"));
    let of = |authority: &Authority, change: fn(&mut rcgen::CertificateParams)| {
        Some(certificate(&authority.issue(&["client.test"], change)))
    };
    let old = |params: &mut rcgen::CertificateParams| params.not_after = date_time_ymd(2020, 1, 1);
    let (good, expired, strange) = (of(&authority, |_| {}), of(&authority, old), of(&stranger, |_| {}));
    let mut forgiving = VerifyCodes::default();
    forgiving.insert(code::CERT_HAS_EXPIRED);
    for version in [TLS12, TLS13] {
        for (mode, crt_ignore, own, verify, passes) in [
            (VerifyMode::None, VerifyCodes::default(), &good, 0, true),
            (VerifyMode::Optional, VerifyCodes::default(), &None, 0, true),
            (VerifyMode::Optional, VerifyCodes::default(), &good, 0, true),
            (VerifyMode::Required, VerifyCodes::default(), &good, 0, true),
            (VerifyMode::Required, VerifyCodes::default(), &None, 0, false),
            (VerifyMode::Required, VerifyCodes::default(), &expired, 10, false),
            (VerifyMode::Required, forgiving, &expired, 10, true),
            (VerifyMode::Optional, VerifyCodes::default(), &strange, 20, false),
            (VerifyMode::Required, VerifyCodes::ALL, &strange, 20, true),
        ] {
            let verify_as =
                ClientVerify { mode, trust: authority.trust(), crt_ignore, ..ClientVerify::default() };
            let parameters = Parameters { min: version, max: version, ..Parameters::default() };
            let acceptor = acceptor(
                &authority,
                EntryOptions { parameters, verify: verify_as, ..EntryOptions::default() },
            );
            let connecting = Connecting { certificate: own.clone(), ..trusting(&authority) };
            let (_, server) = meet(&acceptor, &connecting, Some("a.test"));
            assert_eq!(server.is_established(), passes, "{version:x} {mode:?} {verify}");
            assert_eq!(server.details().verify.own.0, verify);
            let asked = mode != VerifyMode::None && own.is_some() && passes;
            assert_eq!(server.details().peer.len(), usize::from(asked), "{mode:?}");
            if let Some(error) = server.failure() {
                let (kind, reason) = match own {
                    None => (FailureKind::Handshake, Reason::PeerDidNotReturnACertificate),
                    Some(_) => (FailureKind::CrtFail, Reason::CertificateVerifyFailed),
                };
                assert_eq!((error.kind, error.reason, error.verify), (kind, reason, verify));
            }
        }
    }
}

#[test]
fn the_name_and_the_clients_signatures_choose_the_certificate() {
    let authority = Authority::new();
    let (rsa, ecdsa) = (
        KeyPair::generate_for(&PKCS_RSA_SHA256).unwrap(),
        KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap(),
    );
    let options = Arc::default();
    let of =
        |name: &str, key: &KeyPair| entry(certificate(&authority.issue_with(&[name], key, |_| {})), &options);
    let entries =
        || vec![of("default.test", &rsa), of("a.test", &rsa), of("a.test", &ecdsa), of("*.w.test", &ecdsa)];
    let loose = Arc::new(Acceptor::new(listening(entries())).unwrap());
    let strict = Listening { strict_sni: true, ..listening(entries()) };
    let strict = Arc::new(Acceptor::new(strict).unwrap());
    let with = |peer_sigalgs: Vec<u16>| Connecting {
        parameters: Parameters { peer_sigalgs, ..Parameters::default() },
        ..Connecting::default()
    };
    for (acceptor, name, sigalgs, own, is_rsa) in [
        (&loose, Some("a.test"), vec![], "a.test", false),
        (&loose, Some("A.Test"), vec![0x0804, 0x0401], "a.test", true),
        (&loose, Some("x.w.test"), vec![], "*.w.test", false),
        (&loose, Some("nobody.test"), vec![], "default.test", true),
        (&loose, None, vec![], "default.test", true),
        (&strict, Some("a.test"), vec![], "a.test", false),
    ] {
        let (client, server) = meet(acceptor, &with(sigalgs), name);
        assert!(client.is_established(), "{name:?}: {:?}", server.failure());
        assert_eq!(served(server.details()), own);
        assert_eq!(server.details().own.as_ref().unwrap().kind() == tls::KeyKind::Rsa, is_rsa);
    }
    let mut with_default = entries();
    with_default[2].is_default = true;
    let with_default = Arc::new(Acceptor::new(listening(with_default)).unwrap());
    for (name, sigalgs, own) in
        [(None, vec![], "a.test"), (None, vec![0x0804], "default.test"), (Some("a.test"), vec![], "a.test")]
    {
        let (_, server) = meet(&with_default, &with(sigalgs), name);
        assert_eq!(served(server.details()), own);
    }
    for name in [Some("nobody.test"), None] {
        let (client, server) = meet(&strict, &Connecting::default(), name);
        assert_eq!(server.failure().unwrap().text(), "error:0A0000EA:SSL routines::callback failed");
        assert_eq!(client.failure().unwrap().reason, Reason::Alert(112));
    }
}

#[test]
fn our_protocol_order_wins_and_having_none_in_common_is_fine() {
    let authority = Authority::new();
    let list = |names: &[&str]| names.iter().map(|name| name.as_bytes().into()).collect::<Vec<Box<[u8]>>>();
    let acceptor =
        acceptor(&authority, EntryOptions { alpn: list(&["h2", "http/1.1"]), ..EntryOptions::default() });
    for (offered, agreed) in [
        (&["http/1.1", "h2"][..], Some("h2")),
        (&["http/1.1"], Some("http/1.1")),
        (&["x"], None),
        (&[], None),
    ] {
        let connecting = Connecting { alpn: list(offered), ..trusting(&authority) };
        let (client, server) = meet(&acceptor, &connecting, Some("a.test"));
        assert!(client.is_established() && server.is_established());
        for side in [&client, &server] {
            assert_eq!(side.details().alpn.as_deref(), agreed.map(str::as_bytes), "{offered:?}");
        }
    }
}

#[test]
fn sessions_are_resumed_by_ticket_and_from_the_cache() {
    let authority = Authority::new();
    for version in [TLS12, TLS13] {
        for tickets in [true, false] {
            let parameters = Parameters { min: version, max: version, ..Parameters::default() };
            let options =
                Arc::new(EntryOptions { parameters: parameters.clone(), ..EntryOptions::default() });
            let entry = entry(certificate(&authority.issue(&["a.test"], |_| {})), &options);
            let (keys, cache) =
                (Arc::new(TicketKeys::random(300).unwrap()), Arc::new(SessionCache::new(100, 300)));
            let resumption = Resumption { tickets: tickets.then_some(keys), sessions: Some(cache) };
            let acceptor =
                Arc::new(Acceptor::new(Listening { resumption, ..listening(vec![entry]) }).unwrap());
            let connector =
                Connector::new(&Connecting { parameters, sessions: 10, ..trusting(&authority) }).unwrap();
            for resumed in [false, true] {
                let (mut client, mut server) = pair(&acceptor, &connector, "a.test");
                assert_eq!(client.details().is_resumed, resumed, "{version:x} {tickets}");
                assert_eq!(server.details().is_resumed, resumed);
                // TLS 1.3 tickets arrive with the first data.
                assert_eq!(common::carry(&mut server, &mut client, b"x", 9000, 100), b"x");
            }
        }
    }
}

#[test]
fn sessions_keep_client_certificates_and_require_the_same_rules() {
    let (authority, stranger) = (Authority::new(), Authority::named("another"));
    for version in [TLS12, TLS13] {
        for tickets in [true, false] {
            let parameters = Parameters { min: version, max: version, ..Parameters::default() };
            let (keys, cache) =
                (Arc::new(TicketKeys::random(300).unwrap()), Arc::new(SessionCache::new(100, 300)));
            let resumption = Resumption { tickets: tickets.then_some(keys), sessions: Some(cache) };
            let served = certificate(&authority.issue(&["a.test"], |_| {}));
            let listener = |verify: ClientVerify| {
                let options =
                    EntryOptions { parameters: parameters.clone(), verify, ..EntryOptions::default() };
                let entries = vec![entry(served.clone(), &Arc::new(options))];
                Arc::new(
                    Acceptor::new(Listening { resumption: resumption.clone(), ..listening(entries) })
                        .unwrap(),
                )
            };
            let lenient = ClientVerify {
                mode: VerifyMode::Required,
                trust: authority.trust(),
                crt_ignore: VerifyCodes::ALL,
                ca_ignore: VerifyCodes::ALL,
                ..ClientVerify::default()
            };
            let acceptor = listener(lenient.clone());
            let connector = Connector::new(&Connecting {
                parameters: parameters.clone(),
                sessions: 10,
                certificate: Some(certificate(&stranger.issue(&["client.test"], |_| {}))),
                ..trusting(&authority)
            })
            .unwrap();
            let mut groups = Vec::new();
            // A session that was resumed from a resumed session keeps the data too.
            for resumed in [false, true, true] {
                let (mut client, mut server) = pair(&acceptor, &connector, "a.test");
                let details = server.details();
                assert_eq!(details.is_resumed, resumed, "{version:x} {tickets}");
                assert_eq!(details.verify.last, code::UNABLE_TO_VERIFY_LEAF_SIGNATURE);
                assert_eq!(details.verify.own == code::OK, resumed);
                assert_eq!(details.peer.len(), 1);
                groups.extend([details.group, client.details().group]);
                common::carry(&mut server, &mut client, b"x", 9000, 100);
            }
            assert!(groups[0] != 0 && groups.iter().all(|group| *group == groups[0]), "{groups:?}");
            for other in [
                ClientVerify { crt_ignore: VerifyCodes::default(), ..lenient.clone() },
                ClientVerify { trust: stranger.trust(), ..lenient.clone() },
                ClientVerify { mode: VerifyMode::Optional, ..lenient.clone() },
                ClientVerify::default(),
            ] {
                let acceptor = listener(other);
                let mut client = Session::connect(&connector, Some("a.test")).unwrap();
                let mut server = Session::accept(&acceptor);
                let _ = shake(&mut client, &mut server);
                assert!(!server.details().is_resumed, "{version:x} {tickets}");
            }
        }
    }
}

#[test]
fn a_certificate_is_replaced_while_connections_continue() {
    let authority = Authority::new();
    let options = Arc::default();
    let (old, other) = (authority.issue(&["a.test"], |_| {}), authority.issue(&["b.test"], |_| {}));
    let named = |name: &str, pem: &str| Arc::new(tls::Certificate::from_pem(name, pem.as_bytes()).unwrap());
    let entries = vec![entry(named("one", &old), &options), entry(named("two", &other), &options)];
    let acceptor = Arc::new(Acceptor::new(Listening { strict_sni: true, ..listening(entries) }).unwrap());
    let (mut client, mut server) = pair(&acceptor, &connector(&authority), "b.test");
    let new = named("two", &authority.issue(&["c.test"], |_| {}));
    assert_eq!(acceptor.replace("two", &new), Ok(1));
    assert_eq!(acceptor.replace("three", &new), Ok(0));
    assert_eq!(common::carry(&mut client, &mut server, b"on", 9000, 100), b"on");
    let name_of = |name| {
        let (_, server) = meet(&acceptor, &trusting(&authority), Some(name));
        server.is_established().then(|| served(server.details()).to_owned())
    };
    assert_eq!((name_of("c.test"), name_of("b.test")), (Some("c.test".to_owned()), None));
    acceptor.remove(1);
    assert_eq!((name_of("c.test"), name_of("a.test")), (None, Some("a.test".to_owned())));
    let place = acceptor.add(entry(new, &options)).unwrap();
    assert_eq!(name_of("c.test"), Some("c.test".to_owned()));
    assert_eq!(acceptor.entries().iter().map(|(place, _)| *place).collect::<Vec<_>>(), [0, place]);
}

#[test]
fn invalid_hellos_are_refused_with_openssls_texts() {
    let acceptor = acceptor(&Authority::new(), EntryOptions::default());
    for (bytes, text) in [
        (&b"GET / HTTP/1.1\r\n\r\n"[..], "error:0A00009C:SSL routines::http request"),
        (b"CONNECT x:1 HTTP/1.1\r\n", "error:0A00009B:SSL routines::https proxy request"),
        (b"garbage that is long enough", "error:0A00010B:SSL routines::wrong version number"),
        (b"\x16\x03\x01\x7f\xff", "error:0A0000C6:SSL routines::packet length too long"),
        (b"\x17\x03\x03\x00\x01\x00", "error:0A0000F4:SSL routines::unexpected message"),
        (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", "error:0A0000F4:SSL routines::unexpected message"),
        (b"\x16\x03\x01\x00\x05\x01\x00\x00\x01\x00", "error:0A00009F:SSL routines::length mismatch"),
        (b"\x16\x03\x01\x00\x04\x01\xff\xff\xff", "error:0A0000C6:SSL routines::packet length too long"),
    ] {
        let mut server = Session::accept(&acceptor);
        assert_eq!(server.handshake(bytes).unwrap_err().text(), text);
        // The outcome is the same if the bytes arrive one by one.
        let mut server = Session::accept(&acceptor);
        let outcome = bytes.iter().find_map(|byte| server.handshake(&[*byte]).err());
        assert!(outcome.is_some(), "{text}");
    }
    let mut server = Session::accept(&acceptor);
    assert_eq!(server.handshake(&[]), Ok(false));
    assert_eq!(
        (server.cut_off(false).kind, server.cut_off(true).kind),
        (FailureKind::Empty, FailureKind::Abort)
    );
}

#[test]
fn without_trust_anchors_every_peer_is_rejected() {
    let authority = Authority::new();
    let acceptor = acceptor(&authority, EntryOptions::default());
    let connecting = Connecting { trust: Some(Arc::new(Trust::default())), ..Connecting::default() };
    let (client, _) = meet(&acceptor, &connecting, Some("a.test"));
    assert_eq!(client.failure().unwrap().verify, 20);
}

const KEEP: Keep = Keep { lists: 1000, session: true, finished: true, secrets: true };

#[test]
fn handshake_data_is_kept_on_request() {
    let authority = Authority::new();
    for version in [TLS12, TLS13] {
        let groups = vec![0x17];
        let parameters = Parameters { min: version, max: version, groups, ..Parameters::default() };
        let options = Arc::new(EntryOptions { parameters, ..EntryOptions::default() });
        let entries = vec![entry(certificate(&authority.issue(&["a.test"], |_| {})), &options)];
        let kept = Listening { keep: KEEP, ..listening(entries) };
        let kept = Arc::new(Acceptor::new(kept).unwrap());
        // A wrong group guess by the client leads to a HelloRetryRequest.
        for groups in [vec![0x1d, 0x17], vec![0x17]] {
            let parameters = Parameters { groups, ..Parameters::default() };
            let connecting = Connecting { parameters, keep: KEEP, ..trusting(&authority) };
            let (client, server) = meet(&kept, &connecting, Some("a.test"));
            let captured = |session: &Session| {
                let captured = session.details().captured.as_ref().unwrap();
                let label = if version == TLS13 { "CLIENT_TRAFFIC_SECRET_0" } else { "CLIENT_RANDOM" };
                let secret = captured.secret(label).unwrap().to_vec();
                (captured.client_random, captured.server_random, captured.session_id.clone(), secret)
            };
            assert_eq!(captured(&client), captured(&server), "{version:x}");
            let finished = |session: &Session| session.details().captured.as_ref().unwrap().finished.clone();
            assert_eq!(finished(&client), finished(&server), "{version:x}");
            assert!(finished(&server).iter().all(|one| one.len() == if version == TLS13 { 48 } else { 12 }));
            assert!(captured(&server).0 != [0; 32] && captured(&server).1 != [0; 32]);
            let captured = server.details().captured.as_ref().unwrap();
            let lists = captured.lists.as_ref().unwrap();
            assert_eq!(lists.get(CapturedList::Groups).len(), 2 * connecting.parameters.groups.len());
            assert!(!captured.session_key.is_empty() || version == TLS13);
        }
        let (client, _) = meet(&kept, &trusting(&authority), Some("a.test"));
        assert!(client.is_established() && client.details().captured.is_none());
    }
}

#[test]
fn every_supported_group_works() {
    let authority = Authority::new();
    let names = ["X25519MLKEM768", "SecP256r1MLKEM768", "X25519", "prime256v1", "secp384r1", "secp521r1"];
    let acceptor = acceptor(&authority, {
        let groups = names.iter().map(|name| tls::names::group(name).unwrap()).collect();
        EntryOptions { parameters: Parameters { groups, ..Parameters::default() }, ..EntryOptions::default() }
    });
    for name in names {
        for version in [TLS12, TLS13] {
            let groups = vec![tls::names::group(name).unwrap()];
            let parameters = Parameters { min: version, max: version, groups, ..Parameters::default() };
            let (client, server) =
                meet(&acceptor, &Connecting { parameters, ..trusting(&authority) }, Some("a.test"));
            // The hybrid groups require TLS 1.3.
            let agrees = version == TLS13 || !name.contains("MLKEM");
            assert_eq!((client.is_established(), server.is_established()), (agrees, agrees), "{name}");
            let expected = agrees.then_some(name);
            assert_eq!(server.details().group_name(), expected);
        }
    }
}
