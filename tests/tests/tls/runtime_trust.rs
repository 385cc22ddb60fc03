//! Trust settings changed on the runtime socket while the program runs: CAs, CRLs, OCSP responses, ticket keys (management manual,
//! 9.3: `set ssl ca-file` and similar commands).

use std::path::Path;
use std::process::Command;

use weir_tests::certificates::{DEFAULTS, admits, pay, s_client, swap, text};
use weir_tests::tls::shown;
use weir_tests::{Authority, Weir, eventually, free_port};

#[test]
fn listener_trust_changes_at_commit() {
    let (old, new) = (Authority::new(), Authority::new());
    let (of_old, of_new) = (old.issue(&["old.test"]), new.issue(&["new.test"]));
    let (port, name) = (free_port(), shown(&old.own()));
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {} ca-file {name} verify required\n \
             http-request return status 200\n",
            shown(&of_old)
        ),
        &[port],
    );
    assert!(admits(port, &of_old) && !admits(port, &of_new));
    let told = weir.ask(&format!("show ssl ca-file {name}"));
    assert!(
        told.starts_with(&format!("Filename: {name}\nStatus: Used\n \nCertificate #1:\nSerial: ")),
        "{told}"
    );
    assert_eq!(weir.ask("show ssl ca-file").trim(), format!("# filename\n{name} - 1 certificate(s)"));
    let set = |verb: &str, payload: &str| pay(&weir, &format!("{verb} ssl ca-file {name}"), payload);
    assert_eq!(set("set", "nonsense").trim(), format!("Invalid payload\nCan't update {name}!"));
    assert!(set("set", &text(&new.own())).starts_with("transaction created for CA"));
    assert!(admits(port, &of_old), "nothing was committed yet");
    let waiting = weir.ask("show ssl ca-file");
    assert!(waiting.starts_with(&format!("# transaction\n*{name} - 1 certificate(s)\n")), "{waiting}");
    assert!(weir.ask(&format!("show ssl ca-file *{name}:1")).contains("Status: Uncommitted"));
    assert!(weir.ask(&format!("abort ssl ca-file {name}")).starts_with("Transaction aborted"));
    assert!(set("set", &text(&new.own())).starts_with("transaction created for CA"));
    let committed = weir.ask(&format!("commit ssl ca-file {name}"));
    assert_eq!(committed.trim(), format!("Committing {name}.\nSuccess!"));
    assert!(!admits(port, &of_old) && admits(port, &of_new));
    // Both are trusted after adding to the existing file.
    assert!(set("add", &text(&old.own())).starts_with("transaction created for CA"));
    assert!(weir.ask(&format!("commit ssl ca-file {name}")).contains("Success!"));
    assert!(admits(port, &of_old) && admits(port, &of_new));
    assert!(weir.ask(&format!("show ssl ca-file {name}:2")).contains("Certificate #2:"));
    assert!(weir.ask(&format!("del ssl ca-file {name}")).contains("in use, can't be deleted!"));
    assert_eq!(weir.ask("new ssl ca-file other").trim(), "New CA file created 'other'!");
    assert_eq!(weir.ask("del ssl ca-file other").trim(), "CA file 'other' deleted!");
}

#[test]
fn crls_change_at_commit() {
    let authority = Authority::new();
    let (good, bad) = (authority.issue(&["good.test"]), authority.issue(&["bad.test"]));
    let (empty, full) = (authority.revoke(&[]), authority.revoke(&[&bad]));
    let (port, name) = (free_port(), shown(&empty));
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {} ca-file {} crl-file {name} verify required\n \
             http-request return status 200\n",
            shown(&good),
            shown(&authority.own()),
        ),
        &[port],
    );
    assert!(admits(port, &good) && admits(port, &bad));
    let told = weir.ask(&format!("show ssl crl-file {name}"));
    let head = format!("Filename: {name}\nStatus: Used\n \nCertificate Revocation List #1:\nVersion ");
    assert!(told.starts_with(&head) && told.contains("\nNo Revoked Certificates.\n"), "{told}");
    assert!(
        told.contains("\nSignature Algorithm: ecdsa-with-SHA256\nIssuer: /CN=Test authority\n"),
        "{told}"
    );
    let set = |payload: &str| pay(&weir, &format!("set ssl crl-file {name}"), payload);
    assert_eq!(set("nonsense").trim(), format!("Invalid payload\nCan't update {name}!"));
    assert!(set(&text(&full)).starts_with("transaction created for CRL"));
    assert!(admits(port, &bad), "nothing was committed yet");
    assert!(weir.ask(&format!("commit ssl crl-file {name}")).contains("Success!"));
    assert!(admits(port, &good) && !admits(port, &bad));
    assert!(
        weir.ask(&format!("show ssl crl-file {name}")).contains("Revoked Certificates:\n    Serial Number: ")
    );
    assert!(set(&text(&empty)).starts_with("transaction created"));
    assert!(weir.ask(&format!("abort ssl crl-file {name}")).starts_with("Transaction aborted"));
    assert!(weir.ask("commit ssl crl-file x").starts_with("No ongoing transaction!"));
    assert!(weir.ask(&format!("del ssl crl-file {name}")).contains("in use, can't be deleted!"));
    assert_eq!(weir.ask("new ssl crl-file other").trim(), "New CRL file created 'other'!");
    assert_eq!(weir.ask("del ssl crl-file other").trim(), "CRL file 'other' deleted!");
}

