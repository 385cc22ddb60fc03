//! Files of TLS changed by the runtime socket while the program serves (management manual, 9.3:
//! `set ssl cert` and the like).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use weir_tests::tls::shown;
use weir_tests::{Authority, Weir, eventually, free_port};

const DEFAULTS: &str = "global\n stats socket runtime level admin\n\
                        defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the authority wrote it")
}

/// What `openssl s_client` says of a connection with that name, after `input`.
fn s_client(port: u16, name: &str, more: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}"), "-servername", name])
        .args(more)
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs: `make tools` installs it");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The first certificate in a text, as PEM without line ends.
fn first_certificate(text: &str) -> Option<String> {
    let from = text.find("-----BEGIN CERTIFICATE")?;
    let to = text[from..].find("-----END CERTIFICATE")?;
    Some(text[from..from + to].lines().collect())
}

/// Whether the port shows this certificate to who asks for `name`.
fn serves(port: u16, name: &str, certificate: &Path) -> bool {
    first_certificate(&s_client(port, name, &[])) == first_certificate(&text(certificate))
}

/// A command with a payload.
fn pay(weir: &Weir, command: &str, payload: &str) -> String {
    weir.ask(&format!("{command} <<\n{payload}\n"))
}

/// Sets a certificate and commits it.
fn swap(weir: &Weir, name: &str, pem: &str) {
    let answer = pay(weir, &format!("set ssl cert {name}"), pem);
    assert!(answer.contains("Transaction created"), "{answer}");
    let answer = weir.ask(&format!("commit ssl cert {name}"));
    assert!(answer.contains("Success!"), "{answer}");
}

