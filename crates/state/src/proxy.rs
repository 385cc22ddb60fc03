//! The current state of a proxy (frontend, backend, listen) and its listeners.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use once_cell::race::OnceBox;
use runtime::LazySharded;
use runtime::shard::Padded;
use runtime::shared::{Shared as _, note_write};

use crate::LastSession;
use crate::counters::{BackendCounters, FrontendCounters, ListenerCounters};
use crate::durations::ProxyDurations;
use crate::extra_attempts::ExtraAttempts;
use crate::faults::Faults;
use crate::history::{OF_PROXY, OptionalHistory, ResponseTimes};
use crate::journal::{EventTopic, RepeatedEvent};
use crate::mirror::Mirror;
use crate::queue::Queue;
use crate::server::Server;

/// `mode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mode {
    /// Bytes.
    #[default]
    Tcp,
    /// HTTP messages.
    Http,
    /// Log messages.
    Log,
    /// SPOP frames.
    Spop,
    /// Datagrams.
    Udp,
}

impl Mode {
    /// The keyword.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Log => "log",
            Self::Spop => "spop",
            Self::Udp => "udp",
        }
    }
}

/// A frontend's handling of connections.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Admission {
    /// Listening.
    Open = 0,
    /// `disable frontend`: sockets are kept, but accept no connections.
    Paused = 1,
    /// `shutdown frontend`, or a soft stop: sockets are closed.
    Stopped = 2,
}

/// A server in any backend that tracks a server of this backend.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// The server of this backend.
    pub(crate) tracked: Weak<Server>,
    /// The backend of the tracking server.
    pub(crate) backend: Weak<Proxy>,
    /// The tracking server.
    pub(crate) server: Weak<Server>,
}

/// A proxy.
#[derive(Debug)]
pub struct Proxy {
    /// `id`: unique in the process. As in HAProxy, the first proxy has id 2.
    pub id: u32,
    /// Whether the id is configured explicitly; set once, by the configuration.
    pub forced_id: AtomicBool,
    /// The configuration of the proxy. Written by a reload.
    configured: ArcSwap<ProxySeed>,
    /// The name of the proxy.
    pub name: Box<str>,
    /// The kind of traffic.
    pub mode: Mode,
    /// Whether the proxy is a frontend.
    pub is_frontend: bool,
    /// Whether the proxy is a backend.
    pub is_backend: bool,
    /// Counters of the frontend's side.
    pub frontend: LazySharded<FrontendCounters>,
    /// Counters of the backend's side.
    pub backend: LazySharded<BackendCounters>,
    /// The abnormal ends of its streams.
    pub faults: Faults,
    /// The frontend's `maxconn` was reached.
    pub connections_full: RepeatedEvent,
    /// The times of requests.
    pub durations: ProxyDurations,
    /// The frontend's current connections. Every worker writes it at accept and close, so it is separate from data that requests
    /// read.
    pub connections: Padded<AtomicU32>,
    /// The maximum number of concurrent connections (`smax` of the frontend).
    pub connections_max: AtomicU32,
    /// The frontend's `maxconn`. Written by `set maxconn frontend`.
    pub maxconn: AtomicU32,
    /// `rate-limit sessions`; 0 for none. `set rate-limit` is process-wide.
    pub session_limit: AtomicU32,
    /// The number of requests at which the backend is fully loaded (`fullconn`), at least 1. Written once, at startup.
    pub fullconn: AtomicU32,
    admission: AtomicU8,
    /// Requests waiting for any server.
    pub queue: Queue,
    /// The backend's servers, in configuration order. The list is replaced as a whole when a server is added or removed.
    pub servers: ArcSwap<Vec<Arc<Server>>>,
    /// The servers that track a server of this backend. Written by `tracking`.
    pub(crate) trackers: Mutex<Vec<Tracker>>,
    /// The listeners of the frontend.
    pub listeners: ArcSwap<Vec<Arc<Listener>>>,
    /// Whether the backend is down (no usable server), for transition messages.
    pub down: AtomicBool,
    /// When the backend's state last changed, in ms.
    pub changed_at: AtomicU64,
    /// When the last session began.
    pub last_session: LastSession,
    /// Times the backend went down.
    pub downs: AtomicU32,
    /// Timeouts in ms: client, server, tunnel, connect, queue, tarpit; 0 for none. Written when a plan is resolved. Read by
    /// `fe_client_timeout` and the other timeout fetches.
    pub timeouts: [AtomicU32; 6],
    /// `retries`. Written when a plan is resolved.
    pub retries: AtomicU32,
    /// `default_backend` (`fe_defbe`). Written when a plan is resolved.
    pub default_backend: ArcSwapOption<Box<str>>,
    /// The FastCGI application of the servers (`use-fcgi-app`). Written when a plan is resolved.
    pub application: ArcSwapOption<Application>,
    /// `guid`. Set once, by the configuration.
    pub guid: OnceLock<Box<str>>,
    /// The engine id by which agents identify queries of this proxy (SPOE). Set at creation; empty for configured proxies.
    pub engine_id: OnceLock<Box<str>>,
    /// Whether the configuration refers to this backend, so that the backend cannot be removed. Set while the configuration is
    /// read.
    pub referenced: AtomicBool,
    /// The maximum length of each capture slot, for requests and responses. Set while the configuration is read.
    pub capture_lengths: ArcSwapOption<[Box<[usize]>; 2]>,
    /// Whether the proxy was removed at run time (`del backend`). Written by the runtime socket.
    pub removed: AtomicBool,
    /// `be-unpublished`, `unpublish backend`: whether rules of other proxies ignore this backend. Written by the runtime socket.
    pub unpublished: AtomicBool,
    /// Whether cookies are derived from the servers' addresses (`cookie … dynamic`). Written by the runtime socket.
    pub dynamic_cookies: AtomicBool,
    /// `dynamic-cookie-key`. Written by the runtime socket.
    pub dynamic_key: ArcSwapOption<Box<str>>,
    /// The state of extra attempts of the backend's requests, if a setting limits or enables them.
    extra: OnceLock<Box<ExtraAttempts>>,
    /// The counters of request copies sent to this backend, if a rule sends any.
    mirror: OnceLock<Box<Mirror>>,
    /// The last minutes of the frontend's side, if they are sampled. Written by the sampler.
    pub frontend_history: OptionalHistory<OF_PROXY>,
    /// The last minutes of the backend's side, if they are sampled. Written by the sampler.
    pub backend_history: OptionalHistory<OF_PROXY>,
    /// How long responses of the backend took in the last minutes, if that is sampled. Written by the sampler.
    pub response_times: OnceLock<Box<ResponseTimes>>,
}

