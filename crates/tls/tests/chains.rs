//! Certificate chains, valid and invalid in many ways. The results are compared with OpenSSL's.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod common;

use std::fs;
use std::process::Command;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, CustomExtension, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyIdMethod, KeyPair, KeyUsagePurpose,
    NameConstraints, RevokedCertParams, SerialNumber, date_time_ymd,
};
use scratch::Scratch;
use tls::{Trust, verify_chain};

/// A deterministic random number generator.
struct Draw(u64);

impl Draw {
    fn below(&mut self, n: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % n
    }

    fn once_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }
}

/// A chain with the corresponding input for OpenSSL.
struct Case {
    /// PEM and DER of each certificate, from the peer's own to the root.
    certificates: Vec<(String, Vec<u8>)>,
    /// Indexes of the certificates sent, and of the trusted ones.
    sent: Vec<usize>,
    trusted: Vec<usize>,
    crls: Vec<(String, Vec<u8>)>,
    is_server: bool,
}

fn params(draw: &mut Draw, depth: usize, top: usize) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("number {depth}"));
    params.serial_number = Some(SerialNumber::from(1000 + draw.below(1 << 40)));
    params.use_authority_key_identifier_extension = draw.below(3) > 0;
    if draw.once_in(25) {
        params.not_after = date_time_ymd(2020, 1, 1);
    }
    if draw.once_in(25) {
        params.not_before = date_time_ymd(2090, 1, 1);
    }
    if draw.once_in(25) {
        let mut extension = CustomExtension::from_oid_content(&[1, 3, 6, 1, 4, 1, 99_999, 1], vec![5, 0]);
        extension.set_criticality(draw.below(3) > 0);
        params.custom_extensions.push(extension);
    }
    if depth > 0 {
        params.is_ca = match draw.below(20) {
            0 => IsCa::NoCa,
            1 => IsCa::ExplicitNoCa,
            2..5 => IsCa::Ca(BasicConstraints::Constrained(draw.below(3) as u8)),
            _ => IsCa::Ca(BasicConstraints::Unconstrained),
        };
        params.key_usages = match draw.below(12) {
            0 => vec![KeyUsagePurpose::DigitalSignature],
            1 | 2 => vec![KeyUsagePurpose::KeyCertSign],
            3..6 => vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign],
            _ => Vec::new(),
        };
        if depth < top && draw.once_in(6) {
            let names = ["a.test", "test", ".test", "other", "b.a.test", ""];
            let tree = GeneralSubtree::DnsName(names[draw.below(6) as usize].to_owned());
            let (mut permitted_subtrees, mut excluded_subtrees) = (Vec::new(), Vec::new());
            if draw.below(2) == 0 { &mut permitted_subtrees } else { &mut excluded_subtrees }.push(tree);
            params.name_constraints = Some(NameConstraints { permitted_subtrees, excluded_subtrees });
        }
    } else {
        if draw.below(4) > 0 {
            params.subject_alt_names.push(rcgen::SanType::DnsName("b.a.test".try_into().unwrap()));
        }
        params.key_usages = match draw.below(8) {
            0 => vec![KeyUsagePurpose::KeyEncipherment],
            1 => vec![KeyUsagePurpose::DigitalSignature],
            2 => vec![KeyUsagePurpose::DataEncipherment],
            _ => Vec::new(),
        };
    }
    if draw.once_in(5) {
        let usage = [
            ExtendedKeyUsagePurpose::ServerAuth,
            ExtendedKeyUsagePurpose::ClientAuth,
            ExtendedKeyUsagePurpose::Any,
            ExtendedKeyUsagePurpose::CodeSigning,
        ];
        params.extended_key_usages.push(usage[draw.below(4) as usize].clone());
    }
    params
}

