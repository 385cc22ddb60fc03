//! Certificates that change while the program serves: what it shows to clients and whom it admits, and
//! commands of the runtime socket that take a payload.

use std::path::Path;
use std::process::Command;

use crate::Weir;
use crate::tls::handshake;

/// The beginning of a configuration with a runtime socket.
pub const DEFAULTS: &str = "global\n stats socket runtime level admin\n\
                        defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

/// What a file of an authority holds.
pub fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the authority wrote it")
}

/// What `openssl s_client` says of a handshake for that name, with more arguments.
pub fn s_client(port: u16, name: &str, more: &[&str]) -> String {
    handshake(port, &[&["-servername", name][..], more].concat())
}

/// The first certificate in a text, as PEM without line ends.
pub fn first_certificate(text: &str) -> Option<String> {
    let from = text.find("-----BEGIN CERTIFICATE")?;
    let to = text[from..].find("-----END CERTIFICATE")?;
    Some(text[from..from + to].lines().collect())
}

/// Whether the port shows this certificate to who asks for `name`.
pub fn serves(port: u16, name: &str, certificate: &Path) -> bool {
    first_certificate(&s_client(port, name, &[])) == first_certificate(&text(certificate))
}

/// Whether the port serves a client that shows this certificate.
pub fn admits(port: u16, certificate: &Path) -> bool {
    let output = Command::new("curl")
        .args(["-sfk", "--max-time", "10", "--cert"])
        .arg(certificate)
        .arg(format!("https://127.0.0.1:{port}/"))
        .output();
    output.expect("curl runs").status.success()
}

/// A command with a payload.
pub fn pay(weir: &Weir, command: &str, payload: &str) -> String {
    weir.ask(&format!("{command} <<\n{payload}\n"))
}

/// Sets a certificate and commits it.
///
/// # Panics
/// One of the two is refused.
pub fn swap(weir: &Weir, name: &str, pem: &str) {
    let answer = pay(weir, &format!("set ssl cert {name}"), pem);
    assert!(answer.contains("Transaction created"), "{answer}");
    let answer = weir.ask(&format!("commit ssl cert {name}"));
    assert!(answer.contains("Success!"), "{answer}");
}
