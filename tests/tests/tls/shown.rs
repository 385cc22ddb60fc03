//! Certificates and CA names that listeners send, and passphrase-protected keys (manual, 3.1 `ssl-passphrase-cmd`,
//! `ssl-skip-self-issued-ca`; 5.1 `no-ca-names`).

use std::path::PathBuf;
use std::process::Command;

use weir_tests::certificates::{s_client, text};
use weir_tests::tls::shown;
use weir_tests::{Authority, Weir, check, free_port, scratch};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

/// Returns a frontend with these options after its address, and these lines of `global`.
fn frontend(global: &str, port: u16, words: &str) -> String {
    format!(
        "global\n stats socket runtime level admin\n{global}{DEFAULTS}frontend f\n bind 127.0.0.1:{port} ssl {words}\n http-request return status 200\n"
    )
}

#[test]
fn roots_are_sent_unless_disabled() {
    let authority = Authority::new();
    let certificate = authority.issue(&["a.test"]);
    let whole = certificate.with_extension("whole");
    let pem = text(&certificate) + &text(&authority.own());
    std::fs::write(&whole, &pem).expect("the directory takes files");
    for (global, count) in [("", 2), (" ssl-skip-self-issued-ca\n", 1)] {
        let port = free_port();
        let weir = Weir::start(&frontend(global, port, &format!("crt {}", shown(&whole))), &[port]);
        let sent = || s_client(port, "a.test", &["-showcerts"]).matches("-----BEGIN CERTIFICATE").count();
        assert_eq!(sent(), count, "{global}");
        let name = shown(&whole);
        assert!(weir.ask(&format!("set ssl cert {name} <<\n{pem}\n")).contains("Transaction"));
        assert!(weir.ask(&format!("commit ssl cert {name}")).contains("Success"));
        assert_eq!(sent(), count, "{global}: after a change too");
        assert!(weir.ask(&format!("show ssl cert {name}")).contains("Chain Subject: /CN=Test authority"));
    }
}

#[test]
fn ca_names_are_sent_to_clients_unless_disabled() {
    let authority = Authority::new();
    let (certificate, ca) = (shown(&authority.issue(&["a.test"])), shown(&authority.own()));
    let list = scratch("list").file("crt-list");
    std::fs::write(&list, format!("{certificate} [no-ca-names] b.test\n{certificate} a.test\n"))
        .expect("the temporary directory takes files");
    let told =
        |port: u16, name: &str| s_client(port, name, &[]).contains("Acceptable client certificate CA names");
    // OpenSSL serves the second one.
    for versions in ["", "ssl-max-ver TLSv1.2 ciphers DEFAULT@SECLEVEL=0"] {
        let port = free_port();
        let words = format!("crt-list {} verify optional ca-file {ca} {versions}", shown(&list));
        let _weir = Weir::start(&frontend("", port, &words), &[port]);
        assert!(told(port, "a.test") && !told(port, "b.test"));
        let port = free_port();
        let words = format!("crt {certificate} verify optional ca-file {ca} no-ca-names {versions}");
        let _weir = Weir::start(&frontend("", port, &words), &[port]);
        assert!(!told(port, "a.test"));
    }
}

/// Returns a certificate with a passphrase-protected key.
fn locked(authority: &Authority, name: &str, passphrase: &str) -> PathBuf {
    locked_by(&["pkcs8", "-topk8", "-v2", "aes-256-cbc"], authority, name, passphrase)
}

/// The same, with the key encrypted by an OpenSSL command.
fn locked_by(form: &[&str], authority: &Authority, name: &str, passphrase: &str) -> PathBuf {
    let certificate = authority.issue(&[name]);
    let locked = certificate.with_extension("locked");
    let output = Command::new("openssl")
        .args(form)
        .args(["-passout", &format!("pass:{passphrase}"), "-in"])
        .arg(&certificate)
        .output()
        .expect("openssl runs: `make tools` installs it");
    assert!(output.status.success());
    let pem = text(&certificate);
    let end = pem.find("-----BEGIN PRIVATE").or_else(|| pem.find("-----BEGIN EC")).expect("it has a key");
    let key = String::from_utf8(output.stdout).expect("PEM is ASCII");
    std::fs::write(&locked, pem[..end].to_owned() + &key).expect("the directory takes files");
    locked
}

