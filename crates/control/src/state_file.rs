//! Restores server states from a file (`server-state-file`, `load-server-state-from-file`): the output of `show servers state`
//! before a restart. Pure except for changes to the servers; the binary reads the file at startup.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::clock::now_ms;
use state::saved_state::{SavedServer, StateFileColumn};
use state::server::{CHECK_STATUSES, CheckResult, Health, Operational, ServerAddress};
use state::transition::{self, EMERGENCY, NotifyFn};
use state::{Admin, Server};
use statistics::ProxyView;

/// A line with valid numbers.
struct StateLine<'a> {
    row: &'a SavedServer<'a>,
    operational: Operational,
    admin: u32,
    user_weight: u32,
    initial_weight: u32,
    /// The number of seconds since the last change.
    since: u64,
    /// The number of the last check's result.
    check_status: u32,
    /// Whether checks and the agent were configured but turned off by hand.
    checks_off: bool,
    agent_off: bool,
    port: u16,
}

/// Reads the numbers of a line, and collects the invalid ones.
struct Numbers<'a> {
    row: &'a SavedServer<'a>,
    wrong: Vec<String>,
}

impl Numbers<'_> {
    fn read<N: FromStr>(
        &mut self,
        column: StateFileColumn,
        name: &str,
        allowed: impl Fn(&N) -> bool,
    ) -> Option<N> {
        let text = self.row.get(column);
        let number = text.parse().ok().filter(allowed);
        if number.is_none() {
            self.wrong.push(format!("invalid {name} value '{text}'"));
        }
        number
    }
}

/// The flags of a server's check and agent state.
const CHECK_FLAGS: u32 = 31;
/// The flags for checks that are configured and enabled, and for checks that are only configured.
const CONFIGURED_AND_ENABLED: u32 = 6;
const CONFIGURED: u32 = 2;
/// The maximum check result, the number of the last status.
const LAST_STATUS: u32 = 20;

/// The valid combinations of administrative flags, without inherited ones and names set by hand.
const ADMIN_STATES: [u32; 6] = [
    0,
    Admin::FORCED_MAINT,
    Admin::CONFIGURED_MAINT,
    Admin::CONFIGURED_MAINT | Admin::FORCED_MAINT,
    Admin::FORCED_DRAIN,
    Admin::CONFIGURED_MAINT | Admin::FORCED_DRAIN,
];

impl<'a> StateLine<'a> {
    /// Parses a line. Returns all errors of the line, if there are any.
    fn parse(row: &'a SavedServer<'a>) -> Result<Self, Vec<String>> {
        let mut numbers = Numbers { row, wrong: Vec::new() };
        let n = &mut numbers;
        let own =
            !(Admin::INHERITED_MAINT | Admin::INHERITED_DRAIN | Admin::RESOLUTION_MAINT | Admin::FQDN_SET);
        let weight = |weight: &u32| *weight <= 256;
        let flags = |flags: &u32| *flags <= CHECK_FLAGS;
        let truth = |number: &u32| *number <= 1;
        let operational =
            n.read(StateFileColumn::OperationalState, "srv_op_state", |state: &u32| *state <= 3);
        let admin = n.read(StateFileColumn::AdminState, "srv_admin_state", |admin: &u32| {
            ADMIN_STATES.contains(&(admin & own))
        });
        let user_weight = n.read(StateFileColumn::UserWeight, "srv_uweight", weight);
        let initial_weight = n.read(StateFileColumn::InitialWeight, "srv_iweight", weight);
        let since = n.read(StateFileColumn::TimeSinceLastChange, "srv_last_time_change", |_: &i64| true);
        let check_status =
            n.read(StateFileColumn::CheckStatus, "srv_check_status", |status: &u32| *status <= LAST_STATUS);
        n.read(StateFileColumn::CheckResult, "srv_check_result", |result: &u32| *result <= 4);
        // The level itself follows from the state.
        n.read(StateFileColumn::CheckHealth, "srv_check_health", |_: &i64| true);
        let checks = n.read(StateFileColumn::CheckState, "srv_check_state", flags);
        let agent = n.read(StateFileColumn::AgentState, "srv_agent_state", flags);
        n.read(StateFileColumn::BackendForcedId, "bk_f_forced_id", truth);
        n.read(StateFileColumn::ServerForcedId, "srv_f_forced_id", truth);
        let port = n.read(StateFileColumn::Port, "srv_port", |_: &u16| true);
        let is_off = |state: u32| state & CONFIGURED_AND_ENABLED == CONFIGURED;
        let line = (|| {
            Some(Self {
                row,
                operational: match operational? {
                    0 => Operational::Stopped,
                    1 => Operational::Starting,
                    3 => Operational::Stopping,
                    _ => Operational::Running,
                },
                admin: admin?,
                user_weight: user_weight?,
                initial_weight: initial_weight?,
                since: since?.try_into().unwrap_or(0),
                check_status: check_status?,
                checks_off: is_off(checks?),
                agent_off: is_off(agent?),
                port: port?,
            })
        })();
        line.filter(|_| numbers.wrong.is_empty()).ok_or(numbers.wrong)
    }