/// A FastCGI application (`fcgi-app`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    /// `docroot`.
    pub docroot: Box<[u8]>,
    /// `index`.
    pub index: Option<Box<[u8]>>,
}

/// The configuration from which a proxy is created.
#[derive(Debug, Clone)]
pub struct ProxySeed {
    /// `id`.
    pub id: u32,
    /// The name of the proxy.
    pub name: Box<str>,
    /// `mode`.
    pub mode: Mode,
    /// Whether the proxy is a frontend.
    pub is_frontend: bool,
    /// Whether the proxy is a backend.
    pub is_backend: bool,
    /// `maxconn`, 0 for the process's limit.
    pub maxconn: u32,
    /// `rate-limit sessions`, 0 for none.
    pub session_limit: u32,
    /// `disabled`.
    pub disabled: bool,
}

impl Proxy {
    /// Returns the key for deriving cookies from the servers' addresses, or `None` if cookies are not derived.
    pub fn cookie_key(&self) -> Option<Arc<Box<str>>> {
        self.dynamic_cookies.load(Relaxed).then(|| self.dynamic_key.load_full()).flatten()
    }

    /// Returns the state of extra attempts, if it exists.
    pub fn extra(&self) -> Option<&ExtraAttempts> {
        self.extra.get().map(Box::as_ref)
    }

    /// Returns the state of extra attempts, creating it if necessary.
    pub fn keep_extra(&self) -> &ExtraAttempts {
        self.extra.get_or_init(Box::default)
    }

    /// Returns the counters of request copies sent to this backend, if they exist.
    pub fn mirror(&self) -> Option<&Mirror> {
        self.mirror.get().map(Box::as_ref)
    }

    /// Returns the counters of request copies sent to this backend, creating them if necessary.
    pub fn keep_mirror(&self) -> &Mirror {
        self.mirror.get_or_init(Box::default)
    }

