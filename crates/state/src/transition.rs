//! The consequences of a server's state change: whether its backend can still serve, and the log messages.
//!
//! The messages have HAProxy's wording, which tools search for. Called by health checks and the runtime socket, which send the
//! messages.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use runtime::timer;

use crate::proxy::Admission;
use crate::server::Operational;
use crate::{Admin, Proxy, Server, events, journal};

/// A message: the syslog level (0 emerg, 1 alert, 5 notice) and the text.
pub type Note = (u8, String);

/// Emergency: a backend has lost its last server.
pub const EMERGENCY: u8 = 0;
/// A server went down.
pub const ALERT: u8 = 1;
/// A frontend was paused, resumed or stopped.
pub const WARNING: u8 = 4;
/// Notice: any other change.
pub const NOTICE: u8 = 5;
/// The level of individual check results.
pub const INFO: u8 = 6;

impl Server {
    /// Lets this server of `backend` track the server `tracked` of `other` (manual, 5.2 `track`).
    pub fn track(self: &Arc<Self>, backend: &Arc<Proxy>, other: &Proxy, tracked: &Arc<Self>) {
        if other.add_tracker(tracked, backend, self) {
            // The tracked server's maintenance and draining apply to this one and its trackers.
            inherit(other, tracked, timer::now_ms(), &|_, _, _| ());
        }
    }
}

/// Returns the message for a change of a proxy's admission from `from`, or `None` if it has not changed.
pub fn admitted(proxy: &Proxy, from: Admission) -> Option<String> {
    let name = &proxy.name;
    match (from, proxy.admission()) {
        (Admission::Open, Admission::Paused) => Some(format!("Paused frontend {name}.")),
        (Admission::Paused, Admission::Open) => Some(format!("Resumed frontend {name}.")),
        (Admission::Open | Admission::Paused, Admission::Stopped) => Some(stopped(proxy)),
        _ => None,
    }
}

/// Returns the message for the end of a proxy.
pub fn stopped(proxy: &Proxy) -> String {
    let frontend: u64 = proxy.frontend.all().map(|shard| shard.traffic.sessions_total.get()).sum();
    let backend: u64 = proxy.backend.all().map(|shard| shard.traffic.sessions_total.get()).sum();
    format!("Proxy {} stopped (cumulated conns: FE: {frontend}, BE: {backend}).", proxy.name)
}

/// Returns the numbers of active and backup servers that may get requests.
pub fn online(proxy: &Proxy) -> (usize, usize) {
    let servers = proxy.servers.load();
    let count = |backup| servers.iter().filter(|s| s.backup == backup && s.effective_weight() > 0).count();
    (count(false), count(true))
}

/// Whether a backend has servers, and none of them is usable.
fn is_down(proxy: &Proxy) -> bool {
    proxy.total_weight() == 0 && !proxy.servers.load().is_empty()
}

/// Sets the state of a backend that has just got its configured servers. If none of them is usable, it has not lost any.
pub fn begin_backend(proxy: &Proxy) {
    proxy.down.store(is_down(proxy), Relaxed);
}

/// Updates whether the backend can serve requests. Returns a message if it has lost its last server. Called after every change of a
/// server's state or weight, after which requests in the backend's queue look for a slot.
pub fn refresh_backend(proxy: &Proxy, now_ms: u64) -> Option<Note> {
    let down = is_down(proxy);
    // Each request that finds a slot, or has nothing to wait for, wakes the next one.
    proxy.queue.wake_first();
    if proxy.down.swap(down, Relaxed) == down {
        return None;
    }
    proxy.changed_at.store(now_ms, Relaxed);
    if !down {
        return None;
    }
    proxy.downs.fetch_add(1, Relaxed);
    let kind = if proxy.is_frontend { "proxy" } else { "backend" };
    let text = format!("{kind} {} has no server available!", proxy.name);
    journal::record(journal::EventTopic::Servers, &proxy.name, &text);
    Some((EMERGENCY, text))
}

/// Returns a server's name for the start of a message.
pub fn subject(server: &Server) -> String {
    let kind = if server.backup { "Backup Server" } else { "Server" };
    format!("{kind} {}/{}", server.proxy, server.name)
}

