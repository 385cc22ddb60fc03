//! Certificates that change while the program runs: which ones it presents and which clients it accepts, and runtime socket
//! commands with a payload.

use std::path::Path;
use std::process::Command;

use crate::Weir;
use crate::tls::handshake;

/// The beginning of a configuration with a runtime socket.
pub const DEFAULTS: &str = "global\n stats socket runtime level admin\n\
                        defaults\n mode http\n timeout client 10s\n timeout server 10s\n timeout connect 3s\n";

/// Reads a file of a CA.
pub fn text(path: &Path) -> String {
    std::fs::read_to_string(path).expect("the authority wrote it")
}

/// Returns the output of `openssl s_client` for a handshake with that name and additional arguments.
pub fn s_client(port: u16, name: &str, more: &[&str]) -> String {
    handshake(port, &[&["-servername", name][..], more].concat())
}

/// Returns the first certificate in a text, as PEM without line ends.
pub fn first_certificate(text: &str) -> Option<String> {
    let from = text.find("-----BEGIN CERTIFICATE")?;
    let to = text[from..].find("-----END CERTIFICATE")?;
    Some(text[from..from + to].lines().collect())
}

/// Returns whether the port presents this certificate to clients that request `name`.
pub fn serves(port: u16, name: &str, certificate: &Path) -> bool {
    first_certificate(&s_client(port, name, &[])) == first_certificate(&text(certificate))
}

/// Returns whether the port serves a client that presents this certificate.
pub fn admits(port: u16, certificate: &Path) -> bool {
    let output = Command::new("curl")
        .args(["-sfk", "--max-time", "10", "--cert"])
        .arg(certificate)
        .arg(format!("https://127.0.0.1:{port}/"))
        .output();
    output.expect("curl runs").status.success()
}

/// Runs a command with a payload.
pub fn pay(weir: &Weir, command: &str, payload: &str) -> String {
    weir.ask(&format!("{command} <<\n{payload}\n"))
}

/// Sets a certificate and commits it.
///
/// # Panics
/// One of the commands fails.
pub fn swap(weir: &Weir, name: &str, pem: &str) {
    let answer = pay(weir, &format!("set ssl cert {name}"), pem);
    assert!(answer.contains("Transaction created"), "{answer}");
    let answer = weir.ask(&format!("commit ssl cert {name}"));
    assert!(answer.contains("Success!"), "{answer}");
}
