//! Pebble, a CA for tests of ACME clients, started if it is installed (`make tools` installs it if Go is new enough).

use std::fs::File;
use std::net::{Ipv4Addr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::{Authority, Scratch, eventually, free_port, scratch};

/// The settings of a Pebble.
#[derive(Debug, Clone, Copy, Default)]
pub struct Settings<'a> {
    /// The port of 127.0.0.1 of the name server that Pebble queries.
    pub names: u16,
    /// The port at which HTTP challenges are validated.
    pub http: u16,
    /// The port at which TLS challenges are validated.
    pub tls: u16,
    /// The percentage of nonces that Pebble refuses.
    pub refuses: u8,
    /// A key, in base64url, with its key id: accounts must be bound to the key.
    pub binding: Option<(&'a str, &'a str)>,
}

/// A running Pebble. It stops when the value is dropped.
pub struct Pebble {
    child: Child,
    port: u16,
    authority: Authority,
    directory: Scratch,
}

impl Pebble {
    /// Starts a Pebble with its directory at `https://localhost:<port>/dir`. If it is not installed, reports that on standard error
    /// and returns `None`.
    pub fn start(settings: Settings<'_>) -> Option<Pebble> {
        let program = match std::env::var_os("PEBBLE") {
            Some(named) => named.into(),
            None => crate::go_tools::of_go("pebble")?,
        };
        let directory = scratch("pebble");
        let authority = Authority::new();
        let own = authority.issue(&["localhost"]);
        let (port, management) = (free_port(), free_port());
        let mut written = json!({"pebble": {
            "listenAddress": format!("127.0.0.1:{port}"),
            "managementListenAddress": format!("127.0.0.1:{management}"),
            "certificate": own, "privateKey": own,
            "httpPort": settings.http, "tlsPort": settings.tls,
            "ocspResponderURL": "", "externalAccountBindingRequired": settings.binding.is_some(),
            "retryAfter": {"authz": 1, "order": 1},
            "profiles": {
                "default": {"description": "ninety days", "validityPeriod": 7_776_000},
                "shortlived": {"description": "six days", "validityPeriod": 518_400},
            },
        }});
        if let Some((name, key)) = settings.binding {
            let mut keys = serde_json::Map::new();
            keys.insert(name.to_owned(), Value::from(key));
            written["pebble"]["externalAccountMACKeys"] = Value::Object(keys);
        }
        let file = directory.join("pebble.json");
        std::fs::write(&file, written.to_string()).expect("the temporary directory takes files");
        let log = File::create(directory.join("log")).expect("the temporary directory takes files");
        let child = Command::new(program)
            .arg("-config")
            .arg(&file)
            .args(["-dnsserver", &format!("127.0.0.1:{}", settings.names)])
            .env("PEBBLE_VA_NOSLEEP", "1")
            .env("PEBBLE_AUTHZREUSE", "0")
            .env("PEBBLE_WFE_NONCEREJECT", settings.refuses.to_string())
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file has another descriptor"))
            .stderr(log)
            .spawn()
            .expect("pebble runs");
        let pebble = Pebble { child, port, authority, directory };
        let listens = eventually(|| TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok());
        assert!(listens, "pebble does not start: {}", pebble.log());
        Some(pebble)
    }

    /// Returns the URL of Pebble's directory.
    pub fn url(&self) -> String {
        format!("https://localhost:{}/dir", self.port)
    }

    /// Returns the path of the CA certificate that signed Pebble's own certificate.
    pub fn authority(&self) -> PathBuf {
        self.authority.own()
    }

    /// Returns Pebble's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
