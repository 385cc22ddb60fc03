//! A proxy (frontend, backend, listen) as it is now, and its listeners.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use arc_swap::{ArcSwap, ArcSwapOption};
use runtime::Sharded;
use runtime::shard::Padded;
use runtime::shared::{Shared as _, note_write};

use crate::counters::{BackendCounters, FrontendCounters, ListenerCounters};
use crate::extra_attempts::ExtraAttempts;
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
}

impl Mode {
    /// The keyword.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Http => "http",
            Self::Log => "log",
            Self::Spop => "spop",
        }
    }
}

/// What a frontend does with connections now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Admission {
    /// Listening.
    Open = 0,
    /// `disable frontend`: sockets kept, not accepting.
    Paused = 1,
    /// `shutdown frontend`, or a soft stop: sockets closed.
    Stopped = 2,
}

/// A server of some backend that tracks a server of this one.
#[derive(Debug)]
pub(crate) struct Tracker {
    /// The server of this backend.
    pub(crate) tracked: Weak<Server>,
    /// The backend of the server that tracks it.
    pub(crate) backend: Weak<Proxy>,
    /// The server that tracks it.
    pub(crate) server: Weak<Server>,
}

/// One proxy.
#[derive(Debug)]
pub struct Proxy {
    /// `id`: unique in the process, starting at 2 for the first proxy as HAProxy counts.
    pub id: u32,
    /// Whether the configuration says that number; set once, by the configuration.
    pub forced_id: AtomicBool,
    /// What the configuration says of it. Written by a reload.
    configured: ArcSwap<ProxySeed>,
    /// Its name.
    pub name: Box<str>,
    /// What it forwards.
    pub mode: Mode,
    /// Whether it has a frontend's side.
    pub is_frontend: bool,
    /// Whether it has a backend's side.
    pub is_backend: bool,
    /// Counters of the frontend's side.
    pub frontend: Sharded<FrontendCounters>,
    /// Counters of the backend's side.
    pub backend: Sharded<BackendCounters>,
    /// Connections of the frontend now. Written at accept and at close by every worker; apart from
    /// what requests read.
    pub connections: Padded<AtomicU32>,
    /// The most connections at once (`smax` of the frontend).
    pub connections_max: AtomicU32,
    /// The frontend's `maxconn`; `set maxconn frontend` writes it.
    pub maxconn: AtomicU32,
    /// `rate-limit sessions`, 0 for none; `set rate-limit` is the process's own.
    pub session_limit: AtomicU32,
    /// How many requests of the backend count as full load (`fullconn`), at least 1. Written once,
    /// at boot.
    pub fullconn: AtomicU32,
    admission: AtomicU8,
    /// Requests that wait for any server.
    pub queue: Queue,
    /// The backend's servers, in the order of the configuration. Replaced whole when a server is
    /// added or removed.
    pub servers: ArcSwap<Vec<Arc<Server>>>,
    /// The servers that track one of these; `tracking` writes it.
    pub(crate) trackers: Mutex<Vec<Tracker>>,
    /// The listeners of its frontend.
    pub listeners: ArcSwap<Vec<Arc<Listener>>>,
    /// Whether the backend is down (no usable server), for transition messages.
    pub down: AtomicBool,
    /// When the backend's state last changed, in ms.
    pub changed_at: AtomicU64,
    /// When a session last ended, in ms; 0 for never.
    pub last_session: AtomicU64,
    /// Times the backend went down.
    pub downs: AtomicU32,
    /// Timeouts in ms, 0 for none: client, server, tunnel, connect, queue, tarpit. Written when a
    /// plan is resolved, for `fe_client_timeout` and the other fetches of timeouts.
    pub timeouts: [AtomicU32; 6],
    /// `retries`. Written when a plan is resolved.
    pub retries: AtomicU32,
    /// `default_backend` (`fe_defbe`). Written when a plan is resolved.
    pub default_backend: ArcSwapOption<Box<str>>,
    /// What its servers' FastCGI application is told (`use-fcgi-app`). Written when a plan is resolved.
    pub application: ArcSwapOption<Application>,
    /// `guid`; set once, by the configuration.
    pub guid: OnceLock<Box<str>>,
    /// What agents know the engine by whose questions come from here (SPOE). Set where that is made;
    /// empty for proxies of the configuration.
    pub engine_id: OnceLock<Box<str>>,
    /// Whether the configuration names this backend: it stays then. Set while the configuration is
    /// read.
    pub referenced: AtomicBool,
    /// The longest value of each slot for captures, of requests and of responses. Set while the
    /// configuration is read.
    pub capture_lengths: ArcSwapOption<[Box<[usize]>; 2]>,
    /// Whether it was removed at run time (`del backend`). Written by the runtime socket.
    pub removed: AtomicBool,
    /// `be-unpublished`, `unpublish backend`: rules of other proxies do not choose it. Written by
    /// the runtime socket.
    pub unpublished: AtomicBool,
    /// Whether cookies are made of the servers' addresses (`cookie … dynamic`). Written by the
    /// runtime socket.
    pub dynamic_cookies: AtomicBool,
    /// `dynamic-cookie-key`. Written by the runtime socket.
    pub dynamic_key: ArcSwapOption<Box<str>>,
    /// What is known of attempts beyond the first of its requests, where anything limits or makes
    /// them.
    extra: OnceLock<Box<ExtraAttempts>>,
    /// What is counted of copies of requests that come here, where a rule sends any.
    mirror: OnceLock<Box<Mirror>>,
}

