//! What control knows: the process's state, and a plain view of the configuration that is replaced
//! at a reload.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use base::clock::{WallTime, now_ms};
use base::event_counter::EventCounter;

use crate::runtime_edit::{Keeper, Reloader, Scripts};
use crate::sharing::SharedCounters;

/// Who may do what on a runtime socket (`level`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum AccessLevel {
    /// Only what is harmless to see.
    User,
    /// Everything that only looks, and counters.
    #[default]
    Operator,
    /// Everything.
    Admin,
}

impl AccessLevel {
    /// The keyword.
    pub fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

/// `severity-output` of a runtime socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum SeverityOutput {
    /// Not shown.
    #[default]
    None,
    /// As a number.
    Number,
    /// As a word.
    String,
}

/// A server, as far as its configuration matters here.
#[derive(Debug, Clone)]
pub struct ServerView {
    /// The server as it is now.
    pub state: Arc<state::Server>,
    /// `cookie`.
    pub cookie: Option<Box<str>>,
    /// `pool-max-conn`, -1 for no limit.
    pub pool_max: i64,
    /// `pool-purge-delay`.
    pub pool_purge: Duration,
}

/// What protects a backend's servers and requests from each other's failures.
#[derive(Debug, Clone, Default)]
pub struct PoliciesView {
    /// Whether it has `outlier-ejection`.
    pub outliers: bool,
    /// `retry-budget`: the share in percent, and `min`.
    pub budget: Option<(u32, u32)>,
    /// `hedge`: `after` as it is written, the delay in µs where it is a time, and `max` in percent.
    pub hedge: Option<(Box<str>, Option<u64>, u32)>,
}

/// A proxy, as far as its configuration matters here.
#[derive(Debug, Clone)]
pub struct ProxyView {
    /// The proxy as it is now.
    pub state: Arc<state::Proxy>,
    /// `balance`, as the statistics name it.
    pub algorithm: &'static str,
    /// Whether that algorithm takes other weights than all of the initial one or none.
    pub dynamic_weights: bool,
    /// `cookie` of the backend.
    pub cookie: Option<Box<str>>,
    /// `description`.
    pub description: Option<Box<str>>,
    /// `option socket-stats`: listeners have lines of their own.
    pub listeners: bool,
    /// `outlier-ejection`, `retry-budget` and `hedge`.
    pub policies: PoliciesView,
    /// Servers of the configuration, by id.
    pub servers: HashMap<u32, ServerView>,
}

impl ProxyView {
    /// The configuration of a server; `None` for one added at run time.
    pub fn server(&self, id: u32) -> Option<&ServerView> {
        self.servers.get(&id)
    }
}

/// A runtime socket, for `show cli sockets`.
#[derive(Debug, Clone)]
pub struct SocketView {
    /// The address as HAProxy shows it: `unix@/path`, `ipv4@…`.
    pub address: String,
    /// Its level.
    pub level: AccessLevel,
}

/// What control knows of the configuration.
#[derive(Debug, Clone)]
pub struct ConfigView {
    /// `node`, or the host's name.
    pub node: String,
    /// `description`.
    pub description: Option<String>,
    /// All proxies that are not `disabled`, in the order of the configuration.
    pub proxies: Vec<ProxyView>,
    /// The names of backends that are, which commands know only to say so.
    pub disabled_backends: Vec<String>,
    /// Runtime sockets.
    pub sockets: Vec<SocketView>,
    /// `stats timeout`.
    pub timeout: Duration,
    /// `stats maxconn`.
    pub max_sessions: u32,
    /// Largest command line, `tune.bufsize`.
    pub line_length: usize,
    /// Longest payload of a command, `tune.cli.max-payload-size`.
    pub payload_length: usize,
    /// The environment, for `show env`.
    pub environment: Vec<(String, String)>,
    /// What was said while starting, for `show startup-logs`.
    pub startup_log: String,
    /// `busy-polling`.
    pub busy_polling: bool,
    /// The limit of memory in bytes (`-m`); 0 for none.
    pub memory_limit: u64,
    /// `maxzlibmem`, in bytes; 0 for none.
    pub compression_memory: u64,
    /// The limit of open files.
    pub open_files: u64,
    /// Thread groups.
    pub placement: runtime::placement::Placement,
    /// Lists of patterns: ACLs and maps.
    pub patterns: Arc<sample::pattern::PatternSets>,
    /// Certificates of JSON Web Tokens.
    pub certificates: Arc<sample::keys::Certificates>,
    /// Stick tables.
    pub tables: Vec<Arc<state::table::Table>>,
    /// The stores of caches.
    pub caches: Vec<Arc<cache::Store>>,
    /// The files of TLS.
    pub tls: Arc<tls::files::Files>,
    /// `resolvers` sections.
    pub resolvers: Vec<Arc<state::resolvers::ResolversSection>>,
    /// Rings.
    pub rings: Vec<Arc<state::Ring>>,
    /// Certificates that are ordered.
    pub orders: Vec<Arc<state::acme::Order>>,
}