/// A client that keeps its connection.
struct Kept {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Kept {
    fn open(port: u16, name: &str) -> Self {
        let mut child = Command::new("openssl")
            .args(["s_client", "-quiet", "-connect", &format!("127.0.0.1:{port}"), "-servername", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs");
        let output = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, output }
    }

    /// The first line of the answer to a request.
    fn ask(&mut self) -> String {
        let input = self.child.stdin.as_mut().expect("it is piped");
        input.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("the connection is open");
        let mut first = String::new();
        self.output.read_line(&mut first).expect("an answer");
        let mut line = String::new();
        while self.output.read_line(&mut line).expect("an answer") > 2 {
            line.clear();
        }
        first.trim().to_owned()
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_certificate_is_swapped_under_load_and_no_connection_fails() {
    let (authority, other) = (Authority::new(), Authority::new());
    let (old, new) = (authority.issue(&["one.test"]), other.issue(&["one.test"]));
    let (port, name) = (free_port(), shown(&old));
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {name}\n http-request return status 200\n"
        ),
        &[port],
    );
    assert!(serves(port, "one.test", &old));
    let mut kept = Kept::open(port, "one.test");
    assert_eq!(kept.ask(), "HTTP/1.1 200 OK");
    let (stop, failed, done) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let (stop, failed, done) = (Arc::new(stop), Arc::new(failed), Arc::new(done));
    let clients: Vec<_> = (0..3)
        .map(|_| {
            let (stop, failed, done) = (stop.clone(), failed.clone(), done.clone());
            std::thread::spawn(move || {
                while !stop.load(Relaxed) {
                    let url = format!("https://127.0.0.1:{port}/");
                    let fine = Command::new("curl").args(["-sfk", "--max-time", "10", &url]).status();
                    if !fine.is_ok_and(|status| status.success()) {
                        failed.fetch_add(1, Relaxed);
                    }
                    done.fetch_add(1, Relaxed);
                }
            })
        })
        .collect();
    for round in 0..20 {
        let before = done.load(Relaxed);
        swap(&weir, &name, &text(if round % 2 == 0 { &new } else { &old }));
        assert!(eventually(|| done.load(Relaxed) > before));
    }
    swap(&weir, &name, &text(&new));
    stop.store(true, Relaxed);
    clients.into_iter().for_each(|client| client.join().expect("it ends"));
    assert_eq!(failed.load(Relaxed), 0);
    assert!(serves(port, "one.test", &new));
    assert_eq!(kept.ask(), "HTTP/1.1 200 OK", "the connection of before goes on");
}

#[test]
fn a_change_takes_effect_at_its_commit_and_a_bad_one_changes_nothing() {
    let authority = Authority::new();
    let (old, new) = (authority.issue(&["one.test"]), authority.issue_rsa(&["two.test"]));
    let (port, name) = (free_port(), shown(&old));
    let weir = Weir::start(
        &format!("{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {name} strict-sni\n"),
        &[port],
    );
    let told = weir.ask(&format!("show ssl cert {name}"));
    for line in [
        &*format!("Filename: {name}\nCrt filename: {name}\nKey filename: {name}\n"),
        "Status: Used\nSerial: ",
        "Subject Alternative Name: DNS:one.test\nAlgorithm: EC256\n",
        "Subject: /O=Weir/CN=one.test\nIssuer: /CN=Test authority\n",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let set = |name: &str, payload: &str| pay(&weir, &format!("set ssl cert {name}"), payload);
    assert_eq!(
        set(&name, "garbage").trim(),
        format!(
            "unable to load certificate from file '{name}': no start line.\nCan't load the payload\n\
             Can't update {name}!"
        )
    );
    assert!(set("nobody", "x").starts_with("Can't replace a certificate which is not referenced by"));
    assert!(weir.ask(&format!("commit ssl cert {name}")).starts_with("No ongoing transaction!"));
    assert!(set(&name, &text(&new)).starts_with("Transaction created"));
    assert!(set("nobody", "x").starts_with("The ongoing transaction is about"));
    assert!(weir.ask("show ssl cert").starts_with(&format!("# transaction\n*{name}\n# filename\n{name}\n")));
    assert!(weir.ask(&format!("show ssl cert *{name}")).contains("Status: Uncommitted"));
    assert!(weir.ask(&format!("show ssl cert *{name}")).contains("Algorithm: RSA2048"));
    assert!(weir.ask(&format!("del ssl cert {name}")).contains("ongoing transaction for the certificate"));
    assert!(serves(port, "one.test", &old), "nothing was committed yet");
    assert!(weir.ask(&format!("abort ssl cert {name}")).starts_with("Transaction aborted"));
    assert!(weir.ask(&format!("del ssl cert {name}")).contains("in use, can't be deleted!"));
    // The key of another certificate is refused where it is committed.
    assert!(set(&format!("{name}.key"), &text(&new)).starts_with("Transaction created"));
    let answer = weir.ask(&format!("commit ssl cert {name}"));
    assert!(answer.starts_with("inconsistencies between private key and certificate loaded"), "{answer}");
    assert!(serves(port, "one.test", &old));
    assert!(weir.ask(&format!("abort ssl cert {name}")).starts_with("Transaction aborted"));
    swap(&weir, &name, &text(&new));
    assert!(serves(port, "two.test", &new), "its names come with it");
    assert!(first_certificate(&s_client(port, "one.test", &[])).is_none(), "and those of before go");
    let dumped = weir.ask(&format!("dump ssl cert {name}"));
    assert!(dumped.starts_with("-----BEGIN PRIVATE KEY-----\n"), "{dumped}");
    assert_eq!(first_certificate(&dumped), first_certificate(&text(&new)));
}

/// Whether the port serves a client that shows this certificate.
fn admits(port: u16, certificate: &Path) -> bool {
    let output = Command::new("curl")
        .args(["-sfk", "--max-time", "10", "--cert"])
        .arg(certificate)
        .arg(format!("https://127.0.0.1:{port}/"))
        .output();
    output.expect("curl runs").status.success()
}

#[test]
fn whom_a_listener_trusts_is_swapped_at_the_commit() {
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
    // Both, by adding to what is there.
    assert!(set("add", &text(&old.own())).starts_with("transaction created for CA"));
    assert!(weir.ask(&format!("commit ssl ca-file {name}")).contains("Success!"));
    assert!(admits(port, &of_old) && admits(port, &of_new));
    assert!(weir.ask(&format!("show ssl ca-file {name}:2")).contains("Certificate #2:"));
    assert!(weir.ask(&format!("del ssl ca-file {name}")).contains("in use, can't be deleted!"));
    assert_eq!(weir.ask("new ssl ca-file other").trim(), "New CA file created 'other'!");
    assert_eq!(weir.ask("del ssl ca-file other").trim(), "CA file 'other' deleted!");
}

#[test]
fn revocation_lists_are_swapped_at_the_commit() {
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
fn what_servers_are_shown_and_trusted_by_is_swapped_for_requests_and_checks() {
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
    // The server shows what the new authority signed, and wants to be shown the like.
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
fn lines_of_crt_lists_and_directories_come_and_go() {
    let authority = Authority::new();
    let [first, second, third] =
        ["first.test", "second.test", "third.test"].map(|name| authority.issue(&[name]));
    let directory = weir_tests::scratch("certificates");
    std::fs::copy(&first, directory.join("first.pem")).expect("the directory takes files");
    let list = directory.join("list.txt");
    std::fs::write(&list, format!("# a comment\n{} [alpn http/1.1] one.test !no.test\n", shown(&first)))
        .expect("the directory takes files");
    let files = directory.join("files");
    std::fs::create_dir(&files).expect("the directory takes directories");
    std::fs::rename(directory.join("first.pem"), files.join("first.pem")).expect("it moves");
    let (port, other, list, files) = (free_port(), free_port(), shown(&list), shown(&files));
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt-list {list} strict-sni\n \
             bind 127.0.0.1:{other} ssl crt {files} strict-sni\n http-request return status 200\n"
        ),
        &[port, other],
    );
    assert_eq!(weir.ask("show ssl crt-list").trim(), format!("{files}\n{list}"));
    let path = shown(&first);
    let lines = weir.ask(&format!("show ssl crt-list {list}"));
    assert_eq!(lines.trim(), format!("# {list}\n{path} [alpn http/1.1] one.test !no.test"));
    for (file, certificate) in [("second", &second), ("third", &third)] {
        assert_eq!(
            weir.ask(&format!("add ssl crt-list {list} {file}")).trim(),
            format!("Can't edit the crt-list: certificate '{file}' does not exist!")
        );
        weir.ask(&format!("new ssl cert {file}"));
        assert_eq!(
            weir.ask(&format!("add ssl crt-list {list} {file}")).trim(),
            format!("Can't edit the crt-list: certificate '{file}' is empty!")
        );
        swap(&weir, file, &text(certificate));
    }
    assert_eq!(
        weir.ask(&format!("add ssl crt-list {list} second")).trim(),
        format!("Inserting certificate 'second' in crt-list '{list}'.\nSuccess!")
    );
    assert!(serves(port, "second.test", &second));
    let add = |line: &str| pay(&weir, &format!("add ssl crt-list {list}"), line);
    assert!(add("third [alpn http/1.1 ssl-max-ver TLSv1.2] *.wild.test !not.wild.test").contains("Success!"));
    assert!(serves(port, "any.wild.test", &third) && !serves(port, "not.wild.test", &third));
    assert!(s_client(port, "any.wild.test", &[]).contains("TLSv1.2"), "its options count");
    for (line, error) in [
        ("third [nonsense x]", "Can't edit the crt-list: parsing [CLI:1]: unknown ssl keyword nonsense"),
        ("third [alpn]", "Can't edit the crt-list: parsing [CLI:1]: ssl args out of '[]' for alpn"),
        ("third [ca-file none verify required]", "Can't edit the crt-list: 'ca-file' : unable to load none"),
        ("third a\nthird b", "Can't edit the crt-list: only one line of payload is supported!"),
    ] {
        assert_eq!(add(line).trim(), error);
    }
    assert!(add("third again.test").contains("Success!"));
    assert!(serves(port, "again.test", &third));
    let numbered = weir.ask(&format!("show ssl crt-list -n {list}"));
    assert!(
        numbered.contains("\nsecond:3\nthird:4 [alpn http/1.1 ssl-max-ver TLSv1.2] *.wild.test"),
        "{numbered}"
    );
    assert!(weir.ask("del ssl cert third").contains("in use, can't be deleted!"));
    assert!(
        weir.ask(&format!("del ssl crt-list {list} third")).contains("in several entries, please specify")
    );
    assert_eq!(
        weir.ask(&format!("del ssl crt-list {list} third:4")).trim(),
        format!("Entry 'third' deleted in crtlist '{list}'!")
    );
    assert!(!serves(port, "any.wild.test", &third) && serves(port, "again.test", &third));
    assert!(weir.ask(&format!("del ssl crt-list {list} third:5")).contains("deleted"));
    assert!(!serves(port, "again.test", &third));
    // A directory takes certificates, and nothing beside them.
    assert!(weir.ask(&format!("add ssl crt-list {files}/ third")).contains("Success!"));
    assert!(serves(other, "third.test", &third));
    assert!(
        weir.ask(&format!("add ssl crt-list {files} third")).contains("already exists in this directory!")
    );
    assert!(
        pay(&weir, &format!("add ssl crt-list {files}"), "second a.test").contains("this is a directory")
    );
    assert!(weir.ask(&format!("del ssl crt-list {files} third")).contains("deleted"));
    assert!(!serves(other, "third.test", &third));
    assert_eq!(weir.ask("del ssl cert third").trim(), "Certificate 'third' deleted!");
}

/// A file in base64, on one line.
fn base64(path: &Path) -> String {
    let output = Command::new("openssl").args(["base64", "-A", "-in"]).arg(path).output();
    String::from_utf8_lossy(&output.expect("openssl runs").stdout).trim().to_owned()
}

/// What a client that asks for it is told of the certificate's state: `good`, `revoked`, or nothing.
fn stapled(port: u16) -> String {
    let told = s_client(port, "one.test", &["-status"]);
    let line = told.lines().find_map(|line| line.trim().strip_prefix("Cert Status: "));
    line.unwrap_or_default().to_owned()
}

#[test]
fn answers_of_ocsp_responders_are_replaced_at_once_or_with_the_certificate() {
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
fn names_of_listeners_are_told_with_their_certificates() {
    let authority = Authority::new();
    let (first, expired) =
        (authority.issue(&["one.test", "*.wild.test"]), authority.issue_expired(&["old.test"]));
    let (port, list) = (free_port(), weir_tests::scratch("names").file("list"));
    std::fs::write(&list, format!("{} *.a.test !b.a.test\n", shown(&expired))).expect("it takes files");
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port} ssl crt {} crt-list {}\nfrontend other\n",
            shown(&first),
            shown(&list)
        ),
        &[port],
    );
    let place = format!("fe/{}:9", weir.directory().join("haproxy.cfg").display());
    let rows = |command: &str| {
        let told = weir.ask(command);
        let mut lines = told.trim().lines();
        assert_eq!(
            lines.next(),
            Some("# Frontend/Bind\tSNI\tNegative Filter\tType\tFilename\tNotAfter\tNotBefore")
        );
        let cut = |line: &str| line.split('\t').take(5).collect::<Vec<_>>().join(" ");
        lines.map(cut).collect::<Vec<_>>()
    };
    let (own, old) = (shown(&first), shown(&expired));
    let wild = format!("{place} *.a.test !b.a.test  ecdsa {old}");
    assert_eq!(
        rows("show ssl sni"),
        [
            format!("{place} one.test - ecdsa {own}"),
            format!("{place} * - ecdsa {own}"),
            wild.clone(),
            format!("{place} *.wild.test - ecdsa {own}"),
        ]
    );
    assert_eq!(rows("show ssl sni -f fe -A"), [wild]);
    assert_eq!(rows("show ssl sni -f fe -A -t 60d").len(), 4);
    assert!(rows("show ssl sni -f other").is_empty());
    assert_eq!(weir.ask("show ssl sni -f none").trim(), "Couldn't find the specified frontend!");
    assert_eq!(weir.ask("show ssl sni -t z").trim(), "'-t z' : unexpected character 'z'");
    assert_eq!(weir.ask("show ssl providers").trim(), "Loaded providers : \n\t- aws-lc");
}

#[test]
fn a_new_key_of_tickets_pushes_the_oldest_out() {
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

#[test]
fn sessions_are_not_resumed_across_a_change_of_whom_to_trust() {
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

#[test]
fn files_beside_a_certificate_are_those_that_are_looked_for() {
    let authority = Authority::new();
    let whole = text(&authority.issue(&["one.test"]));
    let (certificate, key) = whole.split_at(whole.find("-----BEGIN PRIVATE").expect("a key"));
    let directory = weir_tests::scratch("beside");
    let at = |name: &str| directory.join(name);
    for (name, part) in
        [("one.crt", certificate), ("one.key", key), ("two.pem", certificate), ("two.pem.key", key)]
    {
        std::fs::write(at(name), part).expect("it takes files");
    }
    let port = free_port();
    let with = |global: &str, file: &str| {
        DEFAULTS.replace("global\n", &format!("global\n {global}\n"))
            + &format!("frontend fe\n bind 127.0.0.1:{port} ssl crt {}\n", shown(&at(file)))
    };
    for (global, file, accepted) in [
        ("ssl-load-extra-files all", "two.pem", true),
        ("ssl-load-extra-files none", "two.pem", false),
        ("ssl-load-extra-files sctl key", "two.pem", true),
        ("ssl-load-extra-files all", "one.crt", false),
        ("ssl-load-extra-files nothing", "two.pem", false),
    ] {
        let configuration = at("haproxy.cfg");
        std::fs::write(&configuration, with(global, file)).expect("it takes files");
        assert_eq!(weir_tests::check(&configuration, &directory).accepted(), accepted, "{global} {file}");
    }
    let weir = Weir::start(&with("ssl-load-extra-del-ext", "one.crt"), &[port]);
    let new = text(&authority.issue_rsa(&["one.test"]));
    let (certificate, key) = new.split_at(new.find("-----BEGIN PRIVATE").expect("a key"));
    let name = shown(&at("one.crt"));
    let set = |file: &Path, payload: &str| pay(&weir, &format!("set ssl cert {}", shown(file)), payload);
    assert!(set(&at("one.crt"), certificate).starts_with("Transaction created"));
    assert!(set(&at("one.key"), key).starts_with(&format!("Transaction updated for certificate {name}!")));
    assert!(weir.ask(&format!("commit ssl cert {name}")).contains("Success!"));
    assert_eq!(first_certificate(&s_client(port, "one.test", &[])), first_certificate(certificate));
}

#[test]
fn a_revocation_list_over_sha1_counts_as_it_does_in_openssl() {
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
fn a_server_that_is_added_shows_a_certificate_that_no_file_has() {
    let authority = Authority::new();
    let own = authority.issue(&["one.test"]);
    let (port, inner) = (free_port(), free_port());
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n default_backend be\nbackend be\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {} ca-file {} verify required\n \
             http-request return status 200\n",
            shown(&own),
            shown(&authority.own()),
        ),
        &[port, inner],
    );
    assert!(weir.ask("new ssl cert memory").contains("New empty certificate store 'memory'!"));
    swap(&weir, "memory", &text(&own));
    let status = || {
        let told = weir.ask("show ssl cert memory");
        told.lines().find_map(|line| line.strip_prefix("Status: ").map(str::to_owned))
    };
    assert_eq!(status().as_deref(), Some("Unused"));
    let added =
        weir.ask(&format!("add server be/s 127.0.0.1:{inner} ssl verify none no-sni-auto crt memory"));
    assert!(added.contains("New server registered."), "{added}");
    assert_eq!(status().as_deref(), Some("Used"));
    assert!(weir.ask("del ssl cert memory").contains("in use, can't be deleted!"));
    weir.ask("enable server be/s");
    let answer = weir_tests::client::exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").expect("an answer");
    assert_eq!(answer.status, 200);
    weir.ask("disable server be/s");
    assert!(eventually(|| weir.ask("del server be/s").contains("Server deleted.")));
    assert_eq!(status().as_deref(), Some("Unused"));
    assert_eq!(weir.ask("del ssl cert memory").trim(), "Certificate 'memory' deleted!");
}

#[test]
fn tls_with_a_server_is_turned_on_and_off_where_a_line_has_said_it() {
    let authority = Authority::new();
    let own = shown(&authority.issue(&["one.test"]));
    let (port, inner) = (free_port(), free_port());
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}frontend fe\n bind 127.0.0.1:{port}\n default_backend be\n\
             backend be\n default-server ssl verify none\n server s 127.0.0.1:{inner} no-ssl\n\
             backend other\n server s 127.0.0.1:{inner} no-ssl\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {own}\n http-request return status 200\n"
        ),
        &[port, inner],
    );
    let status = || {
        weir_tests::client::exchange(port, "GET / HTTP/1.1\r\nHost: a\r\n\r\n").map(|answer| answer.status)
    };
    let shown = |backend: &str| {
        let all = weir.ask(&format!("show servers state {backend}"));
        all.lines().nth(2).and_then(|line| line.split(' ').rev().nth(4).map(str::to_owned))
    };
    assert_eq!((status(), shown("be").as_deref()), (Some(502), Some("-1")));
    assert!(weir.ask("set server be/s ssl on").contains("server ssl setting updated."));
    assert_eq!((status(), shown("be").as_deref()), (Some(200), Some("1")));
    assert!(weir.ask("set server be/s ssl off").contains("server ssl setting updated."));
    assert_eq!((status(), shown("be").as_deref()), (Some(502), Some("0")));
    assert!(weir.ask("set server other/s ssl on").contains("'set server <srv> ssl' cannot be set"));
    assert_eq!(shown("other").as_deref(), Some("-1"));
    assert!(weir.ask("set server be/s ssl perhaps").contains("expects 'on' or 'off'"));
}

