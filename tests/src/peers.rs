//! Third-party servers as packaged by Debian: PostgreSQL, MariaDB, Redis, OpenLDAP and PHP, each with its own directory and port.
//! Used by `tests/peers.rs` and `tests/php.rs`.

use std::io::Write;
use std::net::{Ipv4Addr, TcpStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::{Scratch, eventually, free_port, scratch};

/// The kinds of servers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "names of programs")]
pub enum Kind {
    Postgres,
    MariaDb,
    Redis,
    OpenLdap,
    /// Runs the scripts that are in the server's [`Peer::files`].
    Php,
}

/// A server that can be stopped and started. It stops when the value is dropped.
#[derive(Debug)]
pub struct Peer {
    kind: Kind,
    directory: Scratch,
    /// Its port on 127.0.0.1.
    pub port: u16,
    child: Option<Child>,
}

/// Finds a program in `PATH` or where Debian puts daemons.
fn find(program: &str) -> PathBuf {
    let own = std::env::var_os("PATH").unwrap_or_default();
    let mut places: Vec<PathBuf> = std::env::split_paths(&own).collect();
    places.extend(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        places.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    let in_place = |place: PathBuf| match place.join(program) {
        path if path.is_file() => Some(path),
        // Some names include the version.
        _ => std::fs::read_dir(place).ok()?.flatten().map(|entry| entry.path()).find(|path| {
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
            let version = name.strip_prefix(program).unwrap_or_default();
            !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        }),
    };
    let found = places.into_iter().find_map(in_place);
    found.unwrap_or_else(|| panic!("{program} is missing: `make tools` installs it"))
}

/// Returns the user and group of a name in `/etc/passwd`, if this process may switch to it.
fn account(name: &str) -> Option<(u32, u32)> {
    let own = std::fs::metadata("/proc/self").expect("/proc is there");
    if std::os::unix::fs::MetadataExt::uid(&own) != 0 {
        return None;
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let fields: Vec<&str> =
        passwd.lines().find(|line| line.split(':').next() == Some(name))?.split(':').collect();
    Some((fields.get(2)?.parse().ok()?, fields.get(3)?.parse().ok()?))
}

impl Peer {
    /// Prepares a server and starts it.
    pub fn start(kind: Kind) -> Self {
        let directory = scratch("peer");
        let mut peer = Self { kind, directory, port: free_port(), child: None };
        peer.prepare();
        peer.resume();
        peer
    }

    /// Returns the account under which the server runs, because some servers refuse to run as root.
    fn user(&self) -> Option<(u32, u32)> {
        match self.kind {
            Kind::Postgres => account("postgres"),
            Kind::MariaDb => account("mysql"),
            Kind::Redis | Kind::OpenLdap | Kind::Php => None,
        }
    }

    /// Returns the directory of the server's files.
    pub fn files(&self) -> PathBuf {
        self.directory.join("data")
    }

    fn command(&self, program: &str) -> Command {
        let log = std::fs::File::options().create(true).append(true).open(self.directory.join("log"));
        let log = log.expect("the temporary directory takes files");
        let mut command = Command::new(find(program));
        command.current_dir(&self.directory).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        if let Some((user, group)) = self.user() {
            command.uid(user).gid(group);
        }
        command
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.join("log")).unwrap_or_default()
    }

    /// Creates the server's files.
    fn prepare(&self) {
        let data = self.directory.join("data");
        std::fs::create_dir(&data).expect("the temporary directory takes directories");
        if let Some((user, group)) = self.user() {
            for path in [&*self.directory, &data] {
                std::os::unix::fs::chown(path, Some(user), Some(group)).expect("root may give files away");
            }
        }
        let status = match self.kind {
            Kind::Postgres => {
                self.command("initdb").args(["-U", "weir", "-A", "trust", "-D"]).arg(&data).status()
            }
            Kind::MariaDb => {
                // The account with which checks log in: without a password, from anywhere.
                write(&self.directory.join("init.sql"), "CREATE USER IF NOT EXISTS 'weir'@'%';\n");
                self.command("mariadb-install-db")
                    .args(["--no-defaults", "--skip-test-db", "--auth-root-authentication-method=normal"])
                    .arg(format!("--datadir={}", data.display()))
                    .status()
            }
            Kind::OpenLdap => {
                write(&self.directory.join("slapd.conf"), "pidfile slapd.pid\n");
                return;
            }
            Kind::Php => {
                let settings = format!(
                    "[global]\nerror_log = log\ndaemonize = no\n[www]\nlisten = 127.0.0.1:{}\npm = static\npm.max_children = 2\n\
                     ping.path = /ping\ncatch_workers_output = yes\n",
                    self.port
                );
                write(&self.directory.join("fpm.conf"), &settings);
                return;
            }
            Kind::Redis => return,
        };
        assert!(status.is_ok_and(|status| status.success()), "{:?}: {}", self.kind, self.log());
    }

    /// Starts the server if it is stopped; waits until it accepts connections.
    pub fn resume(&mut self) {
        let (data, port) = (self.directory.join("data"), self.port.to_string());
        let mut command = match self.kind {
            Kind::Postgres => {
                let mut command = self.command("postgres");
                command
                    .args(["-h", "127.0.0.1", "-p", &port, "-F", "-c", "unix_socket_directories=", "-D"])
                    .arg(&data);
                command
            }
            Kind::MariaDb => {
                let mut command = self.command("mariadbd");
                command
                    .args(["--no-defaults", "--bind-address=127.0.0.1", "--skip-name-resolve"])
                    .arg(format!("--port={port}"))
                    .arg(format!("--datadir={}", data.display()))
                    .arg(format!("--socket={}", self.directory.join("socket").display()))
                    .arg(format!("--init-file={}", self.directory.join("init.sql").display()));
                command
            }
            Kind::Redis => {
                let mut command = self.command("redis-server");
                command.args(["--port", &port, "--bind", "127.0.0.1", "--save", ""]);
                command
            }
            Kind::OpenLdap => {
                let mut command = self.command("slapd");
                command.args(["-d", "0", "-f", "slapd.conf", "-h"]).arg(format!("ldap://127.0.0.1:{port}"));
                command
            }
            Kind::Php => {
                let mut command = self.command("php-fpm");
                // In the foreground, allowed as root, with only its own settings.
                command.args(["-F", "-R", "-n", "-p"]).arg(&self.directory).args(["-y", "fpm.conf"]);
                command
            }
        };
        self.child = Some(command.spawn().expect("the server starts"));
        let ready = eventually(|| TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok());
        assert!(ready, "{:?} takes no connection: {}", self.kind, self.log());
    }

    /// Stops the server cleanly, so that it can be started again.
    pub fn stop(&mut self) {
        let Some(mut child) = self.child.take() else { return };
        // On SIGTERM, PostgreSQL waits for its clients.
        let signal = if self.kind == Kind::Postgres { "-INT" } else { "-TERM" };
        let asked = Command::new("kill").args([signal, &child.id().to_string()]).status();
        let ended = asked.is_ok() && eventually(|| !matches!(child.try_wait(), Ok(None)));
        if !ended {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn write(path: &Path, text: &str) {
    let mut file = std::fs::File::create(path).expect("the temporary directory takes files");
    file.write_all(text.as_bytes()).expect("the temporary directory takes files");
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.stop();
    }
}
