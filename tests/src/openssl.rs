//! OpenSSL's own server (`openssl s_server`).

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};

/// A running server. It stops when the value is dropped.
pub struct OpensslServer {
    child: Child,
    input: ChildStdin,
    /// The lines that the server prints. Reading a line removes it.
    pub said: Box<dyn Iterator<Item = String> + Send>,
}

impl OpensslServer {
    /// Starts a server with this certificate and key and additional arguments.
    pub fn start(port: u16, certificate: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new("openssl")
            .args(["s_server", "-accept", &format!("127.0.0.1:{port}"), "-cert"])
            .arg(certificate)
            .arg("-key")
            .arg(certificate)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("openssl runs: `make tools` installs it");
        let input = child.stdin.take().expect("it was asked for");
        let output = child.stdout.take().expect("it was asked for");
        let said = Box::new(BufReader::new(output).lines().map_while(Result::ok));
        let mut own = Self { child, input, said };
        if !arguments.contains(&"-quiet") {
            assert!(own.says(|line| line == "ACCEPT"), "openssl does not listen");
        }
        own
    }

    /// Waits for a line that matches.
    pub fn says(&mut self, is_it: impl Fn(&str) -> bool) -> bool {
        self.said.any(|line| is_it(&line))
    }

    /// Sends input: without `-quiet`, a one-letter line is a command.
    pub fn send(&mut self, bytes: &[u8]) {
        self.input.write_all(bytes).and_then(|()| self.input.flush()).expect("it listens");
    }
}

impl Drop for OpensslServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