fn revoked(draw: &mut Draw, below: &CertificateParams, issuer: &Issuer<'_, &KeyPair>) -> (String, Vec<u8>) {
    let serial_number = match draw.below(3) {
        0 => below.serial_number.clone().unwrap(),
        _ => SerialNumber::from(7u64),
    };
    let one = RevokedCertParams {
        serial_number,
        revocation_time: date_time_ymd(2021, 1, 1),
        reason_code: None,
        invalidity_date: None,
    };
    let (this_update, next_update) = match draw.below(8) {
        0 => (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 1, 1)),
        1 => (date_time_ymd(2089, 1, 1), date_time_ymd(2090, 1, 1)),
        _ => (date_time_ymd(2020, 1, 1), date_time_ymd(2090, 1, 1)),
    };
    let list = CertificateRevocationListParams {
        this_update,
        next_update,
        crl_number: SerialNumber::from(1u64),
        issuing_distribution_point: None,
        revoked_certs: vec![one],
        key_identifier_method: KeyIdMethod::Sha256,
    };
    let list = list.signed_by(issuer).unwrap();
    (list.pem().unwrap(), list.der().to_vec())
}

impl Case {
    fn new(draw: &mut Draw) -> Self {
        let length = 1 + draw.below(4) as usize;
        let top = length - 1;
        let keys: Vec<_> = (0..length).map(|_| KeyPair::generate().unwrap()).collect();
        let stranger = KeyPair::generate().unwrap();
        let all: Vec<_> = (0..length).map(|depth| params(draw, depth, top)).collect();
        let (mut certificates, mut crls) = (Vec::new(), Vec::new());
        let with_crls = draw.once_in(3);
        for depth in 0..length {
            let above = if depth == top { depth } else { depth + 1 };
            let made = if depth == top {
                all[depth].self_signed(&keys[depth])
            } else {
                // Occasionally, the certificate is signed with a key other than the issuer's.
                let key = if draw.once_in(25) { &stranger } else { &keys[above] };
                all[depth].signed_by(&keys[depth], &Issuer::from_params(&all[above], key))
            };
            let made = made.unwrap();
            certificates.push((made.pem(), made.der().to_vec()));
            let may_sign = {
                let usages = &all[above].key_usages;
                usages.is_empty() || usages.contains(&KeyUsagePurpose::CrlSign)
            };
            if with_crls && may_sign && draw.below(10) > 0 {
                crls.push(revoked(draw, &all[depth], &Issuer::from_params(&all[above], &keys[above])));
            }
        }
        let mut sent: Vec<usize> = (1..length).filter(|_| draw.below(12) > 0).collect();
        if draw.once_in(3) {
            sent.reverse();
        }
        let trusted = (0..length)
            .filter(|depth| if *depth == top { draw.below(8) > 0 } else { draw.once_in(8) })
            .collect();
        Self { certificates, sent, trusted, crls, is_server: draw.below(2) == 0 }
    }

    fn pem(&self, which: &[usize]) -> String {
        which.iter().map(|depth| &*self.certificates[*depth].0).collect()
    }

    /// Returns the first error that OpenSSL reports, and its depth.
    fn ask_openssl(&self, folder: &Folder) -> Option<(u8, usize)> {
        let mut command = Command::new("openssl");
        command.args(["verify", "-no-CApath", "-no-CAstore", "-auth_level", "2", "-purpose"]);
        command.arg(if self.is_server { "sslserver" } else { "sslclient" });
        command.args(["-CAfile", &folder.write("ca", &self.pem(&self.trusted))]);
        command.args(["-untrusted", &folder.write("sent", &self.pem(&self.sent))]);
        if !self.crls.is_empty() {
            let lists: String = self.crls.iter().map(|list| &*list.0).collect();
            command.args(["-crl_check_all", "-CRLfile", &folder.write("crl", &lists)]);
        }
        let output = command.arg(folder.write("own", &self.certificates[0].0)).output().unwrap();
        let said =
            String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let first = said.lines().find_map(|line| {
            let (number, rest) = line.strip_prefix("error ")?.split_once(" at ")?;
            Some((number.parse().ok()?, rest.split(' ').next()?.parse().ok()?))
        });
        assert!(first.is_some() || said.contains("OK"), "{said}");
        first
    }

    /// Returns the first error that Weir's own verification reports.
    fn ask_ourselves(&self) -> Option<(u8, usize)> {
        let der = |depth: &usize| Arc::from(&*self.certificates[*depth].1);
        let trust = Trust {
            authorities: self.trusted.iter().map(der).collect(),
            crls: self.crls.iter().map(|list| Arc::from(&*list.1)).collect(),
            ..Trust::default()
        };
        let sent: Vec<&[u8]> = self.sent.iter().map(|depth| &*self.certificates[*depth].1).collect();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
        let mut first = None;
        let passed =
            verify_chain(&trust, &self.certificates[0].1, &sent, self.is_server, now, &mut |code, depth| {
                first = Some((code.0, depth));
                false
            });
        assert_eq!(passed, first.is_none());
        first
    }
}

