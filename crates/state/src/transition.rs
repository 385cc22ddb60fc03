//! What follows when a server's state changes: whether its backend can still serve, and how it is told in logs.
//!
//! The words are HAProxy's, which tools look for. Health checks and the runtime socket call this; sending the
//! messages is theirs.

use std::sync::atomic::Ordering::Relaxed;

use crate::server::Operational;
use crate::{Admin, Proxy, Server};

/// A message: syslog level (0 emerg, 1 alert, 5 notice) and text.
pub type Note = (u8, String);

/// Emergency: a backend without servers.
pub const EMERGENCY: u8 = 0;
/// A server went down.
pub const ALERT: u8 = 1;
/// Anything else that changed.
pub const NOTICE: u8 = 5;

/// Active and backup servers that may get requests.
pub fn online(proxy: &Proxy) -> (usize, usize) {
    let servers = proxy.servers.load();
    let count = |backup| servers.iter().filter(|s| s.backup == backup && s.effective_weight() > 0).count();
    (count(false), count(true))
}

/// Compares the backend's ability to serve with what was last noted; the message when it lost its last server.
pub fn refresh_backend(proxy: &Proxy, now_ms: u64) -> Option<Note> {
    let down = proxy.total_weight() == 0 && !proxy.servers.load().is_empty();
    if proxy.down.swap(down, Relaxed) == down {
        return None;
    }
    proxy.changed_at.store(now_ms, Relaxed);
    if !down {
        proxy.queue.wake_all();
        return None;
    }
    proxy.downs.fetch_add(1, Relaxed);
    let kind = if proxy.is_frontend { "proxy" } else { "backend" };
    Some((EMERGENCY, format!("{kind} {} has no server available!", proxy.name)))
}

/// Names a server at the start of a message.
pub fn subject(server: &Server) -> String {
    let kind = if server.backup { "Backup Server" } else { "Server" };
    format!("{kind} {}/{}", server.proxy, server.name)
}

/// A server is no longer usable: `event` such as `is DOWN`, `why` such as `, reason: …` or nothing; `requeued`
/// requests that waited for it go elsewhere.
pub fn left(proxy: &Proxy, server: &Server, event: &str, why: &str, requeued: u32) -> String {
    let (active, backup) = online(proxy);
    let on_backup = if active == 0 && backup > 0 { " Running on backup." } else { "" };
    format!(
        "{} {event}{why}. {active} active and {backup} backup servers left.{on_backup} {} sessions active, {requeued} \
         requeued, {} remaining in queue.",
        subject(server),
        server.serving(),
        proxy.queue.len()
    )
}

/// A server is usable again, or only for what is bound to it: `is UP`, `is stopping`, `enters drain state`.
pub fn joined(proxy: &Proxy, server: &Server, event: &str, why: &str, requeued: u32) -> String {
    let (active, backup) = online(proxy);
    let on_backup = if active == 0 && backup > 0 { " Running on backup." } else { "" };
    format!(
        "{} {event}{why}. {active} active and {backup} backup servers online.{on_backup} {requeued} sessions requeued, \
         {} total in queue.",
        subject(server),
        proxy.queue.len()
    )
}

/// A change of administrative flags.
#[derive(Debug, Clone, Copy)]
pub struct Administrative<'a> {
    /// The flags before.
    pub before: Admin,
    /// The flags now.
    pub after: Admin,
    /// Whether checks had found the server down before.
    pub was_down: bool,
    /// Requests that waited for it.
    pub requeued: u32,
    /// ` via be/s1` when inherited from a tracked server.
    pub via: &'a str,
}

/// What is told of a change of administrative flags, if anything.
pub fn administrative(proxy: &Proxy, server: &Server, change: &Administrative<'_>) -> Option<Note> {
    let Administrative { before, after, was_down, requeued, via } = *change;
    let subject = subject(server);
    Some(match (before.in_maintenance(), after.in_maintenance()) {
        (false, true) if was_down => (NOTICE, format!("{subject} was DOWN and now enters maintenance{via}.")),
        (false, true) => {
            (ALERT, left(proxy, server, &format!("is going DOWN for maintenance{via}"), "", requeued))
        }
        (true, false) => {
            let state = if server.operational() == Operational::Stopped { "DOWN" } else { "UP" };
            let ready = if after.draining() { "DRAIN" } else { "READY" };
            let forced = if via.is_empty() { "forced " } else { "" };
            (NOTICE, format!("{subject} is {state}/{ready} (leaving {forced}maintenance)."))
        }
        (true, true) => return None,
        (false, false) => match (before.draining(), after.draining()) {
            (false, true) => {
                (NOTICE, joined(proxy, server, &format!("enters drain state{via}"), "", requeued))
            }
            (true, false) => {
                let state = if was_down { "DOWN" } else { "UP" };
                (NOTICE, format!("{subject} is {state} (leaving forced drain)."))
            }
            _ => return None,
        },
    })
}

/// A server's name has an address again: what is told when that brings it out of maintenance.
pub fn resolves_again(server: &Server) -> String {
    let fqdn = server.fqdn.load();
    let name = fqdn.as_ref().map_or("", |name| name);
    let state = if server.operational() == Operational::Stopped { "DOWN" } else { "UP" };
    let ready = if server.admin().draining() { "DRAIN" } else { "READY" };
    format!("{} ('{name}') is {state}/{ready} (resolves again).", subject(server))
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::*;
    use crate::proxy::{Mode, ProxySeed};
    use crate::server::{ServerAddress, ServerSeed};

    #[test]
    fn a_backend_is_told_lost_once_and_found_again() {
        let proxy = Proxy::new(ProxySeed {
            id: 3,
            name: "be".into(),
            mode: Mode::Http,
            is_frontend: false,
            is_backend: true,
            maxconn: 0,
            session_limit: 0,
            disabled: false,
        });
        let server = |name: &str, backup| {
            Server::new(ServerSeed {
                id: 1,
                name: name.into(),
                proxy: "be".into(),
                backup,
                maxconn: 0,
                minconn: 0,
                maxqueue: 0,
                address: ServerAddress::Ip(SocketAddr::from(([127, 0, 0, 1], 80))),
                weight: 1,
                disabled: false,
                checked: true,
            })
        };
        let (active, backup) = (server("a", false), server("b", true));
        proxy.servers.store(Arc::new(vec![active.clone(), backup.clone()]));
        assert_eq!(refresh_backend(&proxy, 1), None);
        active.set_operational(Operational::Stopped, 5);
        assert_eq!(refresh_backend(&proxy, 5), None);
        assert_eq!(
            left(&proxy, &active, "is DOWN", ", reason: x", 2),
            "Server be/a is DOWN, reason: x. 0 active and 1 backup servers left. Running on backup. \
             0 sessions active, 2 requeued, 0 remaining in queue."
        );
        backup.set_operational(Operational::Stopped, 6);
        assert_eq!(
            refresh_backend(&proxy, 6),
            Some((EMERGENCY, "backend be has no server available!".into()))
        );
        assert_eq!(refresh_backend(&proxy, 7), None);
        assert_eq!((proxy.downs.load(Relaxed), proxy.changed_at.load(Relaxed)), (1, 6));
        active.set_operational(Operational::Running, 8);
        assert_eq!(refresh_backend(&proxy, 8), None);
        assert!(!proxy.down.load(Relaxed));
        assert_eq!(
            joined(&proxy, &active, "is UP", "", 0),
            "Server be/a is UP. 1 active and 0 backup servers online. 0 sessions requeued, 0 total in queue."
        );
    }
}
