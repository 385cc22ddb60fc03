//! `show fd` and `debug dev fd` (management manual, 9.3): the open descriptors and their uses.
//!
//! The system lists the descriptors (`/proc/self/fd`, `/proc/self/net`); facts about listeners, sessions and servers are added. The
//! state of the poller cannot be shown, because tokio owns the poller.

use std::collections::HashMap;
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::MetadataExt;

use state::server::ServerAddress;
use state::sessions;
use statistics::ConfigView;

use crate::commands::streams::on_every_worker;
use crate::invocation::{Call, CommandReply, error};

/// Kinds that can be selected, one bit each.
mod kind {
    pub(super) const PIPE: u8 = 1;
    pub(super) const LISTENER: u8 = 2;
    pub(super) const FRONT: u8 = 4;
    pub(super) const BACK: u8 = 8;
    pub(super) const ANY: u8 = 16 | PIPE | LISTENER | FRONT | BACK;
}

/// The selected descriptors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct DescriptorFilter {
    kinds: u8,
    number: Option<u32>,
}

impl DescriptorFilter {
    /// Parses the words: flags, a number, or a group and a number, each optional.
    fn read(words: &[String], groups: usize) -> Result<Self, CommandReply> {
        let mut wanted = Self { kinds: 0, number: None };
        let mut excluded = 0;
        for word in words {
            if word.starts_with(|first: char| first.is_ascii_digit() || first == '/') {
                let (group, number) = word.split_once('/').unwrap_or(("", word));
                let invalid = || error("Invalid FD number");
                if !group.is_empty()
                    && !group.parse::<usize>().is_ok_and(|group| (1..=groups).contains(&group))
                {
                    return Err(error(format!("The thread groups are numbered from 1 to {groups}.")));
                }
                wanted.number = match number {
                    "" => None,
                    number => Some(number.parse().map_err(|_| invalid())?),
                };
                continue;
            }
            let mut inverted = false;
            for flag in word.chars() {
                let bits = match flag {
                    '-' | '!' => {
                        inverted = true;
                        continue;
                    }
                    'p' => kind::PIPE,
                    'l' => kind::LISTENER,
                    'c' => kind::FRONT | kind::BACK,
                    'f' => kind::FRONT,
                    'b' | 's' => kind::BACK,
                    _ => return Err(error("Invalid FD type")),
                };
                let set = if inverted { &mut excluded } else { &mut wanted.kinds };
                *set |= bits;
            }
        }
        if wanted.kinds == 0 {
            wanted.kinds = kind::ANY;
        }
        wanted.kinds &= !excluded;
        Ok(wanted)
    }

    fn accepts(self, number: u32, kind: u8) -> bool {
        self.number.is_none_or(|wanted| wanted == number) && self.kinds & kind != 0
    }
}

/// A socket from the system's list.
#[derive(Debug, Clone, PartialEq, Eq)]
enum ListedSocket {
    /// A TCP socket: its addresses, and whether it is listening.
    Tcp { local: SocketAddr, remote: SocketAddr, listens: bool },
    /// A UDP socket: its addresses. A remote port of 0 means that it is not connected.
    Udp { local: SocketAddr, remote: SocketAddr },
    /// A UNIX socket: its path, and whether it is listening.
    Unix { path: String, listens: bool },
}

/// Sockets by inode number.
fn sockets() -> HashMap<u64, ListedSocket> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    let mut all = HashMap::new();
    for name in ["tcp", "tcp6"] {
        all.extend(read(name).lines().skip(1).filter_map(tcp));
    }
    for name in ["udp", "udp6"] {
        all.extend(read(name).lines().skip(1).filter_map(udp));
    }
    all.extend(read("unix").lines().skip(1).filter_map(unix));
    all
}

/// Parses a line of `/proc/net/tcp` or `tcp6`.
fn tcp(line: &str) -> Option<(u64, ListedSocket)> {
    let mut words = line.split_ascii_whitespace().skip(1);
    let (local, remote) = (end(words.next()?)?, end(words.next()?)?);
    let listens = words.next()? == "0A";
    let inode = words.nth(5)?.parse().ok()?;
    Some((inode, ListedSocket::Tcp { local, remote, listens }))
}