/// Returns the message for a server that has become unusable. `event` is, for example, `is DOWN`. `why` is `, reason: …` or
/// empty. `requeued` is the number of queued requests that are sent to other servers.
pub fn left(proxy: &Proxy, server: &Server, event: &str, why: &str, requeued: u32) -> String {
    let (active, backup) = online(proxy);
    let on_backup = if active == 0 && backup > 0 { " Running on backup." } else { "" };
    // If no server is left, no request stays queued.
    let (requeued, waiting) = match (active + backup, proxy.queue.len()) {
        (0, waiting) => (requeued + waiting, 0),
        (_, waiting) => (requeued, waiting),
    };
    format!(
        "{} {event}{why}. {active} active and {backup} backup servers left.{on_backup} {} sessions active, {requeued} \
         requeued, {} remaining in queue.",
        subject(server),
        server.serving(),
        waiting
    )
}

/// Returns the message for a server that is usable again, or only for persistent sessions: `is UP`, `is stopping`, `enters drain
/// state`.
pub fn joined(proxy: &Proxy, server: &Server, event: &str, why: &str, requeued: u32) -> String {
    let (active, backup) = online(proxy);
    let on_backup = if active == 0 && backup > 0 { " Running on backup." } else { "" };
    // If no server is left, no request stays queued.
    let (requeued, waiting) = match (active + backup, proxy.queue.len()) {
        (0, waiting) => (requeued + waiting, 0),
        (_, waiting) => (requeued, waiting),
    };
    format!(
        "{} {event}{why}. {active} active and {backup} backup servers online.{on_backup} {requeued} sessions requeued, \
         {} total in queue.",
        subject(server),
        waiting
    )
}

/// Receives a message: the backend, the syslog level, the text.
pub type NotifyFn<'a> = &'a dyn Fn(&Proxy, u8, &str);

/// Sets and clears administrative flags of a server of `proxy`, notifies the observer, and applies the change to the servers that
/// track it. `via` is the origin of the change (` via be/s1`, ` (DNS timeout status)`), or empty. Returns whether anything
/// changed.
pub fn administer(
    proxy: &Proxy,
    server: &Server,
    set: u32,
    clear: u32,
    via: &str,
    now_ms: u64,
    notify: NotifyFn<'_>,
) -> bool {
    let before = server.admin();
    let was_down = server.operational() == Operational::Stopped;
    let (shown, requeued) = (events::shown(server), server.queue.len());
    if !server.change_admin(set, clear, now_ms) {
        return false;
    }
    let after = server.admin();
    match (before.in_maintenance(), after.in_maintenance()) {
        (false, true) => {
            server.queue.wake_all();
            // The operator may restart the server, so earlier connections are not used afterwards.
            server.outdate();
        }
        (true, false) => leave_maintenance(server, now_ms),
        _ => {}
    }
    // The cause for a tracker is that of the tracked server.
    let cause = Some(via).filter(|via| !via.starts_with(" via ")).unwrap_or_default().trim_start();
    events::administered(proxy, server, before, requeued, cause);
    events::moved(proxy, server, shown, requeued, || events::StateCause::Admin(cause.to_owned()));
    let change = Administrative { before, after, was_down, requeued, via };
    for (level, text) in administrative(proxy, server, &change) {
        server.record_change(&text);
        notify(proxy, level, &text);
    }
    if let Some((level, text)) = refresh_backend(proxy, now_ms) {
        notify(proxy, level, &text);
    }
    inherit(proxy, server, now_ms, notify);
    true
}

/// Sets the operational state of a server of `proxy` on behalf of checks, reports it with the reason `why` (`, changed from CLI`),
/// and updates the servers that track it.
pub fn decide(
    proxy: &Proxy,
    server: &Server,
    state: Operational,
    why: &str,
    now_ms: u64,
    notify: NotifyFn<'_>,
) {
    decide_via(proxy, server, state, (why, ""), now_ms, notify);
}