/// What is known of a FastCGI application (`fcgi-app`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Application {
    /// `docroot`.
    pub docroot: Box<str>,
    /// `index`.
    pub index: Option<Box<str>>,
}

/// What makes a proxy at boot.
#[derive(Debug, Clone)]
pub struct ProxySeed {
    /// `id`.
    pub id: u32,
    /// Its name.
    pub name: Box<str>,
    /// `mode`.
    pub mode: Mode,
    /// Whether it has a frontend's side.
    pub is_frontend: bool,
    /// Whether it has a backend's side.
    pub is_backend: bool,
    /// `maxconn`, 0 for the process's own limit.
    pub maxconn: u32,
    /// `rate-limit sessions`, 0 for none.
    pub session_limit: u32,
    /// `disabled`.
    pub disabled: bool,
}

impl Proxy {
    /// The key that cookies of the servers' addresses are made with; `None` where they are not.
    pub fn cookie_key(&self) -> Option<Arc<Box<str>>> {
        self.dynamic_cookies.load(Relaxed).then(|| self.dynamic_key.load_full()).flatten()
    }

    /// What is known of attempts beyond the first, once there was a need to.
    pub fn extra(&self) -> Option<&ExtraAttempts> {
        self.extra.get().map(Box::as_ref)
    }

    /// The same, from now on at the latest.
    pub fn keep_extra(&self) -> &ExtraAttempts {
        self.extra.get_or_init(Box::default)
    }

    /// What is counted of copies of requests that come here, where a rule sends any.
    pub fn mirror(&self) -> Option<&Mirror> {
        self.mirror.get().map(Box::as_ref)
    }

    /// The same, from now on at the latest.
    pub fn keep_mirror(&self) -> &Mirror {
        self.mirror.get_or_init(Box::default)
    }

    /// A proxy without servers or listeners.
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
            frontend: Sharded::default(),
            backend: Sharded::default(),
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
            last_session: AtomicU64::new(0),
            downs: AtomicU32::new(0),
            unpublished: AtomicBool::new(false),
            dynamic_cookies: AtomicBool::new(false),
            dynamic_key: ArcSwapOption::empty(),
            extra: OnceLock::new(),
            mirror: OnceLock::new(),
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

    /// Whether a proxy of a plan made anew is this one: what cannot change in it is the same.
    pub fn may_become(&self, seed: &ProxySeed) -> bool {
        let own = self.configured.load();
        let same = (self.id, &self.name, self.mode) == (seed.id, &seed.name, seed.mode)
            && (self.is_frontend, self.is_backend) == (seed.is_frontend, seed.is_backend);
        same && own.disabled == seed.disabled && !self.removed.load(Relaxed)
    }

    /// What the configuration says of it.
    pub fn configured(&self) -> Arc<ProxySeed> {
        self.configured.load_full()
    }

    /// Takes what a plan made anew says: what it says as before stays as it is now, whoever changed
    /// it since.
    pub fn renew(&self, seed: ProxySeed) {
        let old = self.configured.load_full();
        if old.maxconn != seed.maxconn {
            self.maxconn.store(seed.maxconn, Relaxed);
        }
        if old.session_limit != seed.session_limit {
            self.session_limit.store(seed.session_limit, Relaxed);
        }
        self.referenced.store(false, Relaxed);
        // The plan that follows adds its own.
        self.trackers.lock().unwrap_or_else(PoisonError::into_inner).clear();
        self.configured.store(Arc::new(seed));
    }

    /// Whether connections are accepted now.
    pub fn admission(&self) -> Admission {
        match self.admission.load(Relaxed) {
            1 => Admission::Paused,
            2 => Admission::Stopped,
            _ => Admission::Open,
        }
    }

