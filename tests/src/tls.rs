//! TLS test clients: the machine's `openssl`, and certificate information from the program.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::Weir;

/// Returns the output of `openssl s_client` for a handshake with a port of 127.0.0.1; the client sends nothing.
pub fn handshake(port: u16, arguments: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}")])
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .expect("openssl runs: `make tools` installs it");
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// Formats a path for a configuration.
pub fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Returns a column of a certificate's row in `acme status`.
pub fn order_status(weir: &Weir, certificate: &str, column: usize) -> String {
    let table = weir.ask("acme status");
    let row = table.lines().find(|line| line.starts_with(&format!("{certificate}\t")));
    row.and_then(|row| row.split('\t').nth(column)).unwrap_or_default().to_owned()
}

/// Returns a line of `show ssl cert`.
pub fn certificate_fact(weir: &Weir, certificate: &str, name: &str) -> String {
    let text = weir.ask(&format!("show ssl cert {certificate}"));
    let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")));
    line.unwrap_or_default().to_owned()
}

/// Returns the standard output of `openssl s_client` on a connection on which it requests `/` from `host`.
pub fn asked(port: u16, host: &str, arguments: &[&str]) -> String {
    let mut client = Command::new("openssl")
        .args(["s_client", "-connect", &format!("127.0.0.1:{port}")])
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl runs: `make tools` installs it");
    let mut input = client.stdin.take().expect("it was asked for");
    // The peer may have closed already.
    let _ = write!(input, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    drop(input);
    let output = client.wait_with_output().expect("it ends with the connection");
    String::from_utf8_lossy(&output.stdout).into_owned()
}