    /// Creates a proxy without servers or listeners.
    pub fn new(seed: ProxySeed) -> Self {
        let configured = ArcSwap::from_pointee(seed.clone());
        Self {
            id: seed.id,
            configured,
            forced_id: AtomicBool::new(false),
            name: seed.name,
            mode: seed.mode,
            is_frontend: seed.is_frontend,
            is_backend: seed.is_backend,
            frontend: LazySharded::default(),
            backend: LazySharded::default(),
            faults: Faults::default(),
            connections_full: RepeatedEvent::new(),
            durations: ProxyDurations::default(),
            connections: Padded::default(),
            connections_max: AtomicU32::new(0),
            maxconn: AtomicU32::new(seed.maxconn),
            fullconn: AtomicU32::new(1),
            session_limit: AtomicU32::new(seed.session_limit),
            admission: AtomicU8::new(if seed.disabled { Admission::Stopped } else { Admission::Open } as u8),
            queue: Queue::default(),
            servers: ArcSwap::default(),
            trackers: Mutex::default(),
            listeners: ArcSwap::default(),
            down: AtomicBool::new(false),
            changed_at: AtomicU64::new(0),
            last_session: LastSession::default(),
            downs: AtomicU32::new(0),
            unpublished: AtomicBool::new(false),
            dynamic_cookies: AtomicBool::new(false),
            dynamic_key: ArcSwapOption::empty(),
            extra: OnceLock::new(),
            mirror: OnceLock::new(),
            frontend_history: OnceBox::new(),
            backend_history: OnceBox::new(),
            response_times: OnceLock::new(),
            timeouts: Default::default(),
            retries: AtomicU32::new(3),
            default_backend: ArcSwapOption::empty(),
            application: ArcSwapOption::empty(),
            guid: OnceLock::new(),
            engine_id: OnceLock::new(),
            referenced: AtomicBool::new(false),
            removed: AtomicBool::new(false),
            capture_lengths: ArcSwapOption::empty(),
        }
    }

    /// Whether the proxy can be kept for a new plan, because none of its fixed properties has changed.
    pub fn may_become(&self, seed: &ProxySeed) -> bool {
        let own = self.configured.load();
        let same = (self.id, &self.name, self.mode) == (seed.id, &seed.name, seed.mode)
            && (self.is_frontend, self.is_backend) == (seed.is_frontend, seed.is_backend);
        same && own.disabled == seed.disabled && !self.removed.load(Relaxed)
    }

    /// Returns the configuration of the proxy.
    pub fn configured(&self) -> Arc<ProxySeed> {
        self.configured.load_full()
    }

    /// Applies the settings of a new plan. A setting whose configuration is unchanged keeps its current value, even if the value
    /// was changed at run time.
    pub fn renew(&self, seed: ProxySeed) {
        let old = self.configured.load_full();
        if old.maxconn != seed.maxconn {
            self.maxconn.store(seed.maxconn, Relaxed);
        }
        if old.session_limit != seed.session_limit {
            self.session_limit.store(seed.session_limit, Relaxed);
        }
        self.referenced.store(false, Relaxed);
        // The new plan adds its own trackers.
        self.trackers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.configured.store(Arc::new(seed));
    }

    /// Returns whether connections are accepted.
    pub fn admission(&self) -> Admission {
        match self.admission.load(Relaxed) {
            1 => Admission::Paused,
            2 => Admission::Stopped,
            _ => Admission::Open,
        }
    }

    /// Sets whether connections are accepted, and wakes the listeners to check it.
    pub fn set_admission(&self, admission: Admission) {
        self.admission.store(admission as u8, Relaxed);
        for listener in self.listeners.load().iter() {
            listener.wake();
        }
    }

    /// Takes a connection slot if the frontend's limit allows one more. Records in the journal if it was the last one.
    pub fn try_connect(&self) -> bool {
        let limit = self.maxconn.load(Relaxed);
        let taken = self.connections.take_below(if limit == 0 { u32::MAX } else { limit });
        if let Ok(before) = taken {
            self.connections_max.raise(before + 1);
            if before + 1 == limit {
                self.connections_full.note(EventTopic::Limits, || {
                    let text = format!("maxconn {limit} of the frontend is reached: new connections wait.");
                    (self.name.to_string(), text)
                });
            }
        }
        taken.is_ok()
    }

    /// Releases a connection slot. If the frontend was full, listeners that wait to accept are woken.
    pub fn disconnect(&self) {
        let before = self.connections.sub(1);
        if before == self.maxconn.load(Relaxed) {
            for listener in self.listeners.load().iter() {
                listener.wake();
            }
        }
    }

    /// Returns the server named `name`, or with id `#n`.
    pub fn server(&self, name: &str) -> Option<Arc<Server>> {
        let servers = self.servers.load();
        let found = match name.strip_prefix('#').and_then(|id| id.parse::<u32>().ok()) {
            Some(id) => servers.iter().find(|server| server.id == id),
            None => servers.iter().find(|server| &*server.name == name),
        };
        found.cloned()
    }

