//! Files of TLS changed by the runtime socket while the program serves (management manual, 9.3:
//! `set ssl cert` and the like).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

use weir_tests::{Authority, Weir, eventually, free_port};

const DEFAULTS: &str = "global\n stats socket runtime level admin\n\
                        defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

fn shown(path: &Path) -> String {
    path.display().to_string()
}

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