#[test]
fn sha1_crl_is_treated_as_in_openssl() {
    let authority = Authority::rsa();
    let (good, bad) = (authority.issue(&["good.test"]), authority.issue(&["bad.test"]));
    let list = authority.revoke_by("sha1", &[&bad]);
    let port = free_port();
    let _weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {} ca-file {} crl-file {} verify required\n \
             http-request return status 200\n",
            shown(&good),
            shown(&authority.own()),
            shown(&list),
        ),
        &[port],
    );
    assert!(admits(port, &good) && !admits(port, &bad));
}

#[test]
fn server_certificates_and_trust_change_for_all_connections() {
    let (old, new) = (Authority::new(), Authority::new());
    let (of_old, of_new) = (old.issue(&["one.test"]), new.issue(&["one.test"]));
    let (port, inner) = (free_port(), free_port());
    let (own, trusted) = (shown(&of_old), shown(&old.own()));
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n default_backend be\n\
             backend be\n retries 0\n option httpchk GET /check\n \
             server s 127.0.0.1:{inner} ssl ca-file {trusted} crt {own} verifyhost one.test no-sni-auto \
             check inter 50ms fall 1 rise 1 pool-max-conn 0\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {} ca-file {} verify required\n \
             http-request return status 200\n",
            shown(&new.issue(&["one.test", "server"])),
            shown(&new.own()),
        ),
        &[port, inner],
    );
    let is_up = || weir.ask("show servers state be").lines().any(|line| line.contains(" 127.0.0.1 2 "));
    // The server presents a certificate of the new CA, and requires one.
    assert!(eventually(|| !is_up()), "{}", weir.ask("show servers state be"));
    assert!(pay(&weir, &format!("set ssl ca-file {trusted}"), &text(&new.own())).contains("created"));
    assert_eq!(
        weir.ask(&format!("commit ssl ca-file {trusted}")).trim(),
        format!("Committing {trusted}.\nSuccess!")
    );
    swap(&weir, &own, &text(&of_new));
    assert!(eventually(is_up), "{}", weir.messages());
    let answer = weir_tests::client::exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
    assert_eq!(answer.status, 200);
}

#[test]
fn trust_changes_invalidate_sessions() {
    let authority = Authority::new();
    let (own, bad) = (authority.issue(&["one.test"]), authority.issue(&["bad.test"]));
    let (empty, full) = (authority.revoke(&[]), authority.revoke(&[&bad]));
    let (port, name) = (free_port(), shown(&empty));
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {} ca-file {} crl-file {name} verify required\n",
            shown(&own),
            shown(&authority.own()),
        ),
        &[port],
    );
    let directory = weir_tests::scratch("session");
    let (session, client) = (shown(&directory.join("session")), shown(&bad));
    let shows = ["-tls1_2", "-cert", &client, "-key", &client];
    assert!(
        s_client(port, "one.test", &[&shows[..], &["-sess_out", &session]].concat()).contains("New, TLSv1.2")
    );
    let again = || s_client(port, "one.test", &[&shows[..], &["-sess_in", &session]].concat());
    assert!(again().contains("Reused, TLSv1.2"));
    assert!(pay(&weir, &format!("set ssl crl-file {name}"), &text(&full)).contains("created"));
    assert!(weir.ask(&format!("commit ssl crl-file {name}")).contains("Success!"));
    assert!(!again().contains("Reused"), "the client's certificate was revoked meanwhile");
}

/// Returns a file in base64, on one line.
fn base64(path: &Path) -> String {
    let output = Command::new("openssl").args(["base64", "-A", "-in"]).arg(path).output();
    String::from_utf8_lossy(&output.expect("openssl runs").stdout).trim().to_owned()
}

/// Returns the certificate status stapled for a client that requests it: `good`, `revoked`, or nothing.
fn stapled(port: u16) -> String {
    let told = s_client(port, "one.test", &["-status"]);
    let line = told.lines().find_map(|line| line.trim().strip_prefix("Cert Status: "));
    line.unwrap_or_default().to_owned()
}