impl Default for ConfigView {
    fn default() -> Self {
        Self {
            node: String::new(),
            description: None,
            proxies: Vec::new(),
            disabled_backends: Vec::new(),
            sockets: Vec::new(),
            timeout: Duration::from_secs(10),
            max_sessions: 10,
            line_length: 16_384,
            payload_length: 128 * 1024,
            environment: Vec::new(),
            startup_log: String::new(),
            busy_polling: false,
            memory_limit: 0,
            compression_memory: 0,
            open_files: 0,
            placement: Default::default(),
            patterns: Arc::default(),
            certificates: Arc::default(),
            tables: Vec::new(),
            caches: Vec::new(),
            tls: Arc::default(),
            resolvers: Vec::new(),
            rings: Vec::new(),
            orders: Vec::new(),
        }
    }
}

/// Takes a message: the proxy it is about, its syslog level, its text.
pub type Notify = Arc<dyn Fn(&state::Proxy, u8, &str) + Send + Sync>;

/// Shows `peers` sections, all or one, and whether with the dictionaries of sessions; `None` where
/// there is no such section.
pub type ShowPeers =
    Box<dyn Fn(Option<&str>, bool) -> Option<Pin<Box<dyn Future<Output = String>>>> + Send + Sync>;

/// What a new view of the configuration replaces, and what lives on.
pub struct Runtime {
    /// The process's counters and limits.
    pub process: Arc<state::Process>,
    /// Product name of `show info`.
    pub name: &'static str,
    /// The version shown.
    pub version: &'static str,
    /// The release date shown, `YYYY/MM/DD`.
    pub date: &'static str,
    /// How many pipes of splicing there may be, are in use and are kept; zeros where nothing asks
    /// for splicing.
    pub pipes: fn() -> [usize; 3],
    /// How much memory compression takes, in bytes.
    pub compression_memory: fn() -> u64,
    /// How many warnings were said on standard error (`TotalWarnings`).
    pub warnings: fn() -> u64,
    /// When the process started.
    pub started: WallTime,
    /// The same by the monotonic clock, which begins with the program: what reading the
    /// configuration took.
    pub started_ms: u64,
    /// The key that anonymized connections have unless they name one (`set anon global-key`); 0 for
    /// none.
    pub anonymous_key: std::sync::atomic::AtomicU32,
    /// Runtime sessions now.
    pub(crate) sessions: std::sync::atomic::AtomicU32,
    /// Told whenever one of them ends.
    pub(crate) left: tokio::sync::Notify,
    /// CPU time and instant at the last `show info`, for `Idle_pct`.
    pub(crate) cpu_seen: std::sync::Mutex<(u64, u64)>,
    pub(crate) notify: Option<Notify>,
    /// Versions of lists under preparation.
    pub(crate) versions: std::sync::Mutex<crate::versions::Versions>,
    /// Who shows `peers` sections; set once.
    pub peers: std::sync::OnceLock<ShowPeers>,
    /// Who makes and removes servers.
    keeper: std::sync::RwLock<Option<Arc<dyn Keeper>>>,
    /// Who runs the commands of scripts.
    scripts: std::sync::RwLock<Option<Arc<dyn Scripts>>>,
    /// Who reads the configuration anew.
    pub(crate) reloader: std::sync::OnceLock<Arc<dyn Reloader>>,
    /// Counters of rare events; set once.
    rare: std::sync::OnceLock<Vec<&'static EventCounter>>,
    /// The counters that other processes see, and theirs; set once.
    sharing: std::sync::OnceLock<Arc<SharedCounters>>,
    view: ArcSwap<ConfigView>,
}

impl Runtime {
    /// The same, telling changes of servers to `notify`.
    #[must_use]
    pub fn with_notify(self, notify: Notify) -> Self {
        Self { notify: Some(notify), ..self }
    }

