//! The part of the configuration that statistics and runtime commands read. A reload replaces it as a whole.

use std::sync::Arc;
use std::time::Duration;

/// A server, with the part of its configuration that is shown.
#[derive(Debug, Clone)]
pub struct ServerView {
    /// The current state.
    pub state: Arc<state::Server>,
    /// `cookie`.
    pub cookie: Option<Box<str>>,
    /// `pool-max-conn`, -1 for no limit.
    pub pool_max: i64,
    /// `pool-purge-delay`.
    pub pool_purge: Duration,
}

/// Policies of a backend against failures of its servers.
#[derive(Debug, Clone, Default)]
pub struct PoliciesView {
    /// Whether it has `outlier-ejection`.
    pub outliers: bool,
    /// `retry-budget`: the share in percent, and `min`.
    pub budget: Option<(u32, u32)>,
    /// `hedge`: `after` as written, the delay in µs if it is a time, and `max` in percent.
    pub hedge: Option<(Box<str>, Option<u64>, u32)>,
}

/// A proxy, with the part of its configuration that is shown.
#[derive(Debug, Clone)]
pub struct ProxyView {
    /// The current state.
    pub state: Arc<state::Proxy>,
    /// `balance`, by its name in the statistics.
    pub algorithm: &'static str,
    /// Whether that algorithm supports weights other than the initial one and 0.
    pub dynamic_weights: bool,
    /// `cookie` of the backend.
    pub cookie: Option<Box<str>>,
    /// `description`.
    pub description: Option<Box<str>>,
    /// `option socket-stats`: each listener has a line.
    pub listeners: bool,
    /// `outlier-ejection`, `retry-budget` and `hedge`.
    pub policies: PoliciesView,
    /// Servers of the configuration, in the order of their ids.
    pub servers: Box<[ServerView]>,
}

impl ProxyView {
    /// The configuration of a server; `None` for one added at run time.
    pub fn server(&self, id: u32) -> Option<&ServerView> {
        let at = self.servers.binary_search_by_key(&id, |server| server.state.id).ok()?;
        self.servers.get(at)
    }
}

/// A runtime socket, for `show cli sockets`.
#[derive(Debug, Clone)]
pub struct SocketView {
    /// The address as HAProxy shows it: `unix@/path`, `ipv4@…`.
    pub address: String,
    /// The keyword of its level: `user`, `operator` or `admin`.
    pub level: &'static str,
}

/// The part of the configuration that statistics and commands read.
#[derive(Debug, Clone)]
pub struct ConfigView {
    /// `node`, or the host's name.
    pub node: String,
    /// `description`.
    pub description: Option<String>,
    /// All proxies that are not `disabled`, in the order of the configuration.
    pub proxies: Vec<ProxyView>,
    /// The names of `disabled` backends. Commands that name one report that it is disabled.
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
    /// Messages of the start, for `show startup-logs`.
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
    /// Sources of discovered servers.
    pub discovery: Vec<Arc<state::discovery::DiscoverySource>>,
    /// OpenTelemetry collectors.
    pub collectors: Vec<Arc<state::telemetry::Collector>>,
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
            discovery: Vec::new(),
            collectors: Vec::new(),
            orders: Vec::new(),
        }
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
