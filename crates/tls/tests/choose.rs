//! The choice of a listener for a bare ClientHello, without records and sessions.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::sync::Arc;

use common::{Authority, certificate, connector, entry, listening};
use tls::challenges::{self, Challenges};
use tls::hello::Hello;
use tls::{
    Acceptor, Certificate, Chosen, EntryOptions, Lacks, Listening, Parameters, Reason, Session, TLS10, TLS12,
    TLS13,
};

/// Encodes an extension.
fn extension(kind: u16, data: &[u8]) -> Vec<u8> {
    [&kind.to_be_bytes(), &length16(data)[..]].concat()
}

/// Encodes bytes with a two-byte length prefix.
fn length16(bytes: &[u8]) -> Vec<u8> {
    [&u16::try_from(bytes.len()).unwrap().to_be_bytes(), bytes].concat()
}

/// Encodes bytes with a one-byte length prefix.
fn length8(bytes: &[u8]) -> Vec<u8> {
    [&[u8::try_from(bytes.len()).unwrap()], bytes].concat()
}

/// Encodes two-byte numbers.
fn numbers(numbers: &[u16]) -> Vec<u8> {
    numbers.iter().flat_map(|number| number.to_be_bytes()).collect()
}

/// A client's offer.
#[derive(Clone)]
struct Offer {
    name: &'static str,
    versions: &'static [u16],
    suites: &'static [u16],
    signatures: &'static [u16],
    alpn: &'static [&'static [u8]],
}

const ECDSA: u16 = 0x0403;
const RSA: u16 = 0x0804;

const USUAL: Offer = Offer {
    name: "a.test",
    versions: &[TLS13, TLS12],
    suites: &[0x1301, 0xc02b, 0xc02f],
    signatures: &[ECDSA, RSA],
    alpn: &[],
};

/// Returns the ClientHello of such a client, as in CRYPTO frames.
fn message(offer: &Offer) -> Vec<u8> {
    let name = [&[0], &length16(offer.name.as_bytes())[..]].concat();
    let protocols: Vec<u8> = offer.alpn.iter().flat_map(|name| length8(name)).collect();
    let mut extensions = [
        extension(0, &length16(&name)),
        extension(10, &length16(&numbers(&[29, 23]))),
        extension(13, &length16(&numbers(offer.signatures))),
        extension(43, &length8(&numbers(offer.versions))),
        // The parameters of a QUIC connection.
        extension(57, &[1, 2, 0x67, 0x10]),
    ]
    .concat();
    if !protocols.is_empty() {
        extensions.extend(extension(16, &length16(&protocols)));
    }
    let body = [
        &numbers(&[TLS12])[..],
        &[7; 32],
        &length8(b""),
        &length16(&numbers(offer.suites)),
        &length8(&[0]),
        &length16(&extensions),
    ]
    .concat();
    let [_, length @ ..] = u32::try_from(body.len()).unwrap().to_be_bytes();
    [&[1], &length[..], &body].concat()
}

fn choose(acceptor: &Acceptor, offer: &Offer) -> Chosen {
    acceptor.choose(&Hello::parse(&message(offer)).unwrap())
}

/// Returns the first name of the chosen certificate.
fn served(chosen: &Chosen) -> Option<String> {
    chosen.details.own.as_ref()?.names.first().map(ToString::to_string)
}

fn listener(names: &[&str], options: EntryOptions, strict_sni: bool) -> Acceptor {
    let (authority, options) = (Authority::new(), Arc::new(options));
    let entries =
        names.iter().map(|name| entry(certificate(&authority.issue(&[name], |_| {})), &options)).collect();
    Acceptor::new(Listening { strict_sni, ..listening(entries) }).unwrap()
}

#[test]
fn a_bare_hello_chooses_certificate_version_and_name() {
    let acceptor = listener(&["default.test", "a.test", "*.w.test"], EntryOptions::default(), false);
    for (name, own) in
        [("a.test", "a.test"), ("x.w.test", "*.w.test"), ("A.TEST", "a.test"), ("b.test", "default.test")]
    {
        let chosen = choose(&acceptor, &Offer { name, ..USUAL });
        assert!(chosen.config.is_ok(), "{name}");
        assert_eq!(served(&chosen).as_deref(), Some(own), "{name}");
        assert_eq!((chosen.details.sni.as_deref(), chosen.details.version), (Some(name), TLS13));
        assert!(!chosen.details.is_challenge && chosen.details.lacks.is_none());
    }
}