/// Like `decide`. For a tracker, the message has the name of the tracked server (` via be/s1`) instead of the reason.
fn decide_via(
    proxy: &Proxy,
    server: &Server,
    state: Operational,
    (why, via): (&str, &str),
    now_ms: u64,
    notify: NotifyFn<'_>,
) {
    let (shown, requeued) = (events::shown(server), server.queue.len());
    let was = server.operational();
    let changed = match (was, state) {
        // The weight is already rising.
        (Operational::Starting, Operational::Running) => false,
        (Operational::Stopped, Operational::Running) => server.come_up(now_ms),
        _ => server.set_operational(state, now_ms),
    };
    if !changed {
        return;
    }
    let cause = || events::StateCause::Other(why.trim_start_matches([',', ' ']).to_owned());
    events::moved(proxy, server, shown, requeued, cause);
    let (level, text) = match state {
        Operational::Stopped => {
            server.queue.wake_all();
            let text = left(proxy, server, &format!("is DOWN{via}"), why, requeued);
            (down_level(server, was), text)
        }
        Operational::Stopping => (NOTICE, joined(proxy, server, &format!("is stopping{via}"), why, requeued)),
        _ => (NOTICE, joined(proxy, server, &format!("is UP{via}"), why, 0)),
    };
    // During maintenance, the state has no effect.
    if !server.admin().in_maintenance() {
        server.record_change(&text);
        notify(proxy, level, &text);
    }
    if let Some((level, text)) = refresh_backend(proxy, now_ms) {
        notify(proxy, level, &text);
    }
    let via = format!(" via {}/{}", server.proxy, server.name);
    for (proxy, follower) in proxy.trackers(server) {
        decide_via(&proxy, &follower, state, ("", &via), now_ms, notify);
    }
}

/// Sets the state after maintenance: a server is up until its next check fails, unless `init-state` sets its initial state or its
/// agent has reported it down. A tracker takes the state of the tracked server.
pub fn leave_maintenance(server: &Server, now_ms: u64) {
    let checked = server.checked.load(Relaxed);
    let state = match server.tracked() {
        Some(tracked) => tracked.operational(),
        // The initial state was already set.
        None if checked && server.health.initial().is_some() => return,
        // Only the agent can take this back.
        None if server.agent_says_down() => Operational::Stopped,
        None => Operational::Running,
    };
    if checked {
        server.health.level.store(server.health.rise.load(Relaxed), Relaxed);
    }
    match state {
        Operational::Running | Operational::Starting => server.come_up(now_ms),
        _ => server.set_operational(state, now_ms),
    };
}

/// Applies maintenance and draining of `tracked`, a server of `backend`, to its trackers.
pub fn inherit(backend: &Proxy, tracked: &Server, now_ms: u64, notify: NotifyFn<'_>) {
    let admin = tracked.admin();
    let (mut set, mut clear) = (0, 0);
    for (on, flag) in
        [(admin.in_maintenance(), Admin::INHERITED_MAINT), (admin.draining(), Admin::INHERITED_DRAIN)]
    {
        *(if on { &mut set } else { &mut clear }) |= flag;
    }
    let via = format!(" via {}/{}", tracked.proxy, tracked.name);
    for (proxy, follower) in backend.trackers(tracked) {
        administer(&proxy, &follower, set, clear, &via, now_ms, notify);
    }
}

/// A change of administrative flags.
#[derive(Debug, Clone, Copy)]
struct Administrative<'a> {
    /// The flags before the change.
    before: Admin,
    /// The flags after the change.
    after: Admin,
    /// Whether the server was operationally down before the change.
    was_down: bool,
    /// The number of requests in the server's queue.
    requeued: u32,
    /// ` via be/s1` when inherited from a tracked server.
    via: &'a str,
}

