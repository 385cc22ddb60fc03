//! What happens to servers, and to certificates that are ordered, told to whoever subscribed: scripts
//! (`core.event_sub`).
//!
//! Who changes a server's state calls this. Where nobody subscribed that costs a look at one word.
//! A subscriber takes an event on the thread where it happened, and must not wait there.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use base::clock::WallTime;

use crate::server::{Admin, Operational};
use crate::{Proxy, Server};

/// What may happen. Sets of kinds are sums of their numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum ServerEventKind {
    /// A server was added.
    Added = 1,
    /// It was removed.
    Removed = 2,
    /// It went down.
    Down = 4,
    /// It came up.
    Up = 8,
    /// Its state changed.
    State = 16,
    /// What an administrator says of it changed.
    Admin = 32,
    /// A check came to another result than the one before.
    Check = 64,
    /// A record of DNS is to be set for an order of a certificate.
    Deploy = 128,
    /// A new certificate is in use.
    Certified = 256,
}

/// All kinds that tell of a change of state.
const OF_STATE: u32 =
    ServerEventKind::State as u32 | ServerEventKind::Up as u32 | ServerEventKind::Down as u32;

/// Something that happened to a server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerEvent {
    /// What.
    pub kind: ServerEventKind,
    /// When, in seconds since 1970.
    pub at: i64,
    /// The server's name.
    pub server: Box<str>,
    /// Its number within its backend.
    pub id: u32,
    /// Tells it from others of its name and number before it.
    pub revision: u32,
    /// Its backend's name.
    pub proxy: Box<str>,
    /// Its backend's number.
    pub proxy_id: u32,
    /// What belongs to this kind.
    pub about: About,
}

/// Something that happened to a certificate that is ordered.
#[derive(Debug, Clone, PartialEq)]
pub struct OrderEvent {
    /// When, in seconds since 1970.
    pub at: i64,
    /// The certificate's name.
    pub certificate: Box<str>,
    /// The record that is to be set, where it is about one.
    pub record: Option<Record>,
}

/// A record of DNS that an authority looks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The name that is to be shown to be one's own.
    pub domain: Box<str>,
    /// The thumbprint of the account's key.
    pub thumbprint: Box<str>,
    /// What the record says.
    pub text: Box<str>,
    /// `provider-name` of the section.
    pub provider: Option<Box<str>>,
    /// `acme-vars` of the section.
    pub vars: Option<Box<str>>,
}

/// What is told of a kind of event.
#[derive(Debug, Clone, PartialEq)]
pub enum About {
    /// Nothing more.
    Nothing,
    /// [`ServerEventKind::State`].
    State(StateChange),
    /// [`ServerEventKind::Admin`].
    Admin(AdminChange),
    /// [`ServerEventKind::Check`].
    Check(Checked),
}

/// A change of state.
#[derive(Debug, Clone, PartialEq)]
pub struct StateChange {
    /// Why.
    pub cause: StateCause,
    /// Before.
    pub old: Operational,
    /// Since.
    pub new: Operational,
    /// Requests that waited and may go elsewhere now.
    pub requeued: u32,
}

/// Why a server's state changed.
#[derive(Debug, Clone, PartialEq)]
pub enum StateCause {
    /// What an administrator says of it did, in these words.
    Admin(String),
    /// A check did.
    Check(Checked),
    /// Something else did, in these words.
    Other(String),
}

/// A change of what an administrator says of a server.
#[derive(Debug, Clone, PartialEq)]
pub struct AdminChange {
    /// Why, in words; empty for none.
    pub cause: String,
    /// Before.
    pub old: Admin,
    /// Since.
    pub new: Admin,
    /// Requests that waited and may go elsewhere now.
    pub requeued: u32,
}

/// The result of a check.
#[derive(Debug, Clone, PartialEq)]
pub struct Checked {
    /// Whether it is what the agent said.
    pub by_agent: bool,
    /// Its status (`L4OK`, `L7STS` …).
    pub status: &'static str,
    /// What that means, for people.
    pub meaning: &'static str,
    /// Whether it is a success.
    pub is_success: bool,
    /// Whether the server says that it is about to stop.
    pub is_conditional: bool,
    /// How long it took, in ms; `None` where that was not measured.
    pub duration_ms: Option<u64>,
    /// The layer's code, if any.
    pub code: Option<i32>,
    /// The level now, and what it takes to come up and to go down.
    pub level: (u32, u32, u32),
}

impl Checked {
    /// The last result of a server's checks, or of its agent.
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

/// Who is told.
pub trait Subscriber: Send + Sync {
    /// Takes an event of a server.
    fn take(&self, event: &Arc<ServerEvent>);
    /// Takes an event of an order.
    fn take_order(&self, event: &Arc<OrderEvent>);
}

struct Subscription {
    kinds: u32,
    /// Of this server alone.
    server: Option<Weak<Server>>,
    who: Weak<dyn Subscriber>,
}

/// The kinds that anybody wants. Written under the lock of the list.
static WANTED: AtomicU32 = AtomicU32::new(0);

static ALL: Mutex<Vec<Subscription>> = Mutex::new(Vec::new());

fn all() -> MutexGuard<'static, Vec<Subscription>> {
    ALL.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Has `who` told of these kinds, of all servers or of one, as long as it lives.
pub fn subscribe(kinds: u32, server: Option<&Arc<Server>>, who: &Arc<dyn Subscriber>) {
    let mut all = all();
    all.push(Subscription { kinds, server: server.map(Arc::downgrade), who: Arc::downgrade(who) });
    note_wanted(&mut all);
}

/// Has `who` told of nothing any more.
pub fn unsubscribe(who: &Arc<dyn Subscriber>) {
    let mut all = all();
    all.retain(|own| !std::ptr::addr_eq(own.who.as_ptr(), Arc::as_ptr(who)));
    note_wanted(&mut all);
}

/// Leaves out who is gone.
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
        // Scripts end with their plan.
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

/// Something happened to a certificate that is ordered: a record is to be set, or it is new.
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

/// The state of a server as events tell it: one in maintenance is down.
pub fn shown(server: &Server) -> Operational {
    if server.admin().in_maintenance() { Operational::Stopped } else { server.operational() }
}

/// A server was added to a backend.
pub fn added(proxy: &Proxy, server: &Server) {
    if are_wanted(ServerEventKind::Added as u32) {
        publish(proxy, server, ServerEventKind::Added, About::Nothing);
    }
}

/// A server was removed from a backend.
pub fn removed(proxy: &Proxy, server: &Server) {
    if are_wanted(ServerEventKind::Removed as u32) {
        publish(proxy, server, ServerEventKind::Removed, About::Nothing);
    }
}

/// A server's state may have changed: it was `old`, as [shown]. `requeued` requests waited for it
/// then.
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

/// What an administrator says of a server changed from `old`. `requeued` requests waited for it
/// then.
pub fn administered(proxy: &Proxy, server: &Server, old: Admin, requeued: u32, cause: &str) {
    if are_wanted(ServerEventKind::Admin as u32) {
        let change = AdminChange { cause: cause.to_owned(), old, new: server.admin(), requeued };
        publish(proxy, server, ServerEventKind::Admin, About::Admin(change));
    }
}

/// A check of a server, or of its agent, came to another result than the one before.
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
    fn a_subscriber_hears_of_the_servers_and_kinds_that_it_asked_for_until_it_leaves() {
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