/// Parses a line of `/proc/net/udp` or `udp6`, which have the same columns.
fn udp(line: &str) -> Option<(u64, ListedSocket)> {
    let (inode, socket) = tcp(line)?;
    let ListedSocket::Tcp { local, remote, .. } = socket else { return None };
    Some((inode, ListedSocket::Udp { local, remote }))
}

/// Parses an address in these files: native-endian words in hexadecimal.
fn end(text: &str) -> Option<SocketAddr> {
    let (address, port) = text.split_once(':')?;
    let words = address.as_bytes().chunks(8).map(|word| {
        let word = std::str::from_utf8(word).ok()?;
        Some(u32::from_str_radix(word, 16).ok()?.to_ne_bytes())
    });
    let bytes: Vec<u8> = words.collect::<Option<Vec<_>>>()?.concat();
    let ip = match bytes.len() {
        4 => IpAddr::from(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?)),
        16 => IpAddr::from(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?)).to_canonical(),
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

/// Parses a line of `/proc/net/unix`.
fn unix(line: &str) -> Option<(u64, ListedSocket)> {
    let mut words = line.split_ascii_whitespace().skip(3);
    let listens = u32::from_str_radix(words.next()?, 16).ok()? & 0x1_0000 != 0;
    let inode = words.nth(2)?.parse().ok()?;
    let path = words.collect::<Vec<_>>().join(" ");
    Some((inode, ListedSocket::Unix { path: final_name(&path).to_owned(), listens }))
}

/// Returns the final name of a UNIX socket. The kernel shows the name at binding, which had a temporary suffix (`net::listen`).
fn final_name(path: &str) -> &str {
    let before = path.strip_suffix(".tmp").and_then(|path| path.rsplit_once('.'));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    before.filter(|(_, pid)| is_number(pid)).map_or(path, |(name, _)| name)
}

/// Session data about a descriptor.
struct DescriptorFacts {
    /// Whether this is the server side.
    is_back: bool,
    text: String,
}

/// The descriptors of the sessions on all workers.
async fn of_sessions() -> HashMap<u32, DescriptorFacts> {
    let lists = on_every_worker(|| sessions::list(|_| true)).await;
    let mut known = HashMap::new();
    for entry in lists.into_iter().flatten() {
        let mut add = |number: i32, is_back: bool, text: String| {
            if let Ok(number) = u32::try_from(number) {
                known.insert(number, DescriptorFacts { is_back, text });
            }
        };
        let name = &entry.frontend.name;
        add(entry.client_fd, false, format!("sess={:06x} fe={name} st={}", entry.id, entry.activity.name()));
        if let Some(server) = &entry.server {
            add(
                entry.server_fd,
                true,
                format!("sess={:06x} px={} sv={}", entry.id, server.proxy, server.name),
            );
        }
    }
    known
}

/// `show fd`.
pub(crate) fn show(call: &mut Call<'_>) -> CommandReply {
    let view = call.runtime.view();
    let wanted = match DescriptorFilter::read(call.args, view.placement.groups.len()) {
        Ok(wanted) => wanted,
        Err(reply) => return reply,
    };
    CommandReply::Later(Box::pin(async move {
        let known = of_sessions().await;
        // Systems with many sockets have long lists.
        let made = tokio::task::spawn_blocking(move || list(&view, wanted, &known)).await;
        match made {
            Ok(Some(text)) => CommandReply::Text(text),
            _ => error("The list of file descriptors is not available."),
        }
    }))
}

fn list(
    view: &ConfigView,
    wanted: DescriptorFilter,
    known: &HashMap<u32, DescriptorFacts>,
) -> Option<String> {
    let (all, sockets) = (numbers()?, sockets());
    let mut out = String::new();
    for (number, target) in all {
        let (kind, text) = describe(view, number, &target, &sockets, known);
        if wanted.accepts(number, kind) {
            let _ = writeln!(out, "{number:>7} : {text}");
        }
    }
    Some(out)
}