/// A directory, and a certificate outside of all chains.
struct Folder(Scratch, String);

impl Folder {
    fn new(name: &str) -> Self {
        let stranger = CertificateParams::new(vec!["stranger.test".to_owned()]).unwrap();
        Self(Scratch::new(name), stranger.self_signed(&KeyPair::generate().unwrap()).unwrap().pem())
    }

    fn write(&self, name: &str, text: &str) -> String {
        // OpenSSL rejects an empty CA file.
        let text = if text.is_empty() { &self.1 } else { text };
        fs::write(self.0.join(name), text).unwrap();
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

#[test]
fn verdicts_on_chains_match_openssl() {
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("openssl is not installed");
        return;
    }
    let folder = Folder::new("chains");
    let cases = std::env::var("CASES").ok().and_then(|cases| cases.parse().ok()).unwrap_or(400u64);
    let mut seen = std::collections::BTreeMap::new();
    let mut differences = Vec::new();
    for seed in 0..cases {
        let case = Case::new(&mut Draw(seed * 7919 + 1));
        let (theirs, ours) = (case.ask_openssl(&folder), case.ask_ourselves());
        *seen.entry(theirs.map(|(code, _)| code)).or_insert(0) += 1;
        if theirs != ours {
            differences.push(format!("seed {seed}: OpenSSL {theirs:?}, we {ours:?}"));
        }
    }
    eprintln!("{seen:?}");
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    assert!(seen.len() > 12 && seen[&None] > 20, "{seen:?}");
}

#[test]
fn version_1_certificates_work_as_roots_and_as_the_peers_own() {
    let folder = Folder::new("version-1");
    let openssl = |arguments: &str| {
        let words = arguments.split(' ').map(|word| word.replace('%', folder.0.to_str().unwrap()));
        Command::new("openssl").args(words).output().is_ok_and(|output| output.status.success())
    };
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";
    if !openssl(&format!("req -new {key} -keyout %/root.key -out %/root.csr -subj /CN=root")) {
        eprintln!("openssl is not installed");
        return;
    }
    assert!(openssl(&format!("req -new {key} -keyout %/own.key -out %/own.csr -subj /CN=a.test")));
    assert!(openssl("x509 -req -in %/root.csr -signkey %/root.key -out %/root.pem -days 30"));
    assert!(openssl(
        "x509 -req -in %/own.csr -CA %/root.pem -CAkey %/root.key -CAcreateserial -out %/own.pem -days 30"
    ));
    let read = |name: &str| fs::read(folder.0.join(name)).unwrap();
    let root = tls::store::PemParts::read("root", &read("root.pem")).unwrap().certificates;
    let pem = [read("own.pem"), read("own.key")].concat();
    let own = Arc::new(tls::Certificate::from_pem("own", &pem).unwrap());
    assert_eq!(tls::x509::CertificateFields::parse(&own.chain[0]).unwrap().version(), 1);
    let trust = Arc::new(Trust { authorities: root, ..Trust::default() });
    for version in [tls::TLS12, tls::TLS13] {
        let parameters = tls::Parameters { min: version, max: version, ..tls::Parameters::default() };
        let verify = tls::ClientVerify {
            mode: tls::VerifyMode::Required,
            trust: trust.clone(),
            ..tls::ClientVerify::default()
        };
        let options = tls::EntryOptions { parameters, verify, ..tls::EntryOptions::default() };
        let entry = common::entry(own.clone(), &Arc::new(options));
        let acceptor = Arc::new(tls::Acceptor::new(common::listening(vec![entry])).unwrap());
        let connecting = tls::Connecting {
            trust: Some(trust.clone()),
            certificate: Some(own.clone()),
            ..tls::Connecting::default()
        };
        let (_, server) = common::pair(&acceptor, &tls::Connector::new(&connecting).unwrap(), "a.test");
        assert_eq!((server.details().peer.len(), server.details().verify.last.0), (1, 0));
    }
}
