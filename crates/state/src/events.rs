//! Events of servers and of ordered certificates, for scripts that subscribe to them (`core.event_sub`).
//!
//! The code that changes a server's state publishes the events. Without subscribers, this costs one comparison. A subscriber is
//! called on the thread on which the event occurred, and must not block there.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use base::clock::WallTime;

use crate::journal::{self, EventTopic};
use crate::server::{Admin, Operational};
use crate::{Proxy, Server};

/// The kinds of events. A set of kinds is the sum of their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ServerEventKind {
    /// A server was added.
    Added = 1,
    /// The server was removed.
    Removed = 2,
    /// The server went down.
    Down = 4,
    /// The server came up.
    Up = 8,
    /// The state of the server changed.
    State = 16,
    /// The administrative state of the server changed.
    Admin = 32,
    /// The result of a check changed.
    Check = 64,
    /// A DNS record must be set for an order.
    Deploy = 128,
    /// A new certificate is in use.
    Certified = 256,
}

/// All kinds related to the operational state.
const OF_STATE: u32 =
    ServerEventKind::State as u32 | ServerEventKind::Up as u32 | ServerEventKind::Down as u32;

/// An event of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerEvent {
    /// The kind.
    pub kind: ServerEventKind,
    /// The time, in seconds since 1970.
    pub at: i64,
    /// The server's name.
    pub server: Box<str>,
    /// The server's id within its backend.
    pub id: u32,
    /// Distinguishes the server from earlier servers with the same name and id.
    pub revision: u32,
    /// The name of the server's backend.
    pub proxy: Box<str>,
    /// The id of the server's backend.
    pub proxy_id: u32,
    /// The data specific to the kind.
    pub about: About,
}

/// An event of an ordered certificate.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderEvent {
    /// The time, in seconds since 1970.
    pub at: i64,
    /// The certificate's name.
    pub certificate: Box<str>,
    /// The DNS record to set, if the event is about one.
    pub record: Option<Record>,
}

/// A DNS record that a CA checks.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The domain to be validated.
    pub domain: Box<str>,
    /// The thumbprint of the account key.
    pub thumbprint: Box<str>,
    /// The content of the record.
    pub text: Box<str>,
    /// `provider-name` of the section.
    pub provider: Option<Box<str>>,
    /// `acme-vars` of the section.
    pub vars: Option<Box<str>>,
}

/// The data specific to a kind of event.
#[derive(Debug, Clone, PartialEq)]
pub enum About {
    /// No further information.
    Nothing,
    /// For [`ServerEventKind::State`].
    State(StateChange),
    /// For [`ServerEventKind::Admin`].
    Admin(AdminChange),
    /// For [`ServerEventKind::Check`].
    Check(Checked),
}

/// A change of the operational state.
#[derive(Debug, Clone, PartialEq)]
pub struct StateChange {
    /// Why.
    pub cause: StateCause,
    /// The previous state.
    pub old: Operational,
    /// The new state.
    pub new: Operational,
    /// The number of queued requests that may now use another server.
    pub requeued: u32,
}

/// Why a server's state changed.
#[derive(Debug, Clone, PartialEq)]
pub enum StateCause {
    /// An administrative change, with this message.
    Admin(String),
    /// A check.
    Check(Checked),
    /// Another cause, with this message.
    Other(String),
}

/// A change of a server's administrative state.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminChange {
    /// The cause as text; empty if there is none.
    pub cause: String,
    /// The previous state.
    pub old: Admin,
    /// The new state.
    pub new: Admin,
    /// The number of queued requests that may now use another server.
    pub requeued: u32,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// Whether the result is from the agent.
    pub by_agent: bool,
    /// The status of the check (`L4OK`, `L7STS` …).
    pub status: &'static str,
    /// The meaning of the status, as text.
    pub meaning: &'static str,
    /// Whether the check succeeded.
    pub is_success: bool,
    /// Whether the server announces that it will stop soon.
    pub is_conditional: bool,
    /// The duration of the check in ms, or `None` if it was not measured.
    pub duration_ms: Option<u64>,
    /// The layer's code, if any.
    pub code: Option<i32>,
    /// The current level, and the number of checks needed to come up and to go down.
    pub level: (u32, u32, u32),
}

