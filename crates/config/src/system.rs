//! System lookups for a configuration: host addresses, user and group IDs.

use std::net::{IpAddr, ToSocketAddrs};

use base::address::{Family, Host};
use diag::Diagnostic;
use syntax::Word;

/// The system's message for an error, without Rust's `(os error 2)`.
pub(crate) fn error_text(error: &std::io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// The address of a host; names are resolved by the system resolver.
pub(crate) fn resolve_host(host: &Host) -> Result<IpAddr, String> {
    match host {
        Host::Ip(ip) => Ok(*ip),
        Host::Name { name, family } => {
            let mut found = (name.as_str(), 0).to_socket_addrs().map_err(|error| error_text(&error))?;
            let wanted = |address: &std::net::SocketAddr| match family {
                Some(Family::V4) => address.is_ipv4(),
                Some(Family::V6) => address.is_ipv6(),
                None => true,
            };
            found
                .find(wanted)
                .map(|address| address.ip())
                .ok_or_else(|| "no address of that family".to_owned())
        }
    }
}

/// The ID of a user in `/etc/passwd`.
pub(crate) fn user_id(name: &str) -> Option<u32> {
    id_in("/etc/passwd", name)
}

/// The ID of a group in `/etc/group`.
pub(crate) fn group_id(name: &str) -> Option<u32> {
    id_in("/etc/group", name)
}

fn id_in(path: &str, name: &str) -> Option<u32> {
    base::seen_files::note(path);
    let text = std::fs::read_to_string(path).ok()?;
    text.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then(|| fields.nth(1)?.parse().ok()).flatten()
    })
}

/// The address of a host named in a `log` line.
pub(crate) fn host_address(word: &Word, host: &Host) -> Result<IpAddr, Diagnostic> {
    resolve_host(host).map_err(|error| {
        Diagnostic::alert(format!("cannot resolve the address of the log `{word}`: {error}"))
            .at(word.span())
            .haproxy(format!("'log' : could not resolve address '{word}'"))
    })
}
