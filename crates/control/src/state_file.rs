//! Server states from a file (`server-state-file`, `load-server-state-from-file`): what `show servers state` printed
//! before a restart is put back. Pure but for the servers it changes; the binary reads the file at boot.

use base::clock::now_ms;
use state::server::{Operational, ServerAddress};
use state::{Admin, Server};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;

use crate::view::View;

/// One line of the format's version 1, as far as it is put back.
struct Line<'a> {
    backend: &'a str,
    backend_id: u32,
    server: &'a str,
    server_id: u32,
    address: Option<IpAddr>,
    operational: u8,
    admin: u32,
    user_weight: u32,
    initial_weight: u32,
    since: u64,
    level: u32,
    /// The host name, unless there was none.
    fqdn: Option<&'a str>,
    port: u16,
    /// The name of the SRV records, unless there were none.
    srv_record: Option<&'a str>,
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        // Version 1 has grown at its end; what is read here was always there.
        if words.len() < 19 {
            return None;
        }
        Some(Self {
            backend_id: words[0].parse().ok()?,
            backend: words[1],
            server_id: words[2].parse().ok()?,
            server: words[3],
            address: words[4].parse().ok(),
            operational: words[5].parse().ok()?,
            admin: words[6].parse().ok()?,
            user_weight: words[7].parse().ok()?,
            initial_weight: words[8].parse().ok()?,
            since: words[9].parse().ok()?,
            level: words[12].parse().ok()?,
            fqdn: Some(words[17]).filter(|name| *name != "-"),
            port: words[18].parse().ok()?,
            srv_record: words.get(19).copied().filter(|name| *name != "-"),
        })
    }

    /// Puts back the host name that an SRV record or an operator gave the server, and the record's port. The address itself
    /// is what `init-addr` makes of it.
    fn apply_name(&self, server: &Server, now: u64) {
        let Some(fqdn) = self.fqdn else { return };
        if let Some(own) = server.srv_record.get() {
            if self.srv_record != Some(own) {
                return;
            }
            server.set_fqdn(Some(fqdn));
            server.service_port.store(self.port.into(), Relaxed);
            if let ServerAddress::Ip(address) = &**server.address.load() {
                server.set_address(ServerAddress::Ip(SocketAddr::new(address.ip(), self.port)));
            }
        } else if self.admin & Admin::FQDN_SET != 0 && server.resolved.load(Relaxed) {
            server.set_fqdn(Some(fqdn));
            server.change_admin(Admin::FQDN_SET, 0, now);
        }
    }

    /// Puts the state back. Of the administrative states only those set by hand; the weight only if the
    /// configuration's is still the one it was set against; nothing operational without checks.
    fn apply(&self, server: &Server) {
        let now = now_ms();
        if let (Some(ip), ServerAddress::Ip(own)) = (self.address, &**server.address.load())
            && own.ip().is_unspecified()
        {
            let port = if self.port > 0 { self.port } else { own.port() };
            server.set_address(ServerAddress::Ip(SocketAddr::new(ip, port)));
        }
        self.apply_name(server, now);
        if self.initial_weight == server.initial_weight {
            server.set_weight(self.user_weight);
        }
        server.change_admin(self.admin & (Admin::FORCED_MAINT | Admin::FORCED_DRAIN), 0, now);
        // In maintenance the state is shown as stopped whatever it was.
        let known = server.health.configured.load(Relaxed) || server.checked.load(Relaxed);
        if known && !Admin(self.admin).in_maintenance() {
            let state = match self.operational {
                0 => Operational::Stopped,
                3 => Operational::Stopping,
                _ => Operational::Running,
            };
            server.health.level.store(self.level, Relaxed);
            server.set_operational(state, now);
        }
        server.changed_at.store(now.saturating_sub(self.since.saturating_mul(1000)), Relaxed);
    }
}

/// Puts the states in `text` back into the servers of `view`, or of the one backend named. Lines about what no longer
/// exists are passed over. How many servers were found.
///
/// # Errors
/// A message when the first line is not a version this reads.
pub fn load(text: &str, view: &View, backend: Option<&str>) -> Result<usize, String> {
    let mut lines = text.lines();
    match lines.next().map(str::trim) {
        Some("1") => {}
        other => {
            let version = other.unwrap_or_default();
            return Err(format!("the server states begin with version '{version}', where only 1 is known"));
        }
    }
    let mut found = 0;
    for line in lines.filter(|line| !line.starts_with('#') && !line.trim().is_empty()) {
        let Some(line) = Line::parse(line) else { continue };
        if backend.is_some_and(|backend| backend != line.backend) {
            continue;
        }
        let proxy = view.backend(line.backend).or_else(|| view.backend(&format!("#{}", line.backend_id)));
        let server = proxy.and_then(|proxy| {
            let by_id = || proxy.state.server(&format!("#{}", line.server_id));
            proxy.state.server(line.server).or_else(by_id)
        });
        if let Some(server) = server {
            line.apply(&server);
            found += 1;
        }
    }
    Ok(found)
}