#[test]
fn ocsp_responses_change_alone_or_with_the_certificate() {
    let authority = Authority::new();
    let own = authority.issue(&["one.test"]);
    let pem = text(&own) + &text(&authority.own());
    std::fs::write(&own, pem).expect("the directory takes files");
    let (good, revoked) = (authority.answer(&own, true), authority.answer(&own, false));
    let (port, name) = (free_port(), shown(&own));
    std::fs::copy(&good, format!("{name}.ocsp")).expect("the directory takes files");
    let weir =
        Weir::start(&format!("{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {name}\n"), &[port]);
    assert_eq!(stapled(port), "good");
    let listed = weir.ask("show ssl ocsp-response");
    let id = listed.lines().find_map(|line| line.strip_prefix("Certificate ID key : ")).expect("an answer");
    assert!(listed.contains(&format!("Certificate path : {name}\n Certificate ID:\n   Issuer Name Hash: ")));
    assert!(weir.ask(&format!("show ssl cert {name}")).contains(&format!("OCSP Response Key: {id}\n")));
    for command in [format!("show ssl ocsp-response {id}"), format!("show ssl ocsp-response text {name}")] {
        let told = weir.ask(&command);
        assert!(told.contains("    Responder Id: CN = Test authority\n"), "{told}");
        assert!(told.contains("    Cert Status: good\n    This Update: "), "{told}");
    }
    assert_eq!(weir.ask(&format!("show ssl ocsp-response base64 {id}")).trim(), base64(&good));
    assert!(weir.ask("show ssl ocsp-response 30ff").contains("does not match any certificate."));
    let set = |answer: &str| weir.ask(&format!("set ssl ocsp-response {answer}"));
    assert_eq!(set("a").trim(), "'set ssl ocsp-response' received invalid base64 encoded response.");
    assert_eq!(set("YWJj").trim(), "Unable to parse OCSP response.");
    let other = Authority::new();
    let of_other = other.issue(&["one.test"]);
    let answer = other.answer(&of_other, true);
    assert!(set(&base64(&answer)).starts_with("OCSP single response: Certificate ID does not match any"));
    assert_eq!(stapled(port), "good");
    assert_eq!(set(&base64(&revoked)).trim(), "OCSP Response updated!");
    assert_eq!(stapled(port), "revoked");
    assert!(weir.ask(&format!("show ssl cert {name}.ocsp")).contains("    Cert Status: revoked\n"));
    let file = |payload: &str| pay(&weir, &format!("set ssl cert {name}.ocsp"), payload);
    assert!(file("a").contains("Error reading OCSP response in base64 format"));
    assert!(file(&base64(&good)).starts_with("Transaction created"));
    assert_eq!(stapled(port), "revoked", "nothing was committed yet");
    assert!(weir.ask(&format!("commit ssl cert {name}")).contains("Success!"));
    assert_eq!(stapled(port), "good");
    assert!(weir.ask("show ssl ocsp-updates").starts_with("OCSP Certid | Path | Next Update | "));
}

#[test]
fn new_ticket_key_replaces_the_oldest() {
    let authority = Authority::new();
    let certificate = authority.issue(&["one.test"]);
    let (port, directory) = (free_port(), weir_tests::scratch("tickets"));
    let key = |byte: char| [byte; 64].iter().collect::<String>();
    let file = shown(&directory.join("keys"));
    std::fs::write(&file, ['A', 'B', 'C'].map(|byte| key(byte) + "\n").concat()).expect("it takes files");
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {} ssl-max-ver TLSv1.2 tls-ticket-keys {file}\n \
             http-request return status 200\n",
            shown(&certificate)
        ),
        &[port],
    );
    assert_eq!(weir.ask("show tls-keys").trim(), format!("# id (file)\n0 ({file})"));
    let listed = |keys: [char; 3]| {
        let lines: Vec<String> = (0..).zip(keys).map(|(n, byte)| format!("0.{n} {}", key(byte))).collect();
        format!("# id secret\n# 0 ({file})\n{}", lines.join("\n"))
    };
    assert_eq!(weir.ask("show tls-keys *").trim(), listed(['A', 'B', 'C']));
    assert_eq!(weir.ask("show tls-keys #0").trim(), listed(['A', 'B', 'C']));
    assert_eq!(weir.ask("show tls-keys #1").trim(), "'show tls-keys' unable to locate referenced filename");
    let session = shown(&directory.join("session"));
    assert!(s_client(port, "one.test", &["-tls1_2", "-sess_out", &session]).contains("New, TLSv1.2"));
    let resumes =
        || s_client(port, "one.test", &["-tls1_2", "-sess_in", &session]).contains("Reused, TLSv1.2");
    assert!(resumes());
    let set = |word: &str, key: &str| weir.ask(&format!("set ssl tls-key {word} {key}")).trim().to_owned();
    assert_eq!(set("#0", "*"), "'set ssl tls-key' received invalid base64 encoded TLS key.");
    assert_eq!(set("#0", "AAAA"), "'set ssl tls-key' received a key of wrong size.");
    assert_eq!(set("none", "AAAA"), "'set ssl tls-key' unable to locate referenced filename");
    assert_eq!(set("#0", &key('D')), "TLS ticket key updated!");
    assert!(resumes(), "the key that made the ticket is still there");
    assert_eq!(set(&file, &key('E')), "TLS ticket key updated!");
    assert_eq!(weir.ask("show tls-keys 0").trim(), "'show tls-keys' unable to locate referenced filename");
    assert_eq!(weir.ask("show tls-keys *").trim(), listed(['C', 'D', 'E']));
    assert!(!resumes(), "it was pushed out");
}
