//! Loading certificates and CA files, valid and invalid.

mod common;

use std::fs;
use std::process::Command;
use std::sync::Arc;

use common::Authority;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use scratch::Scratch;
use tls::load::{CertificateFiles, ExtraFiles, Loader, authorities};
use tls::{Certificate, KeyKind, LoadError};

/// A directory for one test, deleted afterwards.
struct Folder(Scratch);

impl Folder {
    fn new(name: &str) -> Self {
        Self(Scratch::new(name))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("a file");
        self.path(name)
    }
}

fn load(path: &str, extra: ExtraFiles) -> Result<Vec<Arc<Certificate>>, LoadError> {
    Loader { extra, ..Loader::default() }.certificates(path)
}

/// Splits a PEM text into certificate and key.
fn halves(pem: &str) -> (&str, &str) {
    pem.split_at(pem.find("-----BEGIN PRIVATE").expect("a key"))
}

#[test]
fn pem_blocks_may_be_in_any_order_and_the_key_in_a_file_of_its_own() {
    let (authority, folder) = (Authority::new(), Folder::new("order"));
    let pem = authority.issue(&["a.test", "*.B.test"], |_| {});
    let (own, key) = halves(&pem);
    let issuer = authority.0.pem();
    for (name, text) in [
        ("bundle.pem", pem.clone()),
        ("key-first.pem", format!("{key}{own}{issuer}")),
        ("issuer-first.pem", format!("text\n{issuer}{own}{key}")),
    ] {
        let found = load(&folder.write(name, &text), ExtraFiles::ALL).expect(name);
        assert_eq!(found[0].names.iter().map(|name| &**name).collect::<Vec<_>>(), ["a.test", "*.b.test"]);
        assert_eq!(found[0].chain.len(), if name == "bundle.pem" { 1 } else { 2 }, "{name}");
    }
    let path = folder.write("apart.crt", own);
    folder.write("apart.crt.key", key);
    load(&path, ExtraFiles::ALL).expect("the key beside it");
    assert!(load(&path, ExtraFiles::NONE).is_err());
    fs::rename(folder.path("apart.crt.key"), folder.path("apart.key")).expect("renamed");
    let replaces_ending = ExtraFiles { replaces_ending: true, ..ExtraFiles::ALL };
    load(&path, replaces_ending).expect("the key beside it");
    // A configured key overrides the one in the certificate's file.
    let other = authority.issue(&["a.test"], |_| {});
    let file = folder.write("other.key", halves(&other).1);
    let files =
        CertificateFiles { key: Some(file.into()), key_is_named: true, ..CertificateFiles::default() };
    let fault = Loader::default().certificate(&folder.path("bundle.pem"), &files).expect_err("another key");
    assert!(fault.to_string().starts_with("inconsistencies between private key and certificate"), "{fault}");
}

#[test]
fn bundles_and_directories_load_all_their_certificates() {
    let (authority, folder) = (Authority::new(), Folder::new("bundle"));
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
    let ecdsa = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    folder.write("site.pem.rsa", &authority.issue_with(&["a.test"], &rsa, |_| {}));
    folder.write("site.pem.ecdsa", &authority.issue_with(&["a.test"], &ecdsa, |_| {}));
    let kinds = |path: &str| {
        let found = load(path, ExtraFiles::ALL).expect(path);
        found.iter().map(|one| one.kind()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&folder.path("site.pem")), [KeyKind::Rsa, KeyKind::Ecdsa]);
    folder.write(".hidden", "garbage");
    folder.write("site.pem.rsa.issuer", &authority.0.pem());
    assert_eq!(kinds(&folder.path("")), [KeyKind::Ecdsa, KeyKind::Rsa]);
    assert!(load(&folder.path("site.pem"), ExtraFiles::NONE).is_err());
}

#[test]
fn load_errors_have_the_file_and_the_cause() {
    let (authority, folder) = (Authority::new(), Folder::new("faults"));
    let (pem, other) = (authority.issue(&["a.test"], |_| {}), authority.issue(&["b.test"], |_| {}));
    let ((own, key), (_, other_key)) = (halves(&pem), halves(&other));
    let encrypted = "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAQID\n-----END ENCRYPTED PRIVATE KEY-----\n";
    for (name, text, cause) in [
        ("garbage.pem", "garbage".to_owned(), "unable to load certificate from file '%': no start line."),
        ("empty.pem", String::new(), "unable to load certificate from file '%': no start line."),
        ("key.pem", key.to_owned(), "unable to load certificate from file '%': no start line."),
        ("no-key.pem", own.to_owned(), "No Private Key found in '%.key'."),
        (
            "mismatch.pem",
            format!("{own}{other_key}"),
            "inconsistencies between private key and certificate loaded '%'.",
        ),
        (
            "encrypted.pem",
            format!("{encrypted}{own}"),
            "the private key at line 1 of '%' is protected by a passphrase, and no 'ssl-passphrase-cmd' is defined.",
        ),
        (
            "cut.pem",
            format!("{key}{}", &own[..200]),
            "unable to load certificate from file '%': PEM block without END line at line 6.",
        ),
        (
            "no-certificate.pem",
            format!("{key}-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n"),
            "unable to load certificate from file '%': not a certificate at line 6.",
        ),
    ] {
        let path = folder.write(name, &text);
        let fault = load(&path, ExtraFiles::ALL).expect_err(name);
        assert_eq!((fault.to_string(), &*fault.file), (cause.replace('%', &path), &*path));
    }
    let missing = folder.path("missing.pem");
    let fault = load(&missing, ExtraFiles::ALL).expect_err("missing");
    let cause = "unable to stat SSL certificate from file '%' : No such file or directory.";
    assert_eq!(fault.to_string(), cause.replace('%', &missing));
    let fault = authorities(&missing).map(drop).expect_err("missing");
    assert_eq!(
        fault.to_string(),
        format!("Couldn't open the ca-file '{missing}' (No such file or directory).")
    );
    assert!(authorities(&folder.path("garbage.pem")).is_err());
    let found = authorities(&folder.write("ca.pem", &authority.0.pem())).expect("an authority");
    assert_eq!(found.certificates.len(), 1);
}