/// Returns the messages for a change of administrative flags.
fn administrative(proxy: &Proxy, server: &Server, change: &Administrative<'_>) -> Vec<Note> {
    let Administrative { before, after, was_down, requeued, via } = *change;
    let subject = subject(server);
    let tracked = server.tracked().map(|of| format!(" via {}/{}", of.proxy, of.name)).unwrap_or_default();
    let was_forced = |flag| before.0 & flag != 0 && after.0 & flag == 0;
    let still_drains = || match after.0 & Admin::FORCED_DRAIN {
        0 => format!("{subject} remains in drain mode{tracked}."),
        _ => format!("{subject} remains in forced drain mode."),
    };
    let mut notes = Vec::new();
    match (before.in_maintenance(), after.in_maintenance()) {
        (false, true) if was_down => {
            notes.push((NOTICE, format!("{subject} was DOWN and now enters maintenance{via}.")));
        }
        (false, true) => {
            let level = if before.draining() { NOTICE } else { ALERT };
            let event = format!("is going DOWN for maintenance{via}");
            notes.push((level, left(proxy, server, &event, "", requeued)));
        }
        (true, false) => {
            let state = if server.operational() == Operational::Stopped { "DOWN" } else { "UP" };
            let ready = if after.draining() { "DRAIN" } else { "READY" };
            let forced = if via.is_empty() { "forced " } else { "" };
            notes.push((NOTICE, format!("{subject} is {state}/{ready} (leaving {forced}maintenance).")));
            if after.draining() {
                notes.push((NOTICE, still_drains()));
            }
        }
        (true, true) if was_forced(Admin::FORCED_MAINT) => {
            let text =
                format!("{subject} is leaving forced maintenance but remains in maintenance{tracked}.");
            notes.push((NOTICE, text));
        }
        (true, true) if was_forced(Admin::INHERITED_MAINT) && after.0 & Admin::FORCED_MAINT != 0 => {
            notes.push((NOTICE, format!("{subject} remains in forced maintenance.")));
        }
        (true, true) => {}
        (false, false) => match (before.draining(), after.draining()) {
            (false, true) => {
                let event = format!("enters drain state{via}");
                let text = if was_down { left } else { joined }(proxy, server, &event, "", requeued);
                notes.push((NOTICE, text));
            }
            (true, false) => {
                let state = if was_down { "DOWN" } else { "UP" };
                let forced = if via.is_empty() { "forced " } else { "" };
                notes.push((NOTICE, format!("{subject} is {state} (leaving {forced}drain){via}.")));
            }
            (true, true) => notes.push((NOTICE, still_drains())),
            (false, false) => {}
        },
    }
    notes
}

/// Returns the e-mail alert level of a message about a server that was logged at `level` (manual, 4.2 `email-alert level`).
/// Returns `None` for messages that cause no e-mail: an operator's changes except draining, and messages that are not about a
/// server.
pub fn email_level(level: u8, text: &str) -> Option<u8> {
    if text.starts_with("Health check for ") || text.starts_with("Agent check for ") {
        return Some(INFO);
    }
    let (_, event) = text.strip_prefix("Backup ").unwrap_or(text).strip_prefix("Server ")?.split_once(' ')?;
    let is = |event_: &str| {
        event
            .strip_prefix(event_)
            .is_some_and(|rest| rest.starts_with(['.', ',']) || rest.starts_with(" via "))
    };
    (is("is DOWN") || is("is UP") || is("enters drain state")).then_some(level)
}

/// Returns the log level for a server that goes down. The level is lower if the server accepts no new clients anyway.
pub fn down_level(server: &Server, was: Operational) -> u8 {
    if was == Operational::Stopping || server.admin().draining() { NOTICE } else { ALERT }
}

