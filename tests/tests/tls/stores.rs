//! Certificates composed of several files: `crt-store` sections, options in crt-lists, and `ssl-f-use`.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weir_tests::{Authority, Weir, check, free_port, scratch};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

/// Splits a file into separate files for the certificate and the key.
fn parted(file: &Path) -> (PathBuf, PathBuf) {
    let text = std::fs::read_to_string(file).expect("a certificate with its key");
    let (mut certificate, mut key) = (String::new(), String::new());
    let mut of_key = false;
    for line in text.lines() {
        of_key = if line.starts_with("-----BEGIN") { line.contains("KEY") } else { of_key };
        let part = if of_key { &mut key } else { &mut certificate };
        part.push_str(line);
        part.push('\n');
    }
    let paths = (file.with_extension("crt"), file.with_extension("private"));
    std::fs::write(&paths.0, certificate).expect("written");
    std::fs::write(&paths.1, key).expect("written");
    paths
}

/// Returns whether a client that requests `name` gets a certificate for it, in one of these versions.
fn is_shown(port: u16, name: &str, more: &[&str]) -> bool {
    let output = Command::new("openssl")
        .args([
            "s_client",
            "-connect",
            &format!("127.0.0.1:{port}"),
            "-servername",
            name,
            "-verify_hostname",
            name,
        ])
        .args(more)
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs: `make tools` installs it");
    let text = String::from_utf8_lossy(&output.stdout);
    text.contains("Server certificate") && !text.contains("hostname mismatch")
}

#[test]
fn store_certificates_are_found_by_alias_and_file() {
    let authority = Authority::new();
    let [one, two, three] =
        ["one.test", "two.test", "three.test"].map(|name| parted(&authority.issue(&[name])));
    let (port, directory) = (free_port(), one.0.parent().expect("a directory").display().to_string());
    let file = |path: &Path| path.file_name().expect("a name").to_string_lossy().into_owned();
    let weir = Weir::start(
        &format!(
            "global\n stats socket runtime level admin\ncrt-store\n load crt {} key {} alias first\n\
             crt-store web\n crt-base {directory}\n key-base {directory}\n load crt {} key {} alias second\n \
             load crt {} key {}\n{DEFAULTS}frontend fe\n \
             bind 127.0.0.1:{port} ssl crt @/first crt @web/second crt @web/{} strict-sni\n \
             http-request return status 200\n",
            one.0.display(),
            one.1.display(),
            file(&two.0),
            file(&two.1),
            file(&three.0),
            file(&three.1),
            file(&three.0),
        ),
        &[port],
    );
    for name in ["one.test", "two.test", "three.test"] {
        assert!(is_shown(port, name, &[]), "{name}");
    }
    assert!(!is_shown(port, "four.test", &[]));
    let shown = weir.ask("show ssl cert @web/second");
    assert!(shown.contains("Filename: @web/second") && shown.contains("Status: Used"), "{shown}");
}

#[test]
fn ssl_f_use_applies_to_all_tls_lines() {
    let authority = Authority::new();
    let one = authority.issue(&["one.test"]);
    let two = parted(&authority.issue(&["two.test"]));
    let ports = [free_port(), free_port()];
    let weir = Weir::start(
        &format!(
            "global\n stats socket runtime level admin\n{DEFAULTS}frontend fe\n bind 127.0.0.1:{} ssl strict-sni\n \
             bind 127.0.0.1:{} ssl strict-sni\n ssl-f-use crt {}\n \
             ssl-f-use crt {} key {} ssl-min-ver TLSv1.3\n http-request return status 200\n",
            ports[0],
            ports[1],
            one.display(),
            two.0.display(),
            two.1.display()
        ),
        &ports,
    );
    for port in ports {
        assert!(is_shown(port, "one.test", &["-tls1_2"]));
        assert!(is_shown(port, "two.test", &[]) && !is_shown(port, "two.test", &["-tls1_2"]));
    }
    // The last line comes first.
    let listed = format!("# @fe\n{}:0 [ssl-min-ver TLSv1.3]\n{}:0\n", two.0.display(), one.display());
    assert_eq!(weir.ask("show ssl crt-list -n @fe").trim_end(), listed.trim_end());
    let removed = weir.ask(&format!("del ssl crt-list @fe {}", one.display()));
    assert!(removed.contains("deleted in crtlist '@fe'"), "{removed}");
    assert!(!is_shown(ports[0], "one.test", &[]) && is_shown(ports[1], "two.test", &[]));
}