    /// A runtime that started now.
    pub fn new(process: Arc<state::Process>, view: ConfigView) -> Self {
        Self {
            process,
            name: "HAProxy",
            version: concat!("3.5.0-weir", env!("CARGO_PKG_VERSION")),
            date: "2026/11/21",
            pipes: || [0; 3],
            compression_memory: || 0,
            warnings: || 0,
            started: WallTime::now(),
            started_ms: now_ms(),
            anonymous_key: std::sync::atomic::AtomicU32::new(0),
            sessions: std::sync::atomic::AtomicU32::new(0),
            left: tokio::sync::Notify::new(),
            cpu_seen: std::sync::Mutex::default(),
            notify: None,
            versions: std::sync::Mutex::default(),
            peers: std::sync::OnceLock::new(),
            keeper: std::sync::RwLock::default(),
            scripts: std::sync::RwLock::default(),
            reloader: std::sync::OnceLock::new(),
            rare: std::sync::OnceLock::new(),
            sharing: std::sync::OnceLock::new(),
            view: ArcSwap::from_pointee(view),
        }
    }

    /// Says who makes and removes servers: with each plan another.
    pub fn keep(&self, keeper: Arc<dyn Keeper>) {
        *self.keeper.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(keeper);
    }

    /// Who runs the commands of scripts, from now on.
    pub fn set_scripts(&self, scripts: Arc<dyn Scripts>) {
        *self.scripts.write().unwrap_or_else(|poisoned| poisoned.into_inner()) = Some(scripts);
    }

    /// Who runs the commands of scripts.
    pub(crate) fn scripts(&self) -> Option<Arc<dyn Scripts>> {
        self.scripts.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Who makes and removes servers.
    pub(crate) fn keeper(&self) -> Option<Arc<dyn Keeper>> {
        self.keeper.read().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    /// Says who reads the configuration anew; the first word counts.
    pub fn reload_by(&self, reloader: Arc<dyn Reloader>) {
        let _ = self.reloader.set(reloader);
    }

    /// Says which rare events are counted; the first word counts.
    pub fn count_rare(&self, known: Vec<&'static EventCounter>) {
        let _ = self.rare.set(known);
    }

    /// The rare events that are counted.
    pub(crate) fn rare(&self) -> &[&'static EventCounter] {
        self.rare.get().map_or(&[], Vec::as_slice)
    }

    /// Says that counters are shared with other processes; the first word counts.
    pub fn share_counters(&self, shared: Arc<SharedCounters>) {
        let _ = self.sharing.set(shared);
    }

    /// The counters that are shared with other processes.
    pub fn shared_counters(&self) -> Option<&Arc<SharedCounters>> {
        self.sharing.get()
    }

    /// Brings up to date what other processes counted, for who is about to show counters.
    pub(crate) fn refresh_counters(&self) {
        if let Some(shared) = self.sharing.get() {
            shared.refresh(self.view().states());
        }
    }

    /// The view now.
    pub fn view(&self) -> Arc<ConfigView> {
        self.view.load_full()
    }

    /// Replaces the view: a reload.
    pub fn replace(&self, view: ConfigView) {
        // What goes has counted until now.
        self.refresh_counters();
        self.view.store(Arc::new(view));
    }

    /// Seconds since the start.
    pub fn uptime(&self) -> u64 {
        now_ms().saturating_sub(self.started_ms) / 1000
    }
}

impl ConfigView {
    /// The states of all proxies.
    pub fn states(&self) -> impl Iterator<Item = &Arc<state::Proxy>> {
        self.proxies.iter().map(|proxy| &proxy.state)
    }

    /// The proxy with that name or `#id`, of those `wanted` accepts.
    pub fn proxy(&self, name: &str, wanted: impl Fn(&state::Proxy) -> bool) -> Option<&ProxyView> {
        let id = name.strip_prefix('#').and_then(|id| id.parse::<u32>().ok());
        self.proxies
            .iter()
            .filter(|proxy| wanted(&proxy.state))
            .find(|proxy| id.map_or(*proxy.state.name == *name, |id| proxy.state.id == id))
    }

    /// The frontend with that name or `#id`.
    pub fn frontend(&self, name: &str) -> Option<&ProxyView> {
        self.proxy(name, |proxy| proxy.is_frontend)
    }

    /// The backend with that name or `#id`.
    pub fn backend(&self, name: &str) -> Option<&ProxyView> {
        self.proxy(name, |proxy| proxy.is_backend)
    }
}
