//! Certificates generated on request (`generate-certificates`), with openssl and curl as clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use weir_tests::tls::{handshake, shown};
use weir_tests::{Authority, Verdict, Weir, check, free_port, scratch};

const DEFAULTS: &str =
    "defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

/// Returns a file with a CA's certificate and its key, which `openssl pkcs8` writes with these arguments.
fn signing(authority: &Authority, more: &[&str]) -> PathBuf {
    let own = authority.own();
    let mut command = Command::new("openssl");
    let more = if more.is_empty() { &["pkcs8", "-topk8", "-nocrypt"][..] } else { more };
    let key = command
        .args(more)
        .arg("-in")
        .arg(own.with_file_name("ca.key"))
        .output()
        .expect("openssl runs: `make tools` installs it");
    assert!(key.status.success(), "{}", String::from_utf8_lossy(&key.stderr));
    let file = own.with_file_name("signing.pem");
    fs::write(&file, [fs::read(&own).expect("its certificate"), key.stdout].concat()).expect("a file");
    file
}

/// Returns the body that curl gets from a host on `port`, trusting `authority`.
fn get(authority: &Path, host: &str, port: u16, more: &[&str]) -> Result<String, String> {
    let output = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--cacert"])
        .arg(authority)
        .args(["--resolve", &format!("{host}:{port}:127.0.0.1")])
        .args(more)
        .arg(format!("https://{host}:{port}/"))
        .output()
        .expect("curl runs: `make tools` installs it");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

/// Returns a frontend that answers with information about its certificate.
fn frontend(port: u16, words: &str) -> String {
    format!(
        "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl {words}\n http-request return status 200 content-type text/plain \
         lf-string \"%[ssl_f_s_dn(CN,-1)] %[ssl_f_i_dn(CN)] %[ssl_f_key_alg] %[ssl_f_sig_alg] %[ssl_f_serial,hex]\"\n"
    )
}

/// Splits the answer into the serial number and everything else.
fn parts(told: &str) -> (&str, &str) {
    told.rsplit_once(' ').expect("a serial number behind the rest")
}

#[test]
fn unknown_names_get_a_certificate_signed_by_the_ca() {
    let (authority, other) = (Authority::rsa(), Authority::new());
    let certificate = shown(&other.issue(&["one.test", "*.wild.test"]));
    let port = free_port();
    let words =
        format!("crt {certificate} generate-certificates ca-sign-file {}", shown(&signing(&authority, &[])));
    let _weir = Weir::start(&frontend(port, &words), &[port]);
    let own = get(&other.own(), "one.test", port, &[]).expect("its own certificate");
    assert_eq!(parts(&own).0, "one.test Test authority id-ecPublicKey ecdsa-with-SHA256");
    assert!(get(&other.own(), "any.wild.test", port, &[]).is_ok());
    let mut serials = Vec::new();
    for (host, more) in [("two.test", &[][..]), ("three.test", &["--tls-max", "1.2"])] {
        let made = get(&authority.own(), host, port, more).unwrap_or_else(|error| panic!("{host}: {error}"));
        let (told, serial) = parts(&made);
        assert_eq!(told, format!("{host} Test authority id-ecPublicKey RSA-SHA256"));
        // The next client gets the same certificate.
        assert_eq!(get(&authority.own(), &host.to_uppercase(), port, more).as_ref(), Ok(&made));
        serials.push(serial.to_owned());
    }
    assert_ne!(serials[0], serials[1], "no serial number comes twice");
    // Without a name, or with an invalid one, the default certificate is used.
    for arguments in [&["-noservername"][..], &["-servername", "a_b.test"]] {
        let seen = handshake(port, arguments);
        assert!(seen.contains("CN = one.test") || seen.contains("CN=one.test"), "{arguments:?}: {seen}");
    }
}

#[test]
fn generated_certificates_match_haproxy() {
    let (authority, other) = (Authority::new(), Authority::new());
    let port = free_port();
    let words = format!(
        "crt {} generate-certificates ca-sign-file {}",
        shown(&other.issue(&["one.test"])),
        shown(&signing(&authority, &[]))
    );
    let _weir = Weir::start(&frontend(port, &words), &[port]);
    let long = format!("{}.test", "x".repeat(60));
    for (name, subject) in [("two.test", "CN=Test authority,CN=two.test"), (&*long, "CN=Test authority")] {
        let directory = scratch("generated");
        let file = directory.join("seen.pem");
        let seen = handshake(port, &["-servername", name, "-showcerts"]);
        fs::write(&file, &seen).expect("a file");
        let output = Command::new("openssl")
            .args(["x509", "-noout", "-subject", "-issuer", "-text", "-nameopt", "RFC2253,-dn_rev", "-in"])
            .arg(&file)
            .stdin(Stdio::null())
            .output()
            .expect("openssl runs: `make tools` installs it");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(text.contains(&format!("subject={subject}\nissuer=CN=Test authority\n")), "{text}");
        for wanted in [
            "Version: 3",
            "CA:FALSE",
            "Digital Signature, Non Repudiation, Key Encipherment",
            "DirName:/CN=Test authority",
            "Subject Key Identifier",
            &format!("DNS:{name}"),
        ] {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
        let verified =
            Command::new("openssl").args(["verify", "-CAfile"]).arg(authority.own()).arg(&file).output();
        assert!(verified.expect("openssl runs").status.success(), "{text}");
        // The CA's own certificate follows.
        assert_eq!(seen.matches("BEGIN CERTIFICATE").count(), 2, "{seen}");
    }
}

#[test]
fn strict_sni_allows_generated_certificates() {
    let (authority, other) = (Authority::new(), Authority::new());
    let port = free_port();
    let words = format!(
        "crt {} generate-certificates ca-sign-file {} strict-sni",
        shown(&other.issue(&["one.test"])),
        shown(&signing(&authority, &[]))
    );
    let _weir = Weir::start(&frontend(port, &words), &[port]);
    assert!(get(&other.own(), "one.test", port, &[]).is_ok());
    assert!(get(&authority.own(), "two.test", port, &[]).is_ok());
    for arguments in [&["-noservername"][..], &["-servername", "a_b.test"]] {
        let seen = handshake(port, arguments);
        assert!(seen.contains("no peer certificate available"), "{arguments:?}: {seen}");
    }
}

#[test]
fn small_cache_regenerates_certificates() {
    let authority = Authority::new();
    for (size, is_kept) in [(0, false), (1, false), (2, true)] {
        let port = free_port();
        let words = format!(
            "crt {} generate-certificates ca-sign-file {}",
            shown(&authority.issue(&["one.test"])),
            shown(&signing(&authority, &[]))
        );
        let text = format!("global\n tune.ssl.ssl-ctx-cache-size {size}\n{}", frontend(port, &words));
        let _weir = Weir::start(&text, &[port]);
        let [first, _, again] =
            ["two.test", "three.test", "two.test"].map(|host| get(&authority.own(), host, port, &[]));
        assert_eq!(first.is_ok() && first == again, is_kept, "{size}: {first:?} {again:?}");
        assert!(again.is_ok());
    }
}

#[test]
fn new_default_certificate_is_used_as_template() {
    let authority = Authority::new();
    let certificate = authority.issue(&["one.test"]);
    let port = free_port();
    let name = shown(&certificate);
    let words = format!("crt {name} generate-certificates ca-sign-file {}", shown(&signing(&authority, &[])));
    let text = format!("global\n stats socket runtime level admin\n{}", frontend(port, &words));
    let weir = Weir::start(&text, &[port]);
    let before = get(&authority.own(), "two.test", port, &[]).expect("a certificate");
    assert!(before.contains("id-ecPublicKey"), "{before}");
    let next = fs::read_to_string(authority.issue_rsa(&["one.test"])).expect("a file");
    let payload: String =
        next.lines().filter(|line| !line.is_empty()).map(|line| format!("{line}\n")).collect();
    weir.ask(&format!("set ssl cert {name} <<\n{payload}"));
    let committed = weir.ask(&format!("commit ssl cert {name}"));
    assert!(committed.contains("Success"), "{committed}");
    let after = get(&authority.own(), "two.test", port, &[]).expect("a certificate");
    assert!(after.contains("rsaEncryption"), "{after}");
}

#[test]
fn ca_sign_pass_decrypts_the_key() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    // As OpenSSL 3 writes it, and as older versions did.
    for form in [&["pkcs8", "-topk8"][..], &["ec", "-aes256"]] {
        let file = shown(&signing(&authority, &[form, &["-passout", "pass:secret"]].concat()));
        let port = free_port();
        let words =
            |pass: &str| format!("crt {certificate} generate-certificates ca-sign-file {file} {pass}");
        let _weir = Weir::start(&frontend(port, &words("ca-sign-pass secret")), &[port]);
        assert!(get(&authority.own(), "two.test", port, &[]).is_ok(), "{form:?}");
        for pass in ["", "ca-sign-pass wrong"] {
            let verdict = verdict(&frontend(port, &words(pass)));
            assert!(verdict.messages.contains("passphrase"), "{form:?} {pass}: {}", verdict.messages);
            assert_ne!(verdict.code, Some(0), "{form:?} {pass}");
        }
    }
}

fn verdict(text: &str) -> Verdict {
    let directory = scratch("generated");
    let file = directory.join("haproxy.cfg");
    fs::write(&file, text).expect("a file");
    check(&file, &directory)
}

#[test]
fn unusable_ca_is_refused() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let own = shown(&authority.own());
    for (words, wanted) in [
        (
            "generate-certificates",
            "cannot enable certificate generation, no CA certificate File configured at [",
        ),
        (
            "generate-certificates ca-sign-file /does/not/exist",
            "Failed to read CA certificate file '/does/not/exist'",
        ),
        (&format!("generate-certificates ca-sign-file {own}"), "No Private Key found"),
        ("ca-sign-file", "ca-sign-file"),
        ("ca-sign-pass", "ca-sign-pass"),
    ] {
        let verdict = verdict(&frontend(free_port(), &format!("crt {certificate} {words}")));
        assert!(verdict.messages.contains(wanted), "{words}: {}", verdict.messages);
        assert_ne!(verdict.code, Some(0), "{words}");
    }
    // Without `generate-certificates` the file is not read.
    let words = format!("crt {certificate} ca-sign-file /does/not/exist");
    assert!(verdict(&frontend(free_port(), &words)).accepted());
    let text = format!(
        "global\n tune.ssl.ssl-ctx-cache-size -1\n{}",
        frontend(free_port(), &format!("crt {certificate}"))
    );
    assert!(!verdict(&text).accepted());
}

#[test]
fn ca_sign_file_is_relative_to_ca_base() {
    let authority = Authority::new();
    let certificate = shown(&authority.issue(&["one.test"]));
    let file = signing(&authority, &[]);
    let base = shown(file.parent().expect("a file stands in a directory"));
    let port = free_port();
    let words = format!("crt {certificate} generate-certificates ca-sign-file signing.pem");
    let _weir = Weir::start(&format!("global\n ca-base {base}\n{}", frontend(port, &words)), &[port]);
    assert!(get(&authority.own(), "two.test", port, &[]).is_ok());
}
