//! The state shared by all workers: the plan, data prepared from it once, and services of other crates for requests.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwapOption, Guard};
use balance::Picker;
use balance::ejection::EjectionEvent;
use base::address::Family;
use http::ParseOptions;
use plan::server::{SendProxy, ServerName, ServerTls, UseSource};
use plan::servers::ServerAt;
use plan::{Grown, Plan, Proxy};
use state::Process;
use state::resolvers::ResolversSection;

/// A response from a service of another crate (the statistics page).
pub struct ServiceReply {
    /// The status.
    pub status: u16,
    /// The header fields.
    pub headers: Vec<(String, String)>,
    /// The body, in pieces that take little time to generate. A piece may be empty.
    pub body: Box<dyn Iterator<Item = Vec<u8>>>,
}

/// A request to a service.
#[derive(Debug)]
pub struct ServiceRequest<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The target as the client sent it.
    pub target: &'a [u8],
    /// The values of `Accept`, separated by commas; only for metrics.
    pub accept: Vec<u8>,
    /// The body of a POST; `None` if it does not fit into a buffer.
    pub body: Option<&'a [u8]>,
    /// Whether the conditions of `stats admin` hold.
    pub admin: bool,
}

/// Renders a statistics page. The arguments are the proxy in which it is configured, its settings, and the request.
pub type StatisticsPage =
    dyn Fn(&Proxy, &plan::proxy::StatsPage, &ServiceRequest<'_>) -> ServiceReply + Send + Sync;

/// Renders metrics for a request.
pub type Metrics = dyn Fn(&ServiceRequest<'_>) -> ServiceReply + Send + Sync;

/// Starts an address lookup. Any worker may call it.
pub type Resolve = dyn Fn(&Arc<ResolversSection>, Box<str>, Option<Family>) -> AddressLookup + Send + Sync;
/// A running address lookup.
pub type AddressLookup = Pin<Box<dyn Future<Output = Option<IpAddr>>>>;

/// Serves the connection of a peer. The arguments are the index of its section's proxy, the connection, and the bytes already read
/// from it.
pub type ServePeer = dyn Fn(usize, net::Stream, Vec<u8>) -> ServedConnection + Send + Sync;
/// A connection that is being served.
pub type ServedConnection = Pin<Box<dyn Future<Output = ()>>>;

/// Services of other crates for requests. The binary provides them, because `proxy` and `control` do not depend on each other.
pub struct Services {
    /// The statistics page.
    pub statistics: Box<StatisticsPage>,
    /// The metrics of `use-service prometheus-exporter`.
    pub metrics: Box<Metrics>,
    /// Looks up the address of a name for `do-resolve`. It queries the name servers of a section and prefers one address family.
    pub resolve: Box<Resolve>,
    /// Serves peers' connections.
    pub serve_peer: Box<ServePeer>,
    /// Performs operations that scripts wait for outside of their request.
    pub perform: Box<Perform>,
    /// Writes an alert to standard error.
    pub alert: Box<Alert>,
}

/// Writes an alert to standard error.
pub type Alert = dyn Fn(&str) + Send + Sync;

/// Performs the operation that a script waits for.
pub type Perform = dyn Fn(lua::Wait) -> Performed + Send + Sync;
/// A running operation of a script.
pub type Performed = Pin<Box<dyn Future<Output = lua::WaitAnswer>>>;

/// The maximum number of servers for which the balancer is created by the first request, which waits for it.
const AT_FIRST_REQUEST: usize = 16;

/// A proxy with data precomputed from its settings.
pub struct PreparedProxy {
    /// The settings of the proxy.
    pub plan: Arc<Proxy>,
    /// The balancer over the configured servers. In a small backend, created by its first request: most backends of a large
    /// configuration have few.
    picker: OnceLock<Picker>,
    /// The balancer that includes servers added later.
    renewed: ArcSwapOption<Picker>,
    /// Whether servers were added. Checked first, because usually none were.
    is_renewed: AtomicBool,
    /// How strictly the requests are parsed.
    pub request_options: ParseOptions,
    /// How strictly the servers' responses are parsed.
    pub response_options: ParseOptions,
    /// The HTTP/2 settings for its clients and servers.
    pub(crate) h2: Multiplexing,
    /// Whether log lines may be written for connections of this proxy.
    pub logs: bool,
    /// Servers by cookie value.
    pub by_cookie: HashMap<Box<[u8]>, usize>,
    /// Whether any part of the proxy can see queries to agents (SPOE), including servers added later.
    sees_questions: AtomicBool,
}

/// The settings of HTTP/2 and HTTP/3 for both sides.
pub(crate) struct Multiplexing {
    /// For clients.
    pub(crate) front: Arc<h2::Config>,
    /// For servers.
    pub(crate) back: Arc<h2::Config>,
    /// For clients over QUIC.
    pub(crate) h3: Arc<h3::Config>,
    /// For servers over QUIC.
    pub(crate) h3_back: Arc<h3::Config>,
}

/// The settings without and with `option accept-unsafe-violations-in-http-request` or `-response`, which proxies share.
struct MultiplexingVariants([Multiplexing; 2]);

impl MultiplexingVariants {
    fn new(tune: &plan::global::Tune) -> Self {
        let all = &tune.h2;
        Self([false, true].map(|is_relaxed| Multiplexing {
            front: Arc::new(tune.multiplexing(&all.front, is_relaxed, !all.no_websocket)),
            back: Arc::new(tune.multiplexing(&all.back, is_relaxed, false)),
            h3: Arc::new(tune.http3(is_relaxed, !all.no_websocket)),
            h3_back: Arc::new(tune.http3_to_servers(is_relaxed)),
        }))
    }

    /// Returns the settings of a proxy.
    fn of(&self, proxy: &Proxy) -> Multiplexing {
        let of_requests = &self.0[usize::from(proxy.options.accept_unsafe_request)];
        let of_responses = &self.0[usize::from(proxy.options.accept_unsafe_response)];
        Multiplexing {
            front: of_requests.front.clone(),
            back: of_responses.back.clone(),
            h3: of_requests.h3.clone(),
            h3_back: of_responses.h3_back.clone(),
        }
    }
}

/// The number of plans that this process has used so far.
static PLANS: AtomicU64 = AtomicU64::new(0);

/// The state shared by all workers: read-only, except for atomics inside.
pub struct Shared {
    /// The number of this plan among those used by the process. Indexes are only valid within the plan they belong to.
    pub generation: u64,
    /// The plan.
    pub plan: Arc<Plan>,
    /// The process's counters and limits.
    pub process: Arc<Process>,
    /// All proxies, by [`plan::ProxyIndex`].
    pub proxies: Grown<Arc<PreparedProxy>>,
    /// Services of other crates for requests.
    pub services: Services,
}

impl Shared {
    /// Prepares a plan. Proxies that it shares with the plan of `former`, which it replaces, are already prepared.
    pub fn new(plan: Arc<Plan>, process: Arc<Process>, services: Services, former: Option<&Shared>) -> Self {
        let variants = MultiplexingVariants::new(&plan.global.tune);
        let prepare = |(index, proxy)| {
            let known = former.and_then(|former| former.proxies.get(index));
            match known.filter(|known| Arc::ptr_eq(&known.plan, proxy)) {
                Some(known) => known.clone(),
                None => Arc::new(PreparedProxy::new(&plan, proxy, &variants)),
            }
        };
        let prepared: Vec<_> = plan.proxies.iter().enumerate().map(prepare).collect();
        let generation = PLANS.fetch_add(1, Relaxed);
        Self { generation, plan, process, proxies: prepared.into(), services }
    }

    /// Adds a backend created at run time, which cannot be found by name yet. Calls must not overlap. Returns `None` if there is no
    /// room left.
    pub fn add(&self, backend: Proxy) -> Option<&Arc<Proxy>> {
        let added = self.plan.proxies.add(|index| Arc::new(Proxy { index, ..backend }))?;
        self.proxies.add(|index| {
            debug_assert_eq!(index, added.index, "both lists grow together");
            let variants = MultiplexingVariants::new(&self.plan.global.tune);
            Arc::new(PreparedProxy::new(&self.plan, added, &variants))
        })?;
        Some(added)
    }
}

impl PreparedProxy {
    fn new(plan: &Plan, proxy: &Arc<Proxy>, variants: &MultiplexingVariants) -> Self {
        let tune = &plan.global.tune;
        let options = |relaxed: bool| ParseOptions {
            max_fields: tune.max_headers.saturating_sub(1),
            max_bytes: tune.bufsize.saturating_sub(tune.maxrewrite),
            relaxed,
            keep_insecure: plan.global.h1_keep_insecure,
            any_method_payload: plan.global.h1_accept_payload_with_any_method,
            ..ParseOptions::default()
        };
        let mut by_cookie: HashMap<Box<[u8]>, usize> = HashMap::new();
        for server in proxy.servers.fixed() {
            if let Some(value) = &server.cookie {
                // If several share a value, the first wins.
                by_cookie.entry(value.clone()).or_insert(server.index);
            }
        }
        let picker = OnceLock::new();
        let states = proxy.servers.iter().map(|server| server.state.clone());
        if proxy.servers.len() > AT_FIRST_REQUEST || !Picker::defer(&proxy.balance, states) {
            // The lock is new, so this cannot fail.
            let _ = picker.set(Picker::new(&proxy.balance, proxy.members()));
        }
        Self {
            picker,
            renewed: ArcSwapOption::empty(),
            is_renewed: AtomicBool::new(false),
            // Ambiguous requests are rejected, because they enable request smuggling. Responses come from the operator's own
            // servers, some of which are old.
            request_options: ParseOptions {
                lone_lf: proxy.options.accept_unsafe_request,
                folding: proxy.options.accept_unsafe_request,
                ..options(proxy.options.accept_unsafe_request)
            },
            response_options: options(proxy.options.accept_unsafe_response),
            h2: variants.of(proxy),
            logs: !proxy.loggers.is_empty(),
            by_cookie,
            sees_questions: sees_streams(proxy).into(),
            plan: proxy.clone(),
        }
    }
}

/// Whether properties of the backend affect a TCP stream in it: through rules, the choice of the server, or the data sent to the
/// server.
fn sees_streams(proxy: &Proxy) -> bool {
    use balance::Algorithm::{Hash, RdpCookie, Source};
    let tells_of_them = |server: ServerAt<'_>| {
        let by_source = |source: &plan::server::SourceAddress| {
            !matches!(source.transparent, UseSource::No | UseSource::Fixed(_))
        };
        let by_name = |tls: &ServerTls| matches!(tls.name, ServerName::Expression(_));
        server.send_proxy != SendProxy::None
            || server.pool_conn_name.is_some()
            || server.source.as_deref().is_some_and(by_source)
            || server.tls.as_deref().is_some_and(by_name)
    };
    !proxy.tcp_request.is_empty()
        || !proxy.tcp_response.is_empty()
        || proxy.stick.is_some()
        || !proxy.use_servers.is_empty()
        || !proxy.force_persist.is_empty()
        || proxy.rdp_persistence.is_some()
        || matches!(proxy.balance.algorithm, Source | Hash(_) | RdpCookie { .. })
        || proxy.servers.iter().any(tells_of_them)
}

/// The current balancer of a backend.
pub(crate) enum CurrentPicker<'a> {
    Own(&'a Picker),
    /// A guard, because a reference count would be shared by all workers.
    Renewed(Guard<Option<Arc<Picker>>>, &'a PreparedProxy),
}

impl std::ops::Deref for CurrentPicker<'_> {
    type Target = Picker;

    #[inline]
    fn deref(&self) -> &Picker {
        match self {
            Self::Own(picker) => picker,
            Self::Renewed(renewed, proxy) => renewed.as_deref().unwrap_or_else(|| proxy.own_picker()),
        }
    }
}

impl PreparedProxy {
    /// Called when requests of other processes at the server `index` have begun or ended (`maxconn … fleet`).
    pub fn note_load(&self, index: usize) {
        if self.is_renewed.load(Acquire) || self.picker.get().is_some() {
            self.picker().parted(index);
        }
    }

    /// Returns the current balancer of the proxy's servers.
    #[inline]
    pub(crate) fn picker(&self) -> CurrentPicker<'_> {
        if !self.is_renewed.load(Acquire) {
            return CurrentPicker::Own(self.own_picker());
        }
        CurrentPicker::Renewed(self.renewed.load(), self)
    }

    #[inline]
    fn own_picker(&self) -> &Picker {
        self.picker.get_or_init(|| Picker::new(&self.plan.balance, self.plan.members()))
    }

    /// Advances outlier detection for the proxy's servers. Returns the events since the last call ([`Picker::judge`]).
    pub fn judge(&self, now_ms: u64) -> Vec<EjectionEvent> {
        self.picker().judge(now_ms)
    }

    /// Whether servers may be added (`add server`).
    pub fn is_dynamic(&self) -> bool {
        Picker::is_dynamic(&self.plan.balance)
    }

    /// Rebuilds the balancer after a server was added.
    pub fn renew(&self) {
        let renewed = self.picker().renewed(&self.plan.balance, self.plan.members());
        self.renewed.store(Some(Arc::new(renewed)));
        self.is_renewed.store(true, Release);
        self.sees_questions.store(sees_streams(&self.plan), Relaxed);
    }

    /// Whether any part of the proxy can see queries to agents (SPOE), so that each query needs its own stream.
    pub(crate) fn sees_questions(&self) -> bool {
        self.sees_questions.load(Relaxed)
    }
}