/// The open descriptors and their targets.
fn numbers() -> Option<Vec<(u32, String)>> {
    let entries = std::fs::read_dir("/proc/self/fd").ok()?;
    let mut all: Vec<(u32, String)> = entries
        .flatten()
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            let target = std::fs::read_link(entry.path()).ok()?;
            Some((number, target.to_string_lossy().into_owned()))
        })
        // The descriptor of this listing is already closed.
        .filter(|(_, target)| !target.ends_with("/fd"))
        .collect();
    all.sort_unstable();
    Some(all)
}

/// The kind and the description of a descriptor.
fn describe(
    view: &ConfigView,
    number: u32,
    target: &str,
    sockets: &HashMap<u64, ListedSocket>,
    known: &HashMap<u32, DescriptorFacts>,
) -> (u8, String) {
    if target.starts_with("pipe:") {
        return (kind::PIPE, target.to_owned());
    }
    let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']')?.parse().ok());
    let Some(socket) = inode.and_then(|inode: u64| sockets.get(&inode)) else {
        return match known.get(&number) {
            Some(known) => of_session(known, target),
            None => (16, target.to_owned()),
        };
    };
    match socket {
        ListedSocket::Tcp { local, listens: true, .. } => {
            let family = if local.is_ipv4() { "ipv4" } else { "ipv6" };
            let owner = owner(view, &local.to_string(), local.port());
            (kind::LISTENER, format!("l.st=RDY {owner} fam={family} lport={}", local.port()))
        }
        ListedSocket::Udp { local, remote } => {
            let family = if local.is_ipv4() { "ipv4" } else { "ipv6" };
            match frontend_at(view, &local.to_string(), local.port()) {
                Some(owner) => {
                    let sessions = known.get(&number).map_or("", |_| " mux=QUIC");
                    (
                        kind::LISTENER,
                        format!("l.st=RDY {owner} fam={family} lport={}{sessions}", local.port()),
                    )
                }
                None => (16, format!("fam={family} udp lport={} rport={}", local.port(), remote.port())),
            }
        }
        ListedSocket::Unix { path, listens: true } => {
            let owner = owner(view, path, 0);
            (kind::LISTENER, format!("l.st=RDY {owner} fam=unix path={path}"))
        }
        ListedSocket::Tcp { local, remote, .. } => {
            let family = if local.is_ipv4() { "ipv4" } else { "ipv6" };
            let ends = format!("fam={family} lport={} rport={}", local.port(), remote.port());
            match known.get(&number) {
                Some(known) => of_session(known, &ends),
                None => match server_at(view, *remote) {
                    Some(server) => (kind::BACK, format!("back=1 {server} st=idle {ends}")),
                    None => (kind::FRONT, format!("back=0 {ends}")),
                },
            }
        }
        ListedSocket::Unix { path, .. } => match known.get(&number) {
            Some(known) => of_session(known, "fam=unix"),
            None => (kind::FRONT, format!("back=0 fam=unix {path}").trim_end().to_owned()),
        },
    }
}

fn of_session(known: &DescriptorFacts, ends: &str) -> (u8, String) {
    let DescriptorFacts { is_back, text } = known;
    let kind = if *is_back { kind::BACK } else { kind::FRONT };
    (kind, format!("back={} {text} {ends}", u8::from(*is_back)))
}

/// The proxy that listens on this address; `GLOBAL` for sockets of the process.
fn owner(view: &ConfigView, address: &str, port: u16) -> String {
    frontend_at(view, address, port).unwrap_or_else(|| "fe=GLOBAL".to_owned())
}

/// The proxy that listens on this address, if there is one.
fn frontend_at(view: &ConfigView, address: &str, port: u16) -> Option<String> {
    for proxy in &view.proxies {
        let listeners = proxy.state.listeners.load();
        let ends = |own: &str| {
            let any = own.strip_prefix('*').or(own.strip_prefix("0.0.0.0")).or(own.strip_prefix("[::]"));
            own == address || port > 0 && any == Some(&format!(":{port}"))
        };
        if listeners.iter().any(|listener| ends(&listener.address)) {
            return Some(format!("fe={}", proxy.state.name));
        }
    }
    None
}