#[test]
fn known_passphrases_are_tried_before_the_command() {
    let authority = Authority::new();
    // One encrypted as by OpenSSL 3, one as by older versions.
    let one = locked(&authority, "a.test", "secret");
    let two = locked_by(&["ec", "-aes256"], &authority, "b.test", "secret");
    let directory = scratch("passphrase");
    let (script, asked) = (directory.join("ask.sh"), directory.join("asked"));
    std::fs::write(&script, format!("echo \"$@\" >> {}\necho $3\n", shown(&asked)))
        .expect("the directory takes files");
    // The file is the first argument, followed by those of the line.
    let wrapper = directory.join("ask");
    std::fs::write(&wrapper, format!("#!/bin/sh\nexec /bin/sh {} \"$@\"\n", shown(&script)))
        .expect("the directory takes files");
    let allowed = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&wrapper, allowed).expect("it is ours");
    let port = free_port();
    let words = format!("crt {} crt {}", shown(&one), shown(&two));
    let global = format!(" ssl-passphrase-cmd {} first secret\n", shown(&wrapper));
    let _weir = Weir::start(&frontend(&global, port, &words), &[port]);
    assert!(s_client(port, "b.test", &[]).contains("CN = b.test"));
    assert_eq!(text(&asked).trim(), format!("{} first secret", shown(&one)), "it is asked once");
    for (global, cause) in [
        ("", "no 'ssl-passphrase-cmd' is defined"),
        (" ssl-passphrase-cmd /bin/false\n", "no passphrase was provided"),
        (" ssl-passphrase-cmd /nobody/there\n", "no passphrase was provided"),
        (" ssl-passphrase-cmd /bin/echo\n", "wrong passphrase"),
    ] {
        let file = directory.join("haproxy.cfg");
        std::fs::write(&file, frontend(global, port, &words)).expect("the directory takes files");
        let verdict = check(&file, &directory);
        assert!(verdict.alerts().iter().any(|line| line.contains(cause)), "{global}: {verdict:?}");
    }
}

#[test]
fn passphrase_command_works_for_stores_too() {
    let authority = Authority::new();
    let (one, two) = (locked(&authority, "a.test", "secret"), locked(&authority, "b.test", "secret"));
    let key = scratch("store").file("b.key");
    let pem = text(&two);
    let at = pem.find("-----BEGIN ENCRYPTED").expect("it has a key");
    std::fs::write(&key, &pem[at..]).expect("the directory takes files");
    let certificate = key.with_extension("pem");
    std::fs::write(&certificate, &pem[..at]).expect("the directory takes files");
    let port = free_port();
    let make = |global: &str| {
        format!(
            "{}crt-store st\n load crt {} alias one\n load crt {} key {} alias two\n",
            frontend(global, port, "crt @st/one crt @st/two"),
            shown(&one),
            shown(&certificate),
            shown(&key)
        )
    };
    // The section must precede its users.
    let order = |text: String| {
        let (rest, store) = text.split_once("crt-store").expect("a section");
        let (global, rest) = rest.split_once("defaults").expect("a section");
        format!("{global}crt-store{store}defaults{rest}")
    };
    let script = key.with_extension("sh");
    std::fs::write(&script, "#!/bin/sh\necho secret\n").expect("the directory takes files");
    let allowed = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&script, allowed).expect("it is ours");
    let command = format!(" ssl-passphrase-cmd {}\n", shown(&script));
    let _weir = Weir::start(&order(make(&command)), &[port]);
    for name in ["a.test", "b.test"] {
        assert!(s_client(port, name, &[]).contains(&format!("CN = {name}")), "{name}");
    }
    let file = key.with_extension("cfg");
    std::fs::write(&file, order(make(""))).expect("the directory takes files");
    let verdict = check(&file, file.parent().expect("a directory"));
    assert!(verdict.messages.contains("no 'ssl-passphrase-cmd' is defined"), "{verdict:?}");
}
