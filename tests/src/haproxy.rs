//! Runs the machine's HAProxy for tests that compare it with Weir: `HAPROXY`, or `/usr/sbin/haproxy`.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::{Scratch, eventually, scratch};

/// A running HAProxy; it stops when the value is dropped.
#[derive(Debug)]
pub struct Haproxy {
    child: Child,
    file: Scratch,
}

fn path() -> PathBuf {
    let path = std::env::var_os("HAPROXY").map_or_else(|| "/usr/sbin/haproxy".into(), PathBuf::from);
    assert!(path.exists(), "{} is missing: `make tools` installs it", path.display());
    path
}

impl Haproxy {
    /// Starts HAProxy with a configuration and waits until `port` of 127.0.0.1 accepts connections.
    pub fn start(configuration: &str, port: u16) -> Haproxy {
        let file = scratch("haproxy").file("haproxy.cfg");
        std::fs::write(&file, configuration).expect("the temporary directory takes files");
        let child = Command::new(path())
            .args(["-db", "-q", "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("haproxy runs");
        let running = Haproxy { child, file };
        let listens = eventually(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        assert!(listens, "haproxy does not start on {}", running.file);
        running
    }

    /// Returns the version of HAProxy, major and minor.
    pub fn version() -> (u32, u32) {
        let said = Command::new(path()).arg("-v").output().expect("haproxy runs").stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        let version = said.split("version ").nth(1).unwrap_or_default();
        let mut numbers = version.split(|c: char| !c.is_ascii_digit()).map(str::parse);
        match (numbers.next(), numbers.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor),
            _ => panic!("haproxy tells no version: {said}"),
        }
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
