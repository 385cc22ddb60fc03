//! Where checks and agents ask: `set server … check-addr`, `check-port`, `agent-addr`, `agent-port` (management manual, 9.3).
//! A port of 0 is the server's own. Nothing changes where any word is wrong.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use state::Server;
use state::server::Health;

use crate::command::{Call, Reply, error, warning};

/// What a command asks for: an address, a port, or both.
struct Asked {
    address: Option<String>,
    port: Option<u16>,
}

impl Asked {
    /// Reads `check-addr <address> [port <port>]` and its kin.
    fn read(call: &Call<'_>) -> Result<Self, Reply> {
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

fn port(text: &str) -> Result<u16, Reply> {
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

/// `check-addr` takes an address as it is.
pub(crate) fn of_check(call: &Call<'_>, server: &Server) -> Reply {
    let asked = match Asked::read(call) {
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
    Reply::Done
}

/// `agent-addr` may be a name, which the system's resolver is asked for.
pub(crate) fn of_agent(call: &Call<'_>, server: &Arc<Server>) -> Reply {
    let Asked { address, port } = match Asked::read(call) {
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
            Reply::Later(Box::pin(async move {
                match tokio::net::lookup_host((name.as_str(), 0)).await.ok().and_then(|mut all| all.next()) {
                    Some(found) => {
                        apply(&server.agent, Some(found.ip()), port);
                        Reply::Done
                    }
                    None => warning(format!("invalid addr '{name}'")),
                }
            }))
        }
        (_, address) => {
            apply(&server.agent, address.and_then(Result::ok), port);
            Reply::Done
        }
    }
}