    /// Restores the port and the host name that an SRV record or an operator has set. The address itself is determined by
    /// `init-addr`. An error is the reason why the record's name and port were not restored.
    fn apply_name(&self, server: &Server, now: u64) -> Result<(), String> {
        let (record, fqdn) =
            (self.row.word(StateFileColumn::SrvRecord), self.row.word(StateFileColumn::Fqdn));
        match (server.srv_record.get().map(|own| &**own), record) {
            (Some(own), Some(record)) if own != record => {
                return Err(format!(
                    "SRV record mismatch between configuration ('{own}') and state file ('{record}') for server '{}'. \
                     Previous state not applied",
                    server.name
                ));
            }
            (Some(_), Some(_)) => server.set_fqdn(fqdn),
            (None, Some(_)) if !server.resolved.load(Relaxed) => {
                return Err(format!(
                    "no SRV resolution for server '{}'. Previous state not applied",
                    server.name
                ));
            }
            (None, None) if self.admin & Admin::FQDN_SET != 0 && server.resolved.load(Relaxed) => {
                let own = server.fqdn.load();
                if fqdn.is_some() && own.as_ref().map(|own| &***own) != fqdn {
                    server.set_fqdn(fqdn);
                    server.change_admin(Admin::FQDN_SET, 0, now);
                }
            }
            _ => {}
        }
        self.apply_port(server);
        Ok(())
    }

    /// Restores the port; for a server without a fixed port, the offset to the client's port.
    fn apply_port(&self, server: &Server) {
        if server.port_offset().is_some() {
            server.set_port_offset(Some(i32::from(self.port.cast_signed())));
            return;
        }
        server.service_port.store(self.port.into(), Relaxed);
        if let ServerAddress::Ip(own) = **server.address.load()
            && own.port() != self.port
        {
            server.set_address(ServerAddress::Ip(SocketAddr::new(own.ip(), self.port)));
        }
    }

    /// Restores the result of checks. A server that tracks another one follows the state of that one.
    fn apply_operational(&self, proxy: &state::Proxy, server: &Arc<Server>, now: u64, notify: NotifyFn<'_>) {
        if let Some(&(status, ..)) = CHECK_STATUSES.iter().find(|row| row.2 == self.check_status) {
            server.health.last.store(Arc::new(CheckResult { status, ..CheckResult::default() }));
        }
        if server.tracked().is_some() {
            return;
        }
        let (rise, fall) = (server.health.rise.load(Relaxed), server.health.fall.load(Relaxed));
        let (state, level) = match self.operational {
            Operational::Stopped => (Operational::Stopped, 0),
            Operational::Stopping => (Operational::Stopping, rise),
            // The slow start is not repeated.
            Operational::Starting => (Operational::Running, rise),
            Operational::Running => (Operational::Running, (rise + fall).saturating_sub(1)),
        };
        server.health.level.store(level, Relaxed);
        transition::decide(proxy, server, state, ", changed from server-state after a reload", now, notify);
    }

    /// Restores administrative changes. If `disabled` was added to or removed from the configuration, the configuration takes
    /// precedence, and draining caused by a weight of 0 ends together with that weight. Only states that end are reported.
    fn apply_admin(&self, proxy: &state::Proxy, server: &Server, now: u64, notify: NotifyFn<'_>) {
        let was = |flag| self.admin & flag != 0;
        let disabled = server.admin().0 & Admin::CONFIGURED_MAINT != 0;
        let maintenance =
            if was(Admin::CONFIGURED_MAINT) == disabled { was(Admin::FORCED_MAINT) } else { disabled };
        let weighed = self.initial_weight > 0 || server.initial_weight() == 0;
        let drains = !maintenance && was(Admin::FORCED_DRAIN) && weighed;
        if maintenance {
            server.change_admin(Admin::FORCED_MAINT, 0, now);
        } else {
            transition::administer(proxy, server, 0, Admin::FORCED_MAINT, "", now, notify);
        }
        if drains {
            server.change_admin(Admin::FORCED_DRAIN, 0, now);
        }
        transition::inherit(proxy, server, now, &|_, _, _| ());
    }