    /// Returns how many servers can take requests: the number of active ones, and the number of backups.
    pub fn usable(&self) -> (u32, u32) {
        self.servers.load().iter().filter(|server| server.effective_weight() > 0).fold(
            (0, 0),
            |(active, backup), server| {
                if server.backup { (active, backup + 1) } else { (active + 1, backup) }
            },
        )
    }

    /// Returns the sum of the effective weights: of the active servers, or of the backups if none is active.
    pub fn total_weight(&self) -> u32 {
        let servers = self.servers.load();
        let sum = |backup| {
            servers
                .iter()
                .filter(|server| server.backup == backup)
                .map(|server| server.effective_weight())
                .sum()
        };
        match sum(false) {
            0 => sum(true),
            active => active,
        }
    }
}

/// One bound address of a frontend.
#[derive(Debug)]
pub struct Listener {
    /// `id`; 0 for sessions without a listener.
    pub id: u32,
    /// `name`, or `sock-N`, HAProxy's name in the statistics.
    pub name: Box<str>,
    /// The address as bound, for the statistics.
    pub address: Box<str>,
    /// The `maxconn` of the `bind` line; 0 for none.
    pub maxconn: u32,
    /// Derived from `guid-prefix`. Set once, by the configuration.
    pub guid: OnceLock<Box<str>>,
    /// Current connections.
    pub connections: AtomicU32,
    /// Counters, if enabled by `option socket-stats`; see [`count`](Self::count).
    pub counters: OnceLock<LazySharded<ListenerCounters>>,
    /// Tasks waiting until accepting is allowed again.
    waiting: Mutex<Vec<std::task::Waker>>,
    /// How often the waiting tasks were woken. Written while the lock of `waiting` is held.
    wakes: AtomicU32,
}

impl Listener {
    /// Creates a listener without connections.
    pub fn new(id: u32, name: Box<str>, address: Box<str>, maxconn: u32) -> Self {
        Self {
            id,
            name,
            address,
            maxconn,
            guid: OnceLock::new(),
            connections: AtomicU32::new(0),
            counters: OnceLock::new(),
            waiting: Mutex::default(),
            wakes: AtomicU32::new(0),
        }
    }

    /// Creates the listener for sessions that no listener accepted. They take no slots of any limit.
    pub fn placeholder() -> Self {
        Self::new(0, "".into(), "".into(), 0)
    }

    /// Returns the name set by its `bind` line, or `None` for the default, `sock-N`.
    pub fn given_name(&self) -> Option<&str> {
        let number = self.name.strip_prefix("sock-");
        let is_made = number.is_some_and(|number| number.parse() == Ok(self.id));
        if is_made { None } else { Some(&self.name) }
    }

    /// Whether it was created by [`placeholder`](Self::placeholder).
    #[inline]
    pub fn is_placeholder(&self) -> bool {
        self.id == 0
    }

    /// Enables the listener's counters (`option socket-stats`). Called while the configuration is read.
    pub fn count(&self) {
        self.counters.get_or_init(LazySharded::default);
    }

    /// Returns the calling worker's counters, if enabled.
    #[inline]
    pub fn mine(&self) -> Option<&ListenerCounters> {
        self.counters.get().map(LazySharded::mine)
    }

    /// Registers the accepting task, which [`wake`](Self::wake) then wakes. Returns a number for
    /// [`is_registered`](Self::is_registered).
    pub fn wait(&self, waker: std::task::Waker) -> u32 {
        note_write();
        let mut waiting = self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !waiting.iter().any(|other| other.will_wake(&waker)) {
            waiting.push(waker);
        }
        self.wakes.load(Relaxed)
    }

    /// Whether the registration with this `number` is still valid. Takes no lock.
    #[inline]
    pub fn is_registered(&self, number: u32) -> bool {
        self.wakes.load(Relaxed) == number
    }

    /// Wakes the accepting tasks.
    pub fn wake(&self) {
        note_write();
        let mut waiting = self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        self.wakes.fetch_add(1, Relaxed);
        let woken = std::mem::take(&mut *waiting);
        drop(waiting);
        woken.into_iter().for_each(std::task::Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy(maxconn: u32) -> Proxy {
        Proxy::new(ProxySeed {
            id: 2,
            name: "fe".into(),
            mode: Mode::Http,
            is_frontend: true,
            is_backend: false,
            maxconn,
            session_limit: 0,
            disabled: false,
        })
    }

    #[test]
    fn a_full_frontend_rejects_connections_until_one_ends() {
        let proxy = proxy(1);
        assert!(proxy.try_connect());
        assert!(!proxy.try_connect());
        proxy.disconnect();
        assert!(proxy.try_connect());
        assert_eq!(proxy.connections_max.load(Relaxed), 1);
    }
}