/// Returns the message for a server that leaves maintenance because its name resolves again.
pub fn resolves_again(server: &Server) -> String {
    let fqdn = server.fqdn.load();
    let name = fqdn.as_ref().map_or("", |name| name);
    let state = if server.operational() == Operational::Stopped { "DOWN" } else { "UP" };
    let ready = if server.admin().draining() { "DRAIN" } else { "READY" };
    format!("{} ('{name}') is {state}/{ready} (resolves again).", subject(server))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;

    use super::*;
    use crate::proxy::{Mode, ProxySeed};
    use crate::server::{ServerAddress, ServerSeed};

    fn backend() -> Arc<Proxy> {
        Arc::new(Proxy::new(ProxySeed {
            id: 3,
            name: "be".into(),
            mode: Mode::Http,
            is_frontend: false,
            is_backend: true,
            maxconn: 0,
            session_limit: 0,
            disabled: false,
        }))
    }

    fn server(name: &str, backup: bool) -> Arc<Server> {
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
    }

    /// Returns a backend and two of its servers.
    pub(crate) fn two_servers() -> (Arc<Proxy>, Arc<Server>, Arc<Server>) {
        (backend(), server("a", false), server("b", false))
    }

    /// An administrative change of a server, or of its tracker, and the messages about both.
    #[rustfmt::skip]
    const CHANGES: &[(&str, u32, u32, &[&str])] = &[
        ("a", Admin::FORCED_MAINT, 0, &["a is going DOWN for maintenance", "t is going DOWN for maintenance via be/a"]),
        ("t", Admin::FORCED_MAINT, 0, &[]),
        ("t", Admin::FORCED_DRAIN, Admin::FORCED_MAINT, &["t is leaving forced maintenance but remains in maintenance via be/a."]),
        ("t", 0, Admin::FORCED_DRAIN, &[]),
        ("a", Admin::FORCED_DRAIN, Admin::FORCED_MAINT, &[
            "a is UP/DRAIN (leaving forced maintenance).", "a remains in forced drain mode.",
            "t is UP/DRAIN (leaving maintenance).", "t remains in drain mode via be/a."]),
        ("t", Admin::FORCED_DRAIN, 0, &["t remains in forced drain mode."]),
        ("t", 0, Admin::FORCED_DRAIN, &["t remains in drain mode via be/a."]),
        ("a", 0, Admin::FORCED_DRAIN, &["a is UP (leaving forced drain).", "t is UP (leaving drain) via be/a."]),
        ("t", Admin::FORCED_MAINT, 0, &["t is going DOWN for maintenance."]),
        ("a", Admin::FORCED_MAINT, 0, &["a is going DOWN for maintenance."]),
        ("a", 0, Admin::FORCED_MAINT, &["a is UP/READY (leaving forced maintenance).", "t remains in forced maintenance."]),
        ("t", 0, Admin::FORCED_MAINT, &["t is UP/READY (leaving forced maintenance)."]),
    ];

    #[test]
    fn trackers_inherit_administrative_state() {
        let (proxy, tracked, follower, last) =
            (backend(), server("a", false), server("t", false), server("z", true));
        follower.track(&proxy, &proxy, &tracked);
        last.track(&proxy, &proxy, &follower);
        proxy.servers.store(Arc::new(vec![tracked.clone(), follower.clone(), last.clone()]));
        for (name, set, clear, expected) in CHANGES {
            let notices = std::cell::RefCell::new(Vec::new());
            let notify = |_: &Proxy, _, text: &str| notices.borrow_mut().push(text.to_owned());
            let server = if *name == "a" { &tracked } else { &follower };
            administer(&proxy, server, *set, *clear, "", 1, &notify);
            let notices = notices.into_inner();
            let of_two: Vec<&str> =
                notices.iter().filter_map(|text| text.strip_prefix("Server be/")).collect();
            assert_eq!(of_two.len(), expected.len(), "{name} {set} {clear}: {notices:?}");
            for (text, start) in of_two.iter().zip(*expected) {
                assert!(text.starts_with(start), "{name} {set} {clear}: {notices:?}");
            }
            assert_eq!(last.admin().in_maintenance(), follower.admin().in_maintenance());
            assert_eq!(last.admin().draining(), follower.admin().draining());
        }
        assert!(last.watched().is_some_and(|watched| Arc::ptr_eq(&watched, &tracked)));
    }

    #[test]
    fn emails_report_down_up_drain_and_checks() {
        for (level, text, wanted) in [
            (ALERT, "Server b/s is DOWN. 0 active and", Some(ALERT)),
            (NOTICE, "Server b/s is DOWN, reason: Layer4 timeout.", Some(NOTICE)),
            (ALERT, "Backup Server b/s is DOWN via b/t. 0 active", Some(ALERT)),
            (NOTICE, "Server b/s is UP. 1 active", Some(NOTICE)),
            (NOTICE, "Server b/s enters drain state. 0 active", Some(NOTICE)),
            (NOTICE, "Health check for backup server b/s succeeded", Some(INFO)),
            (NOTICE, "Agent check for server b/s failed", Some(INFO)),
            (NOTICE, "Server b/s is UP (leaving forced drain).", None),
            (NOTICE, "Server b/s is UP/READY (leaving forced maintenance).", None),
            (NOTICE, "Server b/s is going DOWN for maintenance. 0 active", None),
            (NOTICE, "Server b/s was DOWN and now enters maintenance.", None),
            (EMERGENCY, "backend b has no server available!", None),
        ] {
            assert_eq!(email_level(level, text), wanted, "{text}");
        }
    }

    #[test]
    fn losing_a_backend_is_reported_once() {
        let proxy = backend();
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
