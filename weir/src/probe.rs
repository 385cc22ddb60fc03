//! `weir health`: reports whether the process that runs a configuration answers, for the health checks of containers and
//! supervisors.
//!
//! It sends `show info` to the runtime sockets of the configuration. If this user may open none of them, one of the listeners must
//! accept a connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpStream};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::Duration;

use plan::bind::BindAddress;

use crate::args::CommandLineArgs;
use crate::{check, messages};

const USAGE: &str = "\
Usage: weir health -f FILE [-f ...] [--timeout SECONDS]
       weir health --socket SOCKET [--timeout SECONDS]

Checks whether the process that runs the configuration in FILE, or the process
with that runtime socket, responds. The exit status is 0 if it responds within
5 seconds (or SECONDS), 1 if it does not, and 2 if the command line is invalid.
";

/// The arguments of the command.
#[derive(Debug)]
struct Probe {
    files: Vec<PathBuf>,
    socket: Option<PathBuf>,
    timeout: Duration,
}

/// Runs the command. Returns `None` if `words` are another command.
pub(crate) fn run(words: &[String]) -> Option<ExitCode> {
    (words.first()? == "health").then(|| match parse(&words[1..]) {
        Ok(probe) => report(probe),
        Err(error) => {
            eprint!("{error}");
            ExitCode::from(2)
        }
    })
}

fn parse(words: &[String]) -> Result<Probe, String> {
    let mut probe = Probe { files: Vec::new(), socket: None, timeout: Duration::from_secs(5) };
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| USAGE.to_owned());
        match word.as_str() {
            "-f" | "--config" => probe.files.push(value()?.into()),
            "--socket" => probe.socket = Some(value()?.into()),
            "--timeout" => {
                let seconds = value()?;
                let parsed = seconds.parse().ok().filter(|seconds| *seconds > 0);
                probe.timeout = parsed.map(Duration::from_secs).ok_or_else(|| {
                    format!("--timeout needs a number of seconds, not '{seconds}'\n\n{USAGE}")
                })?;
            }
            _ => return Err(USAGE.to_owned()),
        }
    }
    if probe.files.is_empty() == probe.socket.is_none() { Err(USAGE.to_owned()) } else { Ok(probe) }
}

/// Probes on a separate thread, because a hung process may block any step.
fn report(probe: Probe) -> ExitCode {
    let timeout = probe.timeout;
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(answers(&probe));
    });
    let outcome = receiver
        .recv_timeout(timeout)
        .unwrap_or_else(|_| Err(format!("no answer within {} seconds", timeout.as_secs())));
    match outcome {
        Ok(text) => {
            messages::output(&format!("healthy: {text}\n"));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("unhealthy: {error}");
            ExitCode::FAILURE
        }
    }
}

fn answers(probe: &Probe) -> Result<String, String> {
    if let Some(socket) = &probe.socket {
        let address = BindAddress::Unix(socket.clone());
        return ask(&address, probe.timeout).map_err(|error| format!("{}: {error}", socket.display()));
    }
    let args = CommandLineArgs { files: probe.files.clone(), ..CommandLineArgs::default() };
    let loaded = config::load(&args.files, &check::boot(&args));
    let plan = loaded.plan.ok_or_else(|| {
        let files: Vec<_> = args.files.iter().map(|path| path.display().to_string()).collect();
        format!("{} cannot be used: run `weir -c` for details", files.join(", "))
    })?;
    let mut failures = Vec::new();
    let runtime = plan.global.stats_sockets.iter().filter(|bind| bind.tls.is_none());
    for bind in runtime {
        match ask(&bind.address, probe.timeout) {
            Ok(text) => return Ok(text),
            Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
            Err(error) => failures.push(format!("{}: {error}", bind.address)),
        }
    }
    if !failures.is_empty() {
        return Err(failures.join("; "));
    }
    let enabled = plan.proxies.iter().filter(|proxy| !proxy.disabled);
    for bind in enabled.flat_map(|proxy| proxy.binds.iter()) {
        match connect(&bind.address, probe.timeout) {
            Ok(_) => return Ok(format!("{} accepts connections", bind.address)),
            Err(error) => failures.push(format!("{}: {error}", bind.address)),
        }
    }
    if failures.is_empty() {
        failures.push("the configuration has no socket to connect to".to_owned());
    }
    Err(failures.join("; "))
}

/// Connects and sends `show info`.
fn ask(address: &BindAddress, timeout: Duration) -> std::io::Result<String> {
    let mut stream = connect(address, timeout)?;
    stream.write_all(b"show info\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer)?;
    let value = |name: &str| answer.lines().find_map(|line| line.strip_prefix(name));
    match (value("Pid: "), value("Uptime: ")) {
        (Some(pid), Some(uptime)) => Ok(format!("process {pid}, up {uptime}")),
        _ => Err(std::io::Error::other("the output of `show info` has no process ID")),
    }
}

/// A connection of any family.
pub(crate) trait Duplex: Read + Write {}
impl<T: Read + Write> Duplex for T {}

pub(crate) fn connect(address: &BindAddress, timeout: Duration) -> std::io::Result<Box<dyn Duplex>> {
    Ok(match address {
        BindAddress::Ip(address) => Box::new(TcpStream::connect_timeout(&reachable(*address), timeout)?),
        BindAddress::Unix(path) => Box::new(UnixStream::connect(Path::new(path))?),
        BindAddress::Abstract { name, padded } => {
            let path = net::dial::abstract_path(name, *padded);
            // The path begins with the NUL that the address adds.
            let name = &path.as_os_str().as_bytes()[1..];
            let address = std::os::unix::net::SocketAddr::from_abstract_name(name)?;
            Box::new(UnixStream::connect_addr(&address)?)
        }
        BindAddress::Udp(_)
        | BindAddress::Quic(_)
        | BindAddress::InheritedQuic(_)
        | BindAddress::Inherited(_)
        | BindAddress::SocketPair(_)
        | BindAddress::Reverse(_) => {
            return Err(std::io::Error::other("such a listener cannot be reached from outside"));
        }
    })
}

/// The loopback address for a wildcard.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address {
            SocketAddr::V4(_) => IpAddr::V4(Ipv4Addr::LOCALHOST),
            SocketAddr::V6(_) => IpAddr::V6(Ipv6Addr::LOCALHOST),
        });
    }
    address
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Probe, String> {
        parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn a_probe_needs_either_files_or_a_socket() {
        let probe = read("-f a.cfg -f b.cfg --timeout 2").unwrap();
        assert_eq!((probe.files.len(), probe.timeout), (2, Duration::from_secs(2)));
        assert_eq!(read("--socket /run/s").unwrap().socket, Some("/run/s".into()));
        for wrong in ["", "-f", "-f a --socket s", "-f a --timeout 0", "-f a --timeout x", "-f a more"] {
            assert!(read(wrong).unwrap_err().ends_with(USAGE), "{wrong}");
        }
    }

    #[test]
    fn wildcard_addresses_are_reached_by_loopback() {
        for (bound, reached) in
            [("0.0.0.0:80", "127.0.0.1:80"), ("[::]:80", "[::1]:80"), ("192.0.2.1:80", "192.0.2.1:80")]
        {
            assert_eq!(reachable(bound.parse().unwrap()), reached.parse().unwrap(), "{bound}");
        }
    }
}