impl Checked {
    /// Returns the last result of a server's checks, or of its agent.
    pub fn last(server: &Server, by_agent: bool) -> Self {
        let health = if by_agent { &server.agent } else { &server.health };
        let last = health.last.load();
        let (status, meaning, _, is_success) = *last.meaning();
        let of = |number: &AtomicU32| number.load(Relaxed);
        Self {
            by_agent,
            status,
            meaning,
            is_success,
            is_conditional: status == "L7OKC",
            duration_ms: Some(last.duration_ms).filter(|_| status != "HANA"),
            code: last.code,
            level: (of(&health.level), of(&health.rise).max(1), of(&health.fall).max(1)),
        }
    }
}

/// A receiver of events.
pub trait Subscriber: Send + Sync {
    /// Receives an event of a server.
    fn take(&self, event: &Arc<ServerEvent>);
    /// Receives an event of an order.
    fn take_order(&self, event: &Arc<OrderEvent>);
}

struct Subscription {
    kinds: u32,
    /// Restricts the subscription to this server.
    server: Option<Weak<Server>>,
    who: Weak<dyn Subscriber>,
}

/// The kinds with subscribers. Written under the list's lock.
static WANTED: AtomicU32 = AtomicU32::new(0);

static ALL: Mutex<Vec<Subscription>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Subscription>> {
    ALL.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Subscribes `who` to these kinds, for all servers or for one, as long as `who` exists.
pub fn subscribe(kinds: u32, server: Option<&Arc<Server>>, who: &Arc<dyn Subscriber>) {
    let mut all = all();
    all.push(Subscription { kinds, server: server.map(Arc::downgrade), who: Arc::downgrade(who) });
    note_wanted(&mut all);
}

/// Cancels all subscriptions of `who`.
pub fn unsubscribe(who: &Arc<dyn Subscriber>) {
    let mut all = all();
    all.retain(|own| !std::ptr::addr_eq(own.who.as_ptr(), Arc::as_ptr(who)));
    note_wanted(&mut all);
}

/// Removes dropped subscribers, and updates the wanted kinds.
fn note_wanted(all: &mut Vec<Subscription>) {
    all.retain(|own| own.who.strong_count() > 0);
    WANTED.store(all.iter().fold(0, |kinds, own| kinds | own.kinds), Relaxed);
}

#[inline]
fn are_wanted(kinds: u32) -> bool {
    WANTED.load(Relaxed) & kinds != 0
}

#[cold]
fn publish(proxy: &Proxy, server: &Server, kind: ServerEventKind, about: About) {
    let wants = |own: &Subscription| {
        let is_it = |one: &Weak<Server>| std::ptr::eq(one.as_ptr(), server);
        own.kinds & kind as u32 != 0 && own.server.as_ref().is_none_or(is_it)
    };
    let who: Vec<_> = all().iter().filter(|own| wants(own)).filter_map(|own| own.who.upgrade()).collect();
    if who.is_empty() {
        // Scripts are dropped together with their plan.
        return note_wanted(&mut all());
    }
    let event = Arc::new(ServerEvent {
        kind,
        at: WallTime::now().seconds,
        server: server.name.to_string().into(),
        id: server.id,
        revision: server.revision.load(Relaxed),
        proxy: proxy.name.clone(),
        proxy_id: proxy.id,
        about,
    });
    who.iter().for_each(|who| who.take(&event));
}

/// Reports an event of an ordered certificate: a DNS record must be set, or there is a new certificate.
pub fn ordered(certificate: &str, record: impl FnOnce() -> Option<Record>) {
    if !are_wanted(ServerEventKind::Deploy as u32 | ServerEventKind::Certified as u32) {
        return;
    }
    let record = record();
    let kind = if record.is_some() { ServerEventKind::Deploy } else { ServerEventKind::Certified } as u32;
    let who: Vec<_> =
        all().iter().filter(|own| own.kinds & kind != 0).filter_map(|own| own.who.upgrade()).collect();
    let at = WallTime::now().seconds;
    let event = Arc::new(OrderEvent { at, certificate: certificate.into(), record });
    who.iter().for_each(|who| who.take_order(&event));
}

/// Returns a server's state as shown in events. In maintenance, a server is shown as down.
pub fn shown(server: &Server) -> Operational {
    if server.admin().in_maintenance() { Operational::Stopped } else { server.operational() }
}

/// Reports the addition of a server to its backend, and records it in the journal.
pub fn added(proxy: &Proxy, server: &Server) {
    journal::record(EventTopic::Servers, &format!("{}/{}", proxy.name, server.name), "Server added.");
    if are_wanted(ServerEventKind::Added as u32) {
        publish(proxy, server, ServerEventKind::Added, About::Nothing);
    }
}

/// Reports that a server was discovered. The caller records it in the journal.
pub fn discovered(proxy: &Proxy, server: &Server) {
    if are_wanted(ServerEventKind::Added as u32) {
        publish(proxy, server, ServerEventKind::Added, About::Nothing);
    }
}

/// Reports that a discovered server was removed, after its end was recorded in the journal.
pub fn forgotten(proxy: &Proxy, server: &Server) {
    if are_wanted(ServerEventKind::Removed as u32) {
        publish(proxy, server, ServerEventKind::Removed, About::Nothing);
    }
}

/// Reports the removal of a server from its backend, and records it in the journal.
pub fn removed(proxy: &Proxy, server: &Server) {
    server.record_change("Server removed.");
    if are_wanted(ServerEventKind::Removed as u32) {
        publish(proxy, server, ServerEventKind::Removed, About::Nothing);
    }
}

/// Reports that a server's state may have changed from `old`, as returned by [shown]. `requeued` requests were queued for it.
pub fn moved(
    proxy: &Proxy,
    server: &Server,
    old: Operational,
    requeued: u32,
    cause: impl FnOnce() -> StateCause,
) {
    let new = shown(server);
    if new == old || !are_wanted(OF_STATE) {
        return;
    }
    let is_down = new == Operational::Stopped;
    let requeued = if is_down { requeued } else { proxy.queue.len() };
    publish(
        proxy,
        server,
        ServerEventKind::State,
        About::State(StateChange { cause: cause(), old, new, requeued }),
    );
    if is_down {
        publish(proxy, server, ServerEventKind::Down, About::Nothing);
    } else if old == Operational::Stopped {
        publish(proxy, server, ServerEventKind::Up, About::Nothing);
    }
}

/// Reports that a server's administrative state changed from `old`. `requeued` requests were queued for it.
pub fn administered(proxy: &Proxy, server: &Server, old: Admin, requeued: u32, cause: &str) {
    if are_wanted(ServerEventKind::Admin as u32) {
        let change = AdminChange { cause: cause.to_owned(), old, new: server.admin(), requeued };
        publish(proxy, server, ServerEventKind::Admin, About::Admin(change));
    }
}

/// Reports that the result of a server's check, or its agent, has changed.
pub fn checked(proxy: &Proxy, server: &Server, by_agent: bool) {
    if are_wanted(ServerEventKind::Check as u32) {
        publish(proxy, server, ServerEventKind::Check, About::Check(Checked::last(server, by_agent)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transition;

    struct Heard(Mutex<Vec<(ServerEventKind, Box<str>)>>);

    impl Subscriber for Heard {
        fn take(&self, event: &Arc<ServerEvent>) {
            self.0.lock().unwrap().push((event.kind, event.server.clone()));
        }

        fn take_order(&self, _: &Arc<OrderEvent>) {}
    }

    #[test]
    fn subscribers_get_the_requested_events_until_they_unsubscribe() {
        let (proxy, one, other) = transition::tests::two_servers();
        let heard = Arc::new(Heard(Mutex::default()));
        let who: Arc<dyn Subscriber> = heard.clone();
        subscribe(ServerEventKind::Down as u32 | ServerEventKind::Admin as u32, Some(&one), &who);
        let maintain = |server: &Server, set, clear| {
            transition::administer(&proxy, server, set, clear, "", 1, &|_, _, _| {});
        };
        maintain(&other, Admin::FORCED_MAINT, 0);
        maintain(&one, Admin::FORCED_MAINT, 0);
        maintain(&one, 0, Admin::FORCED_MAINT);
        let expected = [
            (ServerEventKind::Admin, "a".into()),
            (ServerEventKind::Down, "a".into()),
            (ServerEventKind::Admin, "a".into()),
        ];
        assert_eq!(*heard.0.lock().unwrap(), expected);
        unsubscribe(&who);
        maintain(&one, Admin::FORCED_MAINT, 0);
        assert_eq!(heard.0.lock().unwrap().len(), 3);
    }
}
