//! The addresses of servers, checks and agents: `set server … addr`, `check-addr`, `check-port`, `agent-addr`, `agent-port`
//! (management manual, 9.3). If any word is wrong, nothing is changed.

use std::fmt::{self, Display};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use state::Server;
use state::server::{Health, ServerAddress};

use crate::invocation::{Call, CommandReply, error, warning};

/// A server's port: a fixed port, or an offset to the client's destination port.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Port {
    Own(u16),
    Mapped(i32),
}

impl Port {
    fn parse(text: &str) -> Option<Self> {
        match text.starts_with(['+', '-']) {
            true => text.parse().ok().filter(|offset| (-65_535..=65_535).contains(offset)).map(Self::Mapped),
            false => text.parse().ok().map(Self::Own),
        }
    }
}

impl Display for Port {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Own(port) => write!(f, "{port}"),
            Self::Mapped(offset) => write!(f, "{offset:+}"),
        }
    }
}

const MAP_AND_CHECKS: &str = "can't change <port> to port map because it is incompatible with current health check port \
    configuration (use 'port' statement from the 'server' directive).";

/// `addr <address> [port <port>]`.
pub(crate) fn of_server(call: &Call<'_>, server: &Server) -> CommandReply {
    let text = call.arg(2);
    if text.is_empty() {
        return error("set server <b>/<s> addr requires an address and optionally a port.");
    }
    let old = server.address.load();
    let ServerAddress::Ip(old) = **old else {
        return warning(
            "Update for the current server address family is only supported through configuration file.",
        );
    };
    let Ok(ip) = text.parse::<IpAddr>() else {
        return warning(format!("Invalid addr '{text}'"));
    };
    let before = server.port_offset().map_or(Port::Own(old.port()), Port::Mapped);
    let port = match (call.arg(3), Port::parse(call.arg(4))) {
        ("", _) => before,
        ("port", Some(port)) => port,
        ("port", None) => return warning(format!("problem converting port '{}' to an int", call.arg(4))),
        (word, _) => return error(format!("unexpected argument '{word}'; 'port' was expected")),
    };
    // A check needs a fixed port.
    let checked = server.health.configured.load(Relaxed) && server.health.port.load(Relaxed) == 0;
    if checked && port != before && matches!(port, Port::Mapped(_)) {
        return warning(MAP_AND_CHECKS);
    }
    let mut changes = Vec::new();
    if ip != old.ip() {
        changes.push(format!("IP changed from '{}' to '{ip}'", old.ip()));
    }
    if port != before {
        changes.push(format!("port changed from '{before}' to '{port}'"));
    }
    if changes.is_empty() {
        return warning("nothing changed");
    }
    let (own, offset) = match port {
        Port::Own(port) => (port, None),
        Port::Mapped(offset) => (0, Some(offset)),
    };
    server.set_port_offset(offset);
    server.set_address(ServerAddress::Ip(SocketAddr::new(ip, own)));
    warning(format!("{} by 'stats socket command'", changes.join(", ")))
}

/// The requested address, port, or both. Port 0 stands for the server's own port.
struct AddressChange {
    address: Option<String>,
    port: Option<u16>,
}

impl AddressChange {
    /// Parses `check-addr <address> [port <port>]` and similar commands.
    fn read(call: &Call<'_>) -> Result<Self, CommandReply> {
        let (option, value) = (call.arg(1), call.arg(2));
        let wants_port = option.ends_with("-port");
        if value.is_empty() {
            let what = if wants_port { "a port" } else { "an address and optionally a port" };
            return Err(error(format!("set server <b>/<s> {option} requires {what}.")));
        }
        if wants_port {
            return Ok(Self { address: None, port: Some(port(value)?) });
        }
        let port = if call.arg(3) == "port" { Some(port(call.arg(4))?) } else { None };
        Ok(Self { address: Some(value.to_owned()), port })
    }
}

fn port(text: &str) -> Result<u16, CommandReply> {
    match text.parse::<i64>() {
        Ok(port) => u16::try_from(port).map_err(|_| warning("provided port is invalid")),
        Err(_) => Err(warning("provided port is not an integer")),
    }
}

fn apply(health: &Health, address: Option<IpAddr>, port: Option<u16>) {
    if let Some(address) = address {
        health.address.store(Some(Arc::new(address)));
    }
    if let Some(port) = port {
        health.port.store(port.into(), Relaxed);
    }
}

/// `check-addr` accepts an IP address only.
pub(crate) fn of_check(call: &Call<'_>, server: &Server) -> CommandReply {
    let asked = match AddressChange::read(call) {
        Ok(_) if !server.checked.load(Relaxed) => {
            return warning("health checks are not enabled on this server");
        }
        Ok(asked) => asked,
        Err(reply) => return reply,
    };
    let address = match asked.address.as_deref().map(|text| (text, text.parse())) {
        None => None,
        Some((_, Ok(address))) => Some(address),
        Some((text, Err(_))) => return warning(format!("invalid addr '{text}'")),
    };
    apply(&server.health, address, asked.port);
    CommandReply::Done
}

/// `agent-addr` may be a name, which the system's resolver looks up.
pub(crate) fn of_agent(call: &Call<'_>, server: &Arc<Server>) -> CommandReply {
    let AddressChange { address, port } = match AddressChange::read(call) {
        Ok(_) if !server.agent_checked.load(Relaxed) => {
            return warning("agent checks are not enabled on this server");
        }
        Ok(asked) => asked,
        Err(reply) => return reply,
    };
    let known = address.as_deref().map(str::parse::<IpAddr>);
    match (address, known) {
        (Some(name), Some(Err(_))) => {
            let server = server.clone();
            CommandReply::Later(Box::pin(async move {
                match tokio::net::lookup_host((name.as_str(), 0)).await.ok().and_then(|mut all| all.next()) {
                    Some(found) => {
                        apply(&server.agent, Some(found.ip()), port);
                        CommandReply::Done
                    }
                    None => warning(format!("invalid addr '{name}'")),
                }
            }))
        }
        (_, address) => {
            apply(&server.agent, address.and_then(Result::ok), port);
            CommandReply::Done
        }
    }
}