#[test]
fn only_ocsp_responses_for_the_certificate_are_stapled() {
    let (authority, folder) = (Authority::new(), Folder::new("ocsp"));
    let pem = authority.issue(&["a.test"], |params| params.serial_number = Some(0x1234u64.into()));
    let path = folder.write("site.pem", &format!("{pem}{}", authority.0.pem()));
    let ca = folder.write("ca.pem", &(authority.0.pem() + &authority.0.key().serialize_pem()));
    let own = folder.write("own.pem", halves(&pem).0);
    let answer = |name: &str, index: &str, arguments: &[&str]| {
        let index = folder.write("index", index);
        let made = Command::new("openssl")
            .args(["ocsp", "-index", &index, "-rsigner", &ca, "-CA", &ca, "-issuer", &ca, "-cert", &own])
            .args(["-noverify", "-respout", &folder.path(name)])
            .args(arguments)
            .output();
        made.is_ok_and(|output| output.status.success())
    };
    let good = "V\t310101000000Z\t\t1234\tunknown\t/CN=x\n";
    if !answer("good", good, &["-ndays", "3"]) {
        eprintln!("openssl is not installed");
        return;
    }
    assert!(answer(
        "revoked",
        &good.replace("V\t310101000000Z\t", "R\t310101000000Z\t200101000000Z"),
        &["-ndays", "3"]
    ));
    assert!(answer("endless", good, &[]));
    let other = authority.issue(&["b.test"], |_| {});
    let other = folder.write("other.pem", &format!("{other}{}", authority.0.pem()));
    for (answer, at, warning) in [
        ("good", &path, None),
        ("revoked", &path, None),
        ("endless", &path, Some("OCSP single response: missing nextupdate")),
        ("own.pem", &path, Some("Unable to parse OCSP response")),
        ("good", &other, Some("OCSP single response: Certificate ID does not match certificate and issuer")),
    ] {
        fs::copy(folder.path(answer), format!("{at}.ocsp")).expect("a copy");
        let found = load(at, ExtraFiles::ALL).expect(answer).remove(0);
        let warning = warning.map(|warning| format!("{warning}. Content will be ignored."));
        assert_eq!(found.warning.as_deref(), warning.as_deref(), "{answer}");
        assert_eq!(found.ocsp.is_some(), warning.is_none());
    }
    // Without the issuer, the response cannot be compared.
    folder.write("site.pem", &pem);
    assert!(load(&path, ExtraFiles::ALL).is_err());
    folder.write("site.pem.issuer", &authority.0.pem());
    fs::copy(folder.path("good"), format!("{path}.ocsp")).expect("a copy");
    let mut found = load(&path, ExtraFiles::ALL).expect("with its issuer").remove(0);
    let response = found.ocsp.clone().expect("an answer");
    let certificate = Arc::make_mut(&mut found);
    let late = response.next_update.expect("an end") + 1000;
    assert_eq!(certificate.staple(&response.der, late), Err("OCSP single response: no longer valid."));
    assert!(response.is_current(late - 1000) && !response.is_current(late));
}

#[test]
fn encrypted_keys_open_with_their_passphrase() {
    let (authority, folder) = (Authority::new(), Folder::new("passphrase"));
    let pem = authority.issue(&["a.test"], |_| {});
    let plain = folder.write("plain.key", halves(&pem).1);
    let framed = ["pkcs8", "-topk8"];
    for (name, form, arguments) in [
        ("aes256", &framed[..], &["-v2", "aes-256-cbc"][..]),
        ("aes192", &framed, &["-v2", "aes-192-cbc", "-v2prf", "hmacWithSHA1"]),
        ("aes128", &framed, &["-v2", "aes-128-cbc", "-v2prf", "hmacWithSHA512", "-iter", "1000"]),
        // Encryption schemes that only OpenSSL supports.
        ("pbes1", &framed, &["-v1", "PBE-SHA1-3DES"]),
        ("scrypt", &framed, &["-scrypt"]),
        ("proc-type", &["ec"], &["-aes256"]),
        ("proc-type-3des", &["ec"], &["-des3"]),
    ] {
        if !name.starts_with("aes") && !tls::HAS_OPENSSL {
            continue;
        }
        let key = folder.path("encrypted");
        let made = Command::new("openssl")
            .args(form)
            .args(["-passout", "pass:secret", "-in", &plain, "-out", &key])
            .args(arguments)
            .output();
        if !made.is_ok_and(|output| output.status.success()) {
            eprintln!("openssl is not installed");
            return;
        }
        let path =
            folder.write(name, &(halves(&pem).0.to_owned() + &fs::read_to_string(&key).expect("a key")));
        let with = |passphrase: Option<&'static [u8]>| {
            let passphrases =
                Arc::new(tls::store::Passphrases::new(move |_: &str| passphrase.map(<[u8]>::to_vec)));
            Loader { passphrases: Some(passphrases), ..Loader::default() }.certificates(&path)
        };
        with(Some(b"secret")).expect(name);
        let fault = with(Some(b"other")).expect_err(name).to_string();
        assert!(fault.contains("wrong passphrase"), "{fault}");
        let fault = with(None).expect_err(name).to_string();
        assert!(fault.contains("no passphrase was provided"), "{fault}");
        assert!(load(&path, ExtraFiles::ALL).is_err());
    }
}
