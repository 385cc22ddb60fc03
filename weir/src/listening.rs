//! Messages about listening addresses: advice if one cannot be bound, and the list of addresses for a start on a terminal.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use plan::bind::BindAddress;
use plan::{Bind, Plan};

use crate::listeners;

/// The maximum number of addresses in a list.
const MOST: usize = 12;

/// All `bind` lines of enabled proxies with the names of their proxies, and the runtime sockets.
fn all(plan: &Plan) -> impl Iterator<Item = (&str, &Bind)> {
    let runtime = plan.global.stats_sockets.iter().map(|bind| ("runtime socket", bind));
    let enabled = plan.proxies.iter().filter(|proxy| !proxy.disabled);
    runtime.chain(enabled.flat_map(|proxy| proxy.binds.iter().map(|bind| (&*proxy.state.name, bind))))
}

/// Returns advice for the addresses that could not be bound, according to the lines in `failures`: the process that uses the
/// address, or the missing privilege. Identical advice for several addresses is returned once.
pub(crate) fn advice(plan: &Plan, failures: &str) -> Vec<String> {
    let mut advice = Vec::new();
    for (_, bind) in all(plan) {
        let place = format!("[{}]", bind.place);
        let Some(failure) = failures.lines().find(|line| line.contains(&place)) else { continue };
        let (address, table) = match bind.address {
            BindAddress::Ip(address) => (address, "tcp"),
            BindAddress::Udp(address) | BindAddress::Quic(address) => (address, "udp"),
            _ => continue,
        };
        let text = if failure.contains("(Address already in use") {
            in_use(address, table)
        } else if failure.contains("(Permission denied") && address.port() < 1024 {
            Some(privileged())
        } else if failure.contains("(Cannot assign requested address") {
            Some(format!(
                "no interface has the address {}: add the address, or set the sysctl net.ipv4.ip_nonlocal_bind to 1",
                address.ip()
            ))
        } else {
            None
        };
        advice.extend(text.filter(|text| !advice.contains(text)));
    }
    advice
}

fn privileged() -> String {
    let program = crate::messages::note_executable();
    format!(
        "ports below 1024 need a capability: run `setcap cap_net_bind_service=+ep {program}`, set AmbientCapabilities= in the \
         systemd unit, or start the process as root with `user` in the global section"
    )
}

/// The process that holds an address.
fn in_use(address: SocketAddr, table: &str) -> Option<String> {
    let inodes = inodes(address, table);
    if inodes.is_empty() {
        return None;
    }
    let port = address.port();
    match holder(&inodes) {
        Some((pid, name)) => Some(format!("port {port} is in use by process {pid} ({name})")),
        None => Some(format!(
            "port {port} is in use by a process of another user: `ss -lpn 'sport = :{port}'` as root names it"
        )),
    }
}

/// The inodes of the sockets that listen on the port of `address`, on its address or on all addresses.
fn inodes(address: SocketAddr, table: &str) -> Vec<u64> {
    let mut found = Vec::new();
    for suffix in ["", "6"] {
        let text = std::fs::read_to_string(format!("/proc/net/{table}{suffix}")).unwrap_or_default();
        found.extend(text.lines().skip(1).filter_map(|line| listening(line, address, table == "tcp")));
    }
    found
}

/// The inode in a line of the kernel's table of sockets, if the socket conflicts with `address`.
fn listening(line: &str, address: SocketAddr, is_tcp: bool) -> Option<u64> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (ip, port) = fields.get(1)?.split_once(':')?;
    // In TCP, 0A is LISTEN.
    let listens = !is_tcp || fields.get(3) == Some(&"0A");
    if !listens || u16::from_str_radix(port, 16) != Ok(address.port()) {
        return None;
    }
    let is_any = ip.bytes().all(|digit| digit == b'0');
    let is_same = ip_of(ip).is_some_and(|ip| ip.to_canonical() == address.ip().to_canonical());
    (is_any || is_same || address.ip().is_unspecified()).then(|| fields.get(9)?.parse().ok())?
}

/// Parses an address in the kernel's table: words in host order, in hexadecimal.
fn ip_of(digits: &str) -> Option<IpAddr> {
    let mut bytes = Vec::with_capacity(16);
    for at in (0..digits.len()).step_by(8) {
        bytes.extend(u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?.to_ne_bytes());
    }
    if let Ok(four) = <[u8; 4]>::try_from(&bytes[..]) {
        return Some(four.into());
    }
    <[u8; 16]>::try_from(&bytes[..]).ok().map(IpAddr::from)
}

/// The ID and the name of a process that has one of these sockets and can be inspected.
fn holder(inodes: &[u64]) -> Option<(u32, String)> {
    let targets: Vec<String> = inodes.iter().map(|inode| format!("socket:[{inode}]")).collect();
    let has_it = |descriptor: &Path| {
        std::fs::read_link(descriptor)
            .is_ok_and(|target| targets.iter().any(|wanted| target.as_os_str() == wanted.as_str()))
    };
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        let Ok(descriptors) = std::fs::read_dir(entry.path().join("fd")) else { continue };
        if descriptors.flatten().any(|descriptor| has_it(&descriptor.path())) {
            let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            return Some((pid, name.trim().to_owned()));
        }
    }
    None
}

/// Returns a line for each address of the plan, for a person who starts the program on a terminal.
pub(crate) fn list(plan: &Plan) -> Vec<String> {
    let shown = |(name, bind): (&str, &Bind)| {
        let scheme = match &bind.address {
            BindAddress::Quic(_) => "QUIC ",
            _ if bind.tls.is_some() => "TLS ",
            _ => "",
        };
        format!("{name} listens on {scheme}{} ({})", listeners::show(&bind.address), bind.place)
    };
    let mut lines: Vec<String> = all(plan).map(shown).collect();
    if lines.len() > MOST {
        let more = lines.len() - MOST;
        lines.truncate(MOST);
        lines.push(format!("{more} more addresses are not shown"));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_the_kernel_table_are_matched_by_address_and_state() {
        let line = |local: &str, state: &str| {
            format!(
                "  0: {local} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000     0        0 4711 1"
            )
        };
        let address: SocketAddr = "127.0.0.1:8080".parse().unwrap();
        let local = format!("{:08X}:1F90", u32::from_ne_bytes([127, 0, 0, 1]));
        assert_eq!(listening(&line(&local, "0A"), address, true), Some(4711));
        assert_eq!(listening(&line("00000000:1F90", "0A"), address, true), Some(4711));
        assert_eq!(
            listening(&line("00000000000000000000000000000000:1F90", "0A"), address, true),
            Some(4711)
        );
        assert_eq!(listening(&line(&local, "01"), address, true), None, "a connection");
        assert_eq!(listening(&line(&local, "07"), address, false), Some(4711), "a UDP socket");
        let other = format!("{:08X}:1F90", u32::from_ne_bytes([127, 0, 0, 2]));
        assert_eq!(listening(&line(&other, "0A"), address, true), None);
        assert_eq!(listening(&line("00000000:1F91", "0A"), address, true), None);
    }

    #[test]
    fn the_holder_of_a_port_is_this_process() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let text = in_use(listener.local_addr().unwrap(), "tcp").unwrap();
        assert!(text.contains(&format!("process {} (", std::process::id())), "{text}");
    }
}