#[test]
fn crt_list_lines_may_name_the_certificates_files() {
    let authority = Authority::new();
    let one = parted(&authority.issue(&["one.test"]));
    let port = free_port();
    let list = scratch("list").file("list");
    let line = format!("{} [key {} ssl-min-ver TLSv1.2]", one.0.display(), one.1.display());
    std::fs::write(&list, format!("{line} one.test\n{line} other.test\n")).expect("written");
    let _weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl strict-sni crt-list {}\n http-request return status 200\n",
            list.display()
        ),
        &[port],
    );
    assert!(is_shown(port, "one.test", &[]));
}

#[test]
fn invalid_stores_are_refused_with_their_location() {
    let directory = scratch("refused");
    let authority = Authority::new();
    let whole = authority.issue(&["one.test"]);
    let (certificate, key) = parted(&whole);
    let other = parted(&authority.issue(&["two.test"])).1;
    let list = directory.join("list");
    std::fs::write(&list, format!("{0} [key {1}]\n{0}\n", certificate.display(), key.display()))
        .expect("written");
    let [whole, certificate, key, other, list] =
        [&whole, &certificate, &key, &other, &list].map(|path| path.display().to_string());
    let bind = |words: &str| format!("{DEFAULTS}frontend fe\n bind 127.0.0.1:1 ssl {words}\n");
    for (text, alert) in [
        (
            format!("crt-store\n load crt {certificate}\n{}", bind(&format!("crt {certificate}"))),
            "unable to load SSL private key into SSL Context",
        ),
        (
            format!("crt-store\n load crt {certificate} key {other}\n"),
            "inconsistencies between private key and certificate",
        ),
        (
            format!("crt-store web\n load crt {whole} alias x\n load crt {whole} alias x\n"),
            "store '@web/x' was already defined.",
        ),
        (format!("{}crt-store\n load crt {whole}\n", bind(&format!("crt {whole}"))), "was already defined."),
        (format!("crt-store\n load key {key}\n"), "mandatory 'crt' parameter not found."),
        (format!("crt-store\n load crt {whole} blah\n"), "unknown keyword 'blah'."),
        (format!("crt-store\n load crt {whole} ocsp {whole}.none\n"), "No such file or directory"),
        (
            format!("crt-store\n load crt {whole} alias x\n{}", bind("crt @/y")),
            "unable to stat SSL certificate from file '@/y'",
        ),
        (bind(&format!("crt-list {list}")), "is already loaded with parameters other than"),
        (format!("{} ssl-f-use ssl-min-ver TLSv1.3\n", bind("")), "no 'crt' keyword specified."),
        (format!("{} ssl-f-use crt {whole} x.test\n", bind("")), "unknown ssl keyword x.test"),
        (
            format!("{} ssl-f-use crt {whole}.none\n", bind("").replace(" ssl ", " ")),
            "unable to stat SSL certificate",
        ),
    ] {
        let file = directory.join("haproxy.cfg");
        std::fs::write(&file, &text).expect("written");
        let verdict = check(&file, &directory);
        assert!(!verdict.accepted(), "{text}");
        assert!(verdict.alerts().iter().any(|line| line.contains(alert)), "{text}{:?}", verdict.alerts());
    }
}

#[test]
fn domains_without_acme_are_accepted_silently() {
    let authority = Authority::new();
    let (port, certificate) = (free_port(), authority.issue(&["one.test"]));
    let text = format!(
        "{DEFAULTS}crt-store web\n load crt {} alias site domains \"one.test\"\n\
         frontend fe\n bind 127.0.0.1:{port} ssl crt @web/site\n http-request return status 200\n",
        certificate.display()
    );
    let weir = Weir::start(&text, &[port]);
    assert!(is_shown(port, "one.test", &[]));
    assert!(!weir.messages().contains("domains"), "{}", weir.messages());
}