/// The server at an address: an idle connection to it.
fn server_at(view: &ConfigView, remote: SocketAddr) -> Option<String> {
    view.proxies.iter().find_map(|proxy| {
        let servers = proxy.state.servers.load();
        let at = |server: &&std::sync::Arc<state::Server>| {
            matches!(&**server.address.load(), ServerAddress::Ip(address) if *address == remote)
        };
        let server = servers.iter().find(at)?;
        Some(format!("px={} sv={}", proxy.state.name, server.name))
    })
}

/// `debug dev fd`: the open descriptors as described by the system.
pub(crate) fn raw(call: &mut Call<'_>) -> CommandReply {
    if !call.args.is_empty() {
        return error("This command takes no argument.");
    }
    let Some(all) = numbers() else { return error("The list of file descriptors is not available.") };
    let mut out = String::new();
    for (number, target) in all {
        let Ok(facts) = std::fs::metadata(format!("/proc/self/fd/{number}")) else { continue };
        let kind = match facts.mode() & 0o170_000 {
            0o010_000 => "pipe",
            0o020_000 => "chr.",
            0o040_000 => "dir.",
            0o060_000 => "blk.",
            0o100_000 => "file",
            0o140_000 => "sock",
            _ => "????",
        };
        let _ = writeln!(
            out,
            "{number:>5} type={kind} mod={:04o} dev={:#x} siz={:#x} uid={} gid={} fs={:#x} ino={:#x} {target}",
            facts.mode() & 0o7777,
            facts.rdev(),
            facts.size(),
            facts.uid(),
            facts.gid(),
            facts.dev(),
            facts.ino()
        );
    }
    CommandReply::Text(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(line: &str) -> Option<DescriptorFilter> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        DescriptorFilter::read(&words, 2).ok()
    }

    #[test]
    fn flags_select_kinds_and_a_sign_inverts_the_following() {
        for (line, kinds, number) in [
            ("", kind::ANY, None),
            ("l", kind::LISTENER, None),
            ("-l", kind::ANY & !kind::LISTENER, None),
            ("c!f", kind::BACK, None),
            ("s", kind::BACK, None),
            ("-p c", kind::FRONT | kind::BACK, None),
            ("5", kind::ANY, Some(5)),
            ("/5", kind::ANY, Some(5)),
            ("2/5", kind::ANY, Some(5)),
            ("1/", kind::ANY, None),
        ] {
            assert_eq!(wanted(line), Some(DescriptorFilter { kinds, number }), "{line}");
        }
        for line in ["x", "-x", "3/5", "5x", "1/y"] {
            assert_eq!(wanted(line), None, "{line}");
        }
    }

    #[test]
    fn system_socket_lists_are_parsed() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0 100";
        let (local, remote) = ("127.0.0.1:8080".parse().unwrap(), "0.0.0.0:0".parse().unwrap());
        assert_eq!(tcp(line), Some((4711, ListedSocket::Tcp { local, remote, listens: true })));
        let line = "   1: 00000000000000000000000001000000:0050 0000000000000000FFFF00000100007F:0016 01 0:0 0:0 0 0 0 7 1";
        let (local, remote) = ("[::1]:80".parse().unwrap(), "127.0.0.1:22".parse().unwrap());
        assert_eq!(tcp(line), Some((7, ListedSocket::Tcp { local, remote, listens: false })));
        let line = "  2: 0100007F:01BB 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4712 2 0 0";
        let (local, remote) = ("127.0.0.1:443".parse().unwrap(), "0.0.0.0:0".parse().unwrap());
        assert_eq!(udp(line), Some((4712, ListedSocket::Udp { local, remote })));
        let line = "0000000000000000: 00000002 00000000 00010000 0001 01 99 /run/a b.sock";
        let path = "/run/a b.sock".to_owned();
        assert_eq!(unix(line), Some((99, ListedSocket::Unix { path, listens: true })));
        for (shown, name) in
            [("/a.42.tmp", "/a"), ("/a.tmp", "/a.tmp"), ("/a.b.tmp", "/a.b.tmp"), ("/a.42", "/a.42")]
        {
            assert_eq!(final_name(shown), name);
        }
        for line in ["", "x", "0: 1:2", "0: 0100007F:1F90 00:0 0A a b c d e"] {
            assert_eq!((tcp(line), udp(line), unix(line)), (None, None, None), "{line}");
        }
    }
}
