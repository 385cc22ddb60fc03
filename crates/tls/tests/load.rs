//! Certificates and authorities from files, good and bad.

mod common;

use std::fs;
use std::path::PathBuf;

use common::Authority;
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256};
use tls::KeyKind;
use tls::load::{Extra, Files, authorities, certificate, certificates};

/// A directory of the test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("weir-tls-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("UTF-8").to_owned()
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.0.join(name), text).expect("a file");
        self.path(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The certificate and the key of a PEM text.
fn halves(pem: &str) -> (&str, &str) {
    pem.split_at(pem.find("-----BEGIN PRIVATE").expect("a key"))
}

#[test]
fn a_file_may_hold_its_blocks_in_any_order_and_the_key_may_stand_beside_it() {
    let (authority, folder) = (Authority::new(), Folder::new("order"));
    let pem = authority.issue(&["a.test", "*.B.test"], |_| {});
    let (own, key) = halves(&pem);
    let issuer = authority.0.pem();
    for (name, text) in [
        ("bundle.pem", pem.clone()),
        ("key-first.pem", format!("{key}{own}{issuer}")),
        ("issuer-first.pem", format!("text\n{issuer}{own}{key}")),
    ] {
        let found = certificates(&folder.write(name, &text), Extra::ALL).expect(name);
        assert_eq!(found[0].names.iter().map(|name| &**name).collect::<Vec<_>>(), ["a.test", "*.b.test"]);
        assert_eq!(found[0].chain.len(), if name == "bundle.pem" { 1 } else { 2 }, "{name}");
    }
    let path = folder.write("apart.crt", own);
    folder.write("apart.crt.key", key);
    certificates(&path, Extra::ALL).expect("the key beside it");
    assert!(certificates(&path, Extra::NONE).is_err());
    fs::rename(folder.path("apart.crt.key"), folder.path("apart.key")).expect("renamed");
    let replaces_ending = Extra { replaces_ending: true, ..Extra::ALL };
    certificates(&path, replaces_ending).expect("the key beside it");
    // A key that is named counts over the one in the file.
    let other = authority.issue(&["a.test"], |_| {});
    let file = folder.write("other.key", halves(&other).1);
    let files = Files { key: Some(file.into()), key_is_named: true, ..Files::default() };
    let fault = certificate(&folder.path("bundle.pem"), &files).expect_err("another key");
    assert!(fault.to_string().starts_with("inconsistencies between private key and certificate"), "{fault}");
}

#[test]
fn bundles_and_directories_give_all_their_certificates() {
    let (authority, folder) = (Authority::new(), Folder::new("bundle"));
    let rsa = KeyPair::generate_for(&PKCS_RSA_SHA256).expect("a key");
    let ecdsa = KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).expect("a key");
    folder.write("site.pem.rsa", &authority.issue_with(&["a.test"], &rsa, |_| {}));
    folder.write("site.pem.ecdsa", &authority.issue_with(&["a.test"], &ecdsa, |_| {}));
    let kinds = |path: &str| {
        let found = certificates(path, Extra::ALL).expect(path);
        found.iter().map(|one| one.kind()).collect::<Vec<_>>()
    };
    assert_eq!(kinds(&folder.path("site.pem")), [KeyKind::Rsa, KeyKind::Ecdsa]);
    folder.write(".hidden", "garbage");
    folder.write("site.pem.rsa.issuer", &authority.0.pem());
    assert_eq!(kinds(&folder.path("")), [KeyKind::Ecdsa, KeyKind::Rsa]);
    assert!(certificates(&folder.path("site.pem"), Extra::NONE).is_err());
}

#[test]
fn what_cannot_be_used_is_named_with_its_file_and_cause() {
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
            "unable to load certificate from file '%': a PEM block without its end at line 6.",
        ),
        (
            "no-certificate.pem",
            format!("{key}-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n"),
            "unable to load certificate from file '%': not a certificate at line 6.",
        ),
    ] {
        let path = folder.write(name, &text);
        let fault = certificates(&path, Extra::ALL).expect_err(name);
        assert_eq!((fault.to_string(), &*fault.file), (cause.replace('%', &path), &*path));
    }
    let missing = folder.path("missing.pem");
    let fault = certificates(&missing, Extra::ALL).expect_err("missing");
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
