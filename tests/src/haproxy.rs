//! The machine's HAProxy beside Weir, for tests that compare the two. Which one: `HAPROXY`, or `/usr/sbin/haproxy`.

use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use crate::{eventually, scratch};

/// A running HAProxy; ends with the value.
#[derive(Debug)]
pub struct Haproxy(Child);

fn path() -> Option<PathBuf> {
    let path = std::env::var_os("HAPROXY").map_or_else(|| "/usr/sbin/haproxy".into(), PathBuf::from);
    path.exists().then_some(path)
}

impl Haproxy {
    /// Starts on a configuration and waits until `port` of 127.0.0.1 takes connections; `None` where there is no
    /// HAProxy.
    pub fn start(configuration: &str, port: u16) -> Option<Haproxy> {
        let file = scratch("haproxy").join("haproxy.cfg");
        std::fs::write(&file, configuration).expect("the temporary directory takes files");
        let child = Command::new(path()?)
            .args(["-db", "-q", "-f"])
            .arg(&file)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        let running = Haproxy(child);
        let listens = eventually(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        assert!(listens, "haproxy does not start on {}", file.display());
        Some(running)
    }

    /// Its version, major and minor; `None` where there is no HAProxy.
    pub fn version() -> Option<(u32, u32)> {
        let said = Command::new(path()?).arg("-v").output().ok()?.stdout;
        let said = String::from_utf8_lossy(&said).into_owned();
        let mut numbers = said.split("version ").nth(1)?.split(|c: char| !c.is_ascii_digit());
        Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
    }
}

impl Drop for Haproxy {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