    /// Changes whether connections are accepted; listeners look at it when they are woken.
    pub fn set_admission(&self, admission: Admission) {
        self.admission.store(admission as u8, Relaxed);
        for listener in self.listeners.load().iter() {
            listener.wake();
        }
    }

    /// Takes a connection's place if the frontend's limit allows one more.
    pub fn try_connect(&self) -> bool {
        let limit = self.maxconn.load(Relaxed);
        let taken = self.connections.take_below(if limit == 0 { u32::MAX } else { limit });
        if let Ok(before) = taken {
            self.connections_max.raise(before + 1);
        }
        taken.is_ok()
    }

    /// Gives a connection's place back; who waits to accept is woken when the frontend was full.
    pub fn disconnect(&self) {
        let before = self.connections.sub(1);
        if before == self.maxconn.load(Relaxed) {
            for listener in self.listeners.load().iter() {
                listener.wake();
            }
        }
    }

    /// The server named `name`, or with id `#n`.
    pub fn server(&self, name: &str) -> Option<Arc<Server>> {
        let servers = self.servers.load();
        let found = match name.strip_prefix('#').and_then(|id| id.parse::<u32>().ok()) {
            Some(id) => servers.iter().find(|server| server.id == id),
            None => servers.iter().find(|server| &*server.name == name),
        };
        found.cloned()
    }

    /// How many servers can take requests: the active ones, and the backup ones.
    pub fn usable(&self) -> (u32, u32) {
        self.servers.load().iter().filter(|server| server.effective_weight() > 0).fold(
            (0, 0),
            |(active, backup), server| {
                if server.backup { (active, backup + 1) } else { (active + 1, backup) }
            },
        )
    }

    /// The sum of the weights that count now: of the active servers, or of the backups when none is
    /// active.
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
    /// `id`; 0 where nobody listens.
    pub id: u32,
    /// `name`, or `sock-N` as HAProxy names them in the statistics.
    pub name: Box<str>,
    /// The address as bound, for the statistics.
    pub address: Box<str>,
    /// The bind's own `maxconn`, 0 for none.
    pub maxconn: u32,
    /// What `guid-prefix` makes of it; set once, by the configuration.
    pub guid: OnceLock<Box<str>>,
    /// Connections now.
    pub connections: AtomicU32,
    /// Counters, where `option socket-stats` asks for them; see [`count`](Self::count).
    pub counters: OnceLock<Sharded<ListenerCounters>>,
    /// Tasks that wait until accepting is allowed again.
    waiting: Mutex<Vec<std::task::Waker>>,
    /// How often they were woken, and then forgotten. Written under that lock.
    wakes: AtomicU32,
}

impl Listener {
    /// A listener with no connection.
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

    /// That of sessions which no listener accepted: they take no places in any limit.
    pub fn nobody() -> Self {
        Self::new(0, "".into(), "".into(), 0)
    }

    /// The name that its `bind` line gives; `None` for that of the statistics, `sock-N`.
    pub fn given_name(&self) -> Option<&str> {
        let number = self.name.strip_prefix("sock-");
        let is_made = number.is_some_and(|number| number.parse() == Ok(self.id));
        if is_made { None } else { Some(&self.name) }
    }

    /// Whether it is [`nobody`](Self::nobody)'s.
    #[inline]
    pub fn is_nobody(&self) -> bool {
        self.id == 0
    }

    /// Has it count what passes through it (`option socket-stats`). Called while the configuration
    /// is read.
    pub fn count(&self) {
        self.counters.get_or_init(Sharded::default);
    }

    /// The calling worker's counters, if it counts.
    #[inline]
    pub fn mine(&self) -> Option<&ListenerCounters> {
        self.counters.get().map(Sharded::mine)
    }

    /// Registers the accepting task, to be woken by [`wake`](Self::wake); the number is for
    /// [`is_registered`](Self::is_registered).
    pub fn wait(&self, waker: std::task::Waker) -> u32 {
        note_write();
        let mut waiting = self.waiting.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if !waiting.iter().any(|other| other.will_wake(&waker)) {
            waiting.push(waker);
        }
        self.wakes.load(Relaxed)
    }

    /// Whether what was registered as `number` still is: it takes no lock.
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
    fn a_full_frontend_takes_no_connection_until_one_ends() {
        let proxy = proxy(1);
        assert!(proxy.try_connect());
        assert!(!proxy.try_connect());
        proxy.disconnect();
        assert!(proxy.try_connect());
        assert_eq!(proxy.connections_max.load(Relaxed), 1);
    }
}
