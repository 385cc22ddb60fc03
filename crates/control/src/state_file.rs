//! Server states from a file (`server-state-file`, `load-server-state-from-file`): what `show servers state` printed
//! before a restart is put back. Pure but for the servers it changes; the binary reads the file at boot.

use base::clock::now_ms;
use state::server::{CHECK_STATUSES, CheckResult, Operational, ServerAddress};
use state::{Admin, Server};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
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
    /// The number of the last check's result.
    check_status: u32,
    level: u32,
    /// Whether checks and the agent were there and had been turned off by hand.
    checks_off: bool,
    agent_off: bool,
    /// The host name, unless there was none.
    fqdn: Option<&'a str>,
    port: u16,
    /// The name of the SRV records, unless there were none.
    srv_record: Option<&'a str>,
    /// Where checks and the agent asked, as far as it was told.
    check: (Option<IpAddr>, u16),
    agent: (Option<IpAddr>, u16),
}

/// Whether a state of checks, a set of flags, says that they are configured but not enabled.
fn is_off(state: &str) -> Option<bool> {
    state.parse::<u32>().ok().map(|state| state & 6 == 2)
}

impl<'a> Line<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let words: Vec<&str> = text.split_ascii_whitespace().collect();
        // Version 1 has grown at its end; what is read here was always there.
        if words.len() < 19 {
            return None;
        }
        let place = |address: usize, port: usize| {
            let port = words.get(port).and_then(|word| word.parse().ok()).unwrap_or(0);
            (words.get(address).and_then(|word| word.parse().ok()), port)
        };
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
            check_status: words[10].parse().ok()?,
            level: words[12].parse().ok()?,
            checks_off: is_off(words[13])?,
            agent_off: is_off(words[14])?,
            fqdn: Some(words[17]).filter(|name| *name != "-"),
            port: words[18].parse().ok()?,
            srv_record: words.get(19).copied().filter(|name| *name != "-"),
            check: place(22, 21),
            agent: place(23, 24),
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

    /// What an administrator did to the server. Where the configuration now says `disabled` and did not, or no longer does, that counts
    /// and not what was done; draining that came from a weight of 0 ends with it.
    fn apply_admin(&self, server: &Server, now: u64) {
        let was = |flag| self.admin & flag != 0;
        let disabled = server.admin().0 & Admin::CONFIGURED_MAINT != 0;
        let maintenance =
            if was(Admin::CONFIGURED_MAINT) == disabled { was(Admin::FORCED_MAINT) } else { disabled };
        let (set, clear) = if maintenance { (Admin::FORCED_MAINT, 0) } else { (0, Admin::FORCED_MAINT) };
        server.change_admin(set, clear, now);
        if !maintenance && was(Admin::FORCED_DRAIN) && (self.initial_weight > 0 || server.initial_weight == 0)
        {
            server.change_admin(Admin::FORCED_DRAIN, 0, now);
        }
    }

    /// What checks found, whether they run, and where they ask.
    fn apply_checks(&self, server: &Server, now: u64) {
        let known = server.health.configured.load(Relaxed) || server.checked.load(Relaxed);
        // In maintenance the state is shown as stopped whatever it was.
        if known && !Admin(self.admin).in_maintenance() {
            let state = match self.operational {
                0 => Operational::Stopped,
                3 => Operational::Stopping,
                _ => Operational::Running,
            };
            server.health.level.store(self.level, Relaxed);
            let seen = CHECK_STATUSES.iter().find(|row| row.2 == self.check_status && self.check_status > 1);
            if let Some(&(status, ..)) = seen {
                server.health.last.store(Arc::new(CheckResult { status, ..CheckResult::default() }));
            }
            server.set_operational(state, now);
        }
        let parts = [
            (&server.health, &server.checked, self.checks_off, self.check),
            (&server.agent, &server.agent_checked, self.agent_off, self.agent),
        ];
        for (health, enabled, off, (address, port)) in parts {
            if !health.configured.load(Relaxed) {
                continue;
            }
            if let Some(address) = address {
                health.address.store(Some(Arc::new(address)));
            }
            if port > 0 {
                health.port.store(port.into(), Relaxed);
            }
            if off {
                enabled.store(false, Relaxed);
            }
        }
    }

    /// Puts the state back; the weight only if the configuration's is still the one it was set against, nothing operational without
    /// checks.
    fn apply(&self, server: &Server) {
        let now = now_ms();
        if let (Some(ip), ServerAddress::Ip(own)) = (self.address, &**server.address.load())
            && own.ip().is_unspecified()
        {
            let own_port = self.port == 0 || server.port_offset().is_some();
            let port = if own_port { own.port() } else { self.port };
            server.set_address(ServerAddress::Ip(SocketAddr::new(ip, port)));
        }
        self.apply_name(server, now);
        if self.initial_weight == server.initial_weight {
            server.set_weight(self.user_weight);
        }
        self.apply_admin(server, now);
        self.apply_checks(server, now);
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