    /// Restores whether checks and the agent run, and their addresses. An error is the reason why an address was not restored.
    fn apply_checks(&self, server: &Server) -> Result<(), String> {
        use StateFileColumn::{AgentAddress, AgentPort, CheckAddress, CheckPort};
        let parts = [
            ("health", Some(&server.health), &server.checked, self.checks_off, (CheckAddress, CheckPort)),
            ("agent", server.agent.get(), &server.agent_checked, self.agent_off, (AgentAddress, AgentPort)),
        ];
        let mut result = Ok(());
        for (what, health, enabled, off, (address, port)) in parts {
            let place = (self.row.word(address), self.row.word(port).filter(|port| *port != "0"));
            result = result.and(apply_place(what, health, place));
            if off && health.is_some_and(|health| health.configured.load(Relaxed)) {
                enabled.store(false, Relaxed);
            }
        }
        result
    }

    /// Restores the state; the weight is restored only if the configured weight is still the same. Returns messages about
    /// everything that could not be restored.
    fn apply(&self, proxy: &state::Proxy, server: &Arc<Server>, notify: NotifyFn<'_>) -> Vec<String> {
        let now = now_ms();
        let named = self.apply_name(server, now);
        if self.initial_weight == server.initial_weight() {
            server.set_weight(self.user_weight);
        }
        self.apply_operational(proxy, server, now, notify);
        self.apply_admin(proxy, server, now, notify);
        let checked = self.apply_checks(server);
        server.changed.set_age(now, self.since.saturating_mul(1000));
        [named, checked].into_iter().filter_map(Result::err).collect()
    }
}

/// Restores the address and port of checks or of an agent, either both or neither.
fn apply_place(
    what: &str,
    health: Option<&Health>,
    (address, port): (Option<&str>, Option<&str>),
) -> Result<(), String> {
    if address.is_none() && port.is_none() {
        return Ok(());
    }
    let Some(health) = health.filter(|health| health.configured.load(Relaxed)) else {
        return Err(format!("{what} checks are not enabled on this server"));
    };
    let number = |text: &str| text.parse::<i64>().map_err(|_| "provided port is not an integer".to_owned());
    let in_range = |port| u16::try_from(port).map_err(|_| "provided port is invalid".to_owned());
    let port = port.map(|port| number(port).and_then(in_range)).transpose()?;
    let parse = |text: &str| text.parse::<IpAddr>().map_err(|_| format!("invalid addr '{text}'"));
    if let Some(address) = address.map(parse).transpose()? {
        health.address.store(Some(Arc::new(address)));
    }
    if let Some(port) = port {
        health.port.store(port.into(), Relaxed);
    }
    Ok(())
}

/// Lines by backend and server name.
pub type Rows<'a> = HashMap<(&'a str, &'a str), SavedServer<'a>>;

/// Restores the states of one backend's servers, and ignores servers that no longer exist. Changes and failures are reported
/// through `say`.
pub fn restore(rows: &Rows<'_>, backend: &ProxyView, say: &dyn Fn(&str)) {
    let proxy = &backend.state;
    // A backend without servers is reported when a request needs one.
    let notify = |_: &state::Proxy, level, text: &str| {
        if level != EMERGENCY {
            say(text);
        }
    };
    for server in proxy.servers.load().iter() {
        let name = server.name.to_string();
        let Some(row) = rows.get(&(&*proxy.name, &*name)) else { continue };
        let (how, wrong) = match StateLine::parse(row) {
            Ok(line) => ("partially applied", line.apply(proxy, server, &notify)),
            Err(wrong) => ("application failed", wrong),
        };
        if !wrong.is_empty() {
            say(&format!("server-state {how} for server '{}/{name}', {}", proxy.name, wrong.join(", ")));
        }
    }
}

/// Returns the rows of a per-backend file that are for this backend. The others are reported.
pub fn of_backend<'a>(
    rows: Vec<SavedServer<'a>>,
    backend: &ProxyView,
    say: &dyn Fn(&str),
) -> Vec<SavedServer<'a>> {
    let proxy = &backend.state;
    let is_own = |row: &SavedServer<'_>| {
        let (name, id) = (row.get(StateFileColumn::BackendName), row.get(StateFileColumn::BackendId));
        let server = row.get(StateFileColumn::ServerName);
        if *name != *proxy.name {
            say(&format!(
                "backend name mismatch: from server state file: '{name}', from running config '{}'",
                proxy.name
            ));
            return false;
        }
        if id != proxy.id.to_string() {
            say(&format!(
                "backend ID mismatch: from server state file: '{id}', from running config '{}'",
                proxy.id
            ));
        }
        let found = proxy.server(server).is_some();
        if !found {
            say(&format!("can't find server '{server}' in backend '{}'", proxy.name));
        }
        found
    };
    rows.into_iter().filter(is_own).collect()
}