#[test]
fn checks_of_a_server_that_is_added_speak_tls_where_its_line_says_so() {
    let authority = Authority::new();
    let own = shown(&authority.issue(&["one.test"]));
    let inner = free_port();
    let weir = Weir::start(
        &format!(
            "{DEFAULTS}backend be\n option httpchk\n\
             frontend inner\n bind 127.0.0.1:{inner} ssl crt {own}\n http-request return status 200\n"
        ),
        &[inner],
    );
    let line = format!("127.0.0.1:{inner} ssl verify none check inter 20ms");
    for (name, words, expected) in [("plain", "", &["L7RSP", "SOCKERR"][..]), ("tls", "check-ssl", &["L7OK"])]
    {
        let added = weir.ask(&format!("add server be/{name} {line} {words}"));
        assert!(added.contains("New server registered."), "{added}");
        weir.ask(&format!("enable server be/{name}"));
        weir.ask(&format!("enable health be/{name}"));
        let told = || weir.stat(&format!("be,{name}"), "check_status");
        assert!(eventually(|| expected.contains(&&*told())), "{name}: {}", told());
    }
}

#[test]
fn a_script_replaces_a_certificate() {
    let authority = Authority::new();
    let (first, second) = (authority.issue(&["a.test"]), authority.issue(&["a.test"]));
    let script = weir_tests::scratch("certificates").file("set.lua");
    let lines = r#"
        local first, second = ...
        core.register_cli({ "swap" }, "swap : uses the other certificate", function(applet)
            local file = io.open(second)
            CertCache.set{ filename = first, crt = file:read("a") }
            local ok, why = pcall(CertCache.set, { filename = first, crt = "nonsense" })
            applet:send(tostring(ok) .. " " .. why .. "\n")
            local ok, why = pcall(ACME.challenge_ready, first, "a.test")
            applet:send(tostring(ok) .. " " .. why .. "\n")
        end)
    "#;
    std::fs::write(&script, lines).expect("scripts can be written");
    let (port, shown) = (free_port(), |path: &Path| path.display().to_string());
    let load = format!("global\n lua-load {} {} {}\n", shown(&script), shown(&first), shown(&second));
    let configuration = DEFAULTS.replacen("global\n", &load, 1);
    let configuration = format!(
        "{configuration}frontend f\n bind 127.0.0.1:{port} ssl crt {}\n http-request return status 204\n",
        shown(&first)
    );
    let weir = Weir::start(&configuration, &[port]);
    assert!(serves(port, "a.test", &first));
    let said = weir.ask("swap");
    assert!(serves(port, "a.test", &second), "{said}\n{}", weir.messages());
    assert!(said.contains("false") && said.contains("set.lua:6: CertCache.set: "), "{said}");
    assert!(said.contains("ACME.challenge_ready: Couldn't find an ACME task"), "{said}");
}
