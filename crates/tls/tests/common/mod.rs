//! Generated certificates, and two sessions connected in memory.

#![allow(dead_code, reason = "each test uses its part")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tls::{
    Acceptor, Certificate, CertificateEntry, Connecting, Connector, EntryOptions, Error, Listening, Session,
    Trust,
};

/// A CA.
pub(crate) struct Authority(pub(crate) CertifiedIssuer<'static, KeyPair>);

impl Authority {
    pub(crate) fn new() -> Self {
        Self::named("the authority")
    }

    pub(crate) fn named(name: &str) -> Self {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        Self(CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap())
    }

    pub(crate) fn trust(&self) -> Arc<Trust> {
        Arc::new(Trust { authorities: vec![self.0.der().to_vec().into()], ..Trust::default() })
    }

    /// Returns the PEM text of a certificate for `names` and its key, modified by `change`.
    pub(crate) fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> String {
        self.issue_with(names, &KeyPair::generate().unwrap(), change)
    }

    pub(crate) fn issue_with(
        &self,
        names: &[&str],
        key: &KeyPair,
        change: impl FnOnce(&mut CertificateParams),
    ) -> String {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        change(&mut params);
        let certificate = params.signed_by(key, &self.0).unwrap();
        certificate.pem() + &key.serialize_pem()
    }
}

pub(crate) fn certificate(pem: &str) -> Arc<Certificate> {
    Arc::new(Certificate::from_pem("test.pem", pem.as_bytes()).unwrap())
}

pub(crate) fn entry(certificate: Arc<Certificate>, options: &Arc<EntryOptions>) -> CertificateEntry {
    CertificateEntry { certificate, filters: Vec::new(), is_default: false, options: options.clone() }
}

pub(crate) fn listening(entries: Vec<CertificateEntry>) -> Listening {
    Listening { entries, ..Listening::default() }
}

/// Creates a listener with one certificate.
pub(crate) fn acceptor(authority: &Authority, options: EntryOptions) -> Arc<Acceptor> {
    let certificate = certificate(&authority.issue(&["a.test"], |_| {}));
    Arc::new(Acceptor::new(listening(vec![entry(certificate, &Arc::new(options))])).unwrap())
}

pub(crate) fn connector(authority: &Authority) -> Connector {
    Connector::new(&Connecting { trust: Some(authority.trust()), ..Connecting::default() }).unwrap()
}

/// Exchanges pending bytes until there are none. Returns the outcome of each side.
pub(crate) fn shake(
    client: &mut Session,
    server: &mut Session,
) -> (Result<bool, Error>, Result<bool, Error>) {
    let mut outcomes = (client.handshake(&[]), Ok(false));
    loop {
        let sent = client.unsent().to_vec();
        client.sent(sent.len());
        if !sent.is_empty() && outcomes.1 == Ok(false) {
            outcomes.1 = server.handshake(&sent);
        }
        let sent_back = server.unsent().to_vec();
        if outcomes.0 == Ok(true) || (sent.is_empty() && sent_back.is_empty()) {
            // Tickets remain among the unsent bytes.
            return outcomes;
        }
        server.sent(sent_back.len());
        if outcomes.0 == Ok(false) {
            outcomes.0 = client.handshake(&sent_back);
        }
    }
}

/// Returns both sides of an established connection.
pub(crate) fn pair(acceptor: &Arc<Acceptor>, connector: &Connector, name: &str) -> (Session, Session) {
    let mut client = Session::connect(connector, Some(name)).unwrap();
    let mut server = Session::accept(acceptor);
    assert_eq!(shake(&mut client, &mut server), (Ok(true), Ok(true)));
    (client, server)
}

/// Sends `text` from one side to the other, in pieces of `cut` bytes of ciphertext, with `room` bytes for the plaintext.
pub(crate) fn carry(from: &mut Session, to: &mut Session, text: &[u8], cut: usize, room: usize) -> Vec<u8> {
    let mut wire = from.unsent().to_vec();
    from.sent(wire.len());
    let mut taken = 0;
    while taken < text.len() {
        let mut out = vec![0; 40000];
        let (half, rest) = text[taken..].split_at((text.len() - taken) / 2);
        let (plain, sealed) = from.seal(half, rest, &mut out).unwrap();
        taken += plain;
        wire.extend_from_slice(&out[..sealed]);
    }
    let mut got = Vec::new();
    let mut space = vec![0; room];
    for piece in wire.chunks(cut) {
        let mut received = vec![0; to.kept() + piece.len()];
        let kept = to.take_kept(&mut received);
        received[kept..].copy_from_slice(piece);
        let mut opened = to.open(&mut received, &mut space).unwrap();
        while opened.filled > 0 {
            got.extend_from_slice(&space[..opened.filled]);
            let mut kept = vec![0; to.kept()];
            to.take_kept(&mut kept);
            opened = to.open(&mut kept, &mut space).unwrap();
        }
    }
    got
}