#[test]
fn refused_clients_have_a_reason_and_the_missing_capability() {
    let strict = listener(&["a.test"], EntryOptions::default(), true);
    let chosen = choose(&strict, &Offer { name: "b.test", ..USUAL });
    assert_eq!(chosen.config.as_ref().unwrap_err().reason, Reason::CallbackFailed);
    assert_eq!(chosen.details.sni.as_deref(), Some("b.test"));
    assert!(chosen.details.own.is_none());

    let parameters = Parameters { min: TLS13, ..Parameters::default() };
    let newest = listener(&["a.test"], EntryOptions { parameters, ..EntryOptions::default() }, false);
    let chosen = choose(&newest, &Offer { versions: &[TLS12], ..USUAL });
    assert_eq!(served(&chosen).as_deref(), Some("a.test"));
    assert_eq!(chosen.details.version, TLS12);
    assert_eq!(chosen.config.unwrap_err().reason, Reason::UnsupportedProtocol);

    let usual = listener(&["a.test"], EntryOptions::default(), false);
    let chosen = choose(&usual, &Offer { versions: &[TLS10], ..USUAL });
    assert_eq!(chosen.config.unwrap_err().reason, Reason::UnsupportedProtocol);
    assert_eq!(chosen.details.lacks, Some(Lacks::Version(TLS10)));

    // Only an RSA key exchange suite, which rustls does not support.
    let chosen = choose(&usual, &Offer { versions: &[TLS12], suites: &[0x009c], ..USUAL });
    assert_eq!(chosen.config.unwrap_err().reason, Reason::NoSharedCipher);
    assert_eq!(chosen.details.lacks, Some(Lacks::Suite(0x009c)));
}

#[test]
fn challenges_are_chosen_before_all_certificates() {
    let challenges = Arc::new(Challenges::default());
    let pem = Authority::new().issue(&["a.test"], |_| {});
    challenges.put("a.test", &Certificate::from_pem("challenge", pem.as_bytes()).unwrap()).unwrap();
    let own = entry(certificate(&Authority::new().issue(&["a.test"], |_| {})), &Arc::default());
    let acceptor = Acceptor::new(Listening { challenges: Some(challenges), ..listening(vec![own]) }).unwrap();
    let asking = Offer { alpn: &[challenges::PROTOCOL], ..USUAL };
    let chosen = choose(&acceptor, &asking);
    assert!(chosen.config.is_ok() && chosen.details.is_challenge && chosen.details.own.is_none());
    let chosen = choose(&acceptor, &Offer { alpn: &[b"h3"], ..USUAL });
    assert!(chosen.config.is_ok() && !chosen.details.is_challenge && chosen.details.own.is_some());
}

#[test]
fn records_and_bare_messages_lead_to_the_same_choice() {
    let acceptor = Arc::new(listener(&["default.test", "a.test"], EntryOptions::default(), false));
    for name in ["a.test", "b.test"] {
        let mut client = Session::connect(&connector(&Authority::new()), Some(name)).unwrap();
        assert_eq!(client.handshake(&[]), Ok(false));
        // One record holds the message.
        let bare = acceptor.choose(&Hello::parse(&client.unsent()[5..]).unwrap());
        let mut server = Session::accept(&acceptor);
        assert_eq!(server.handshake(client.unsent()), Ok(false));
        let (details, bare) = (server.details(), &bare.details);
        assert_eq!((&details.sni, details.version), (&bare.sni, bare.version));
        assert!(Arc::ptr_eq(details.own.as_ref().unwrap(), bare.own.as_ref().unwrap()));
    }
}

#[test]
fn only_a_whole_client_hello_is_parsed() {
    let whole = message(&USUAL);
    assert!(Hello::parse(&whole).is_ok());
    for cut in 0..whole.len() {
        assert_eq!(Hello::length(&whole[..cut]), Ok((cut >= 4).then_some(whole.len())), "{cut}");
        assert_eq!(Hello::parse(&whole[..cut]).err(), Some(Reason::LengthMismatch), "{cut}");
    }
    let longer = [&whole[..], &[0]].concat();
    assert_eq!(Hello::parse(&longer).err(), Some(Reason::LengthMismatch));
    let mut server_hello = whole.clone();
    server_hello[0] = 2;
    assert_eq!(Hello::parse(&server_hello).err(), Some(Reason::UnexpectedMessage));
    assert_eq!(Hello::length(&[1, 0xff, 0, 0]), Err(Reason::PacketLengthTooLong));
}
