//! What all workers share: the plan, what was prepared from it once, and what other crates do for
//! requests.

use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use arc_swap::{ArcSwapOption, Guard};
use balance::ejection::EjectionEvent;
use balance::{Member, Picker};
use base::address::Family;
use http::ParseOptions;
use plan::server::{SendProxy, ServerName, ServerTls, UseSource};
use plan::servers::ServerAt;
use plan::{Grown, Plan, Proxy};
use state::Process;
use state::resolvers::ResolversSection;

/// An answer made by a service of another crate (the statistics page).
pub struct ServiceReply {
    /// The status.
    pub status: u16,
    /// Fields.
    pub headers: Vec<(String, String)>,
    /// The body, in pieces that each take little time to make; a piece may be empty.
    pub body: Box<dyn Iterator<Item = Vec<u8>>>,
}

/// What a service is asked.
#[derive(Debug)]
pub struct ServiceRequest<'a> {
    /// The method.
    pub method: &'a [u8],
    /// The target as the client sent it.
    pub target: &'a [u8],
    /// The body of a POST, as far as it fits a buffer.
    pub body: &'a [u8],
    /// Whether the conditions of `stats admin` hold.
    pub admin: bool,
}

/// A statistics page: the proxy it stands in, its settings, what is asked.
pub type StatisticsPage =
    dyn Fn(&Proxy, &plan::proxy::StatsPage, &ServiceRequest<'_>) -> ServiceReply + Send + Sync;

/// Metrics for a request.
pub type Metrics = dyn Fn(&ServiceRequest<'_>) -> ServiceReply + Send + Sync;

/// Finds an address; from any worker.
pub type Resolve = dyn Fn(&Arc<ResolversSection>, Box<str>, Option<Family>) -> AddressLookup + Send + Sync;
/// An address that is being looked for.
pub type AddressLookup = Pin<Box<dyn Future<Output = Option<IpAddr>>>>;

/// Serves a connection of a peer: the place of its section's proxy, the connection, and what was read
/// of it already.
pub type ServePeer = dyn Fn(usize, net::Stream, Vec<u8>) -> ServedConnection + Send + Sync;
/// A connection that is being served.
pub type ServedConnection = Pin<Box<dyn Future<Output = ()>>>;

/// What other crates do for requests; wired by the binary, since `proxy` and `control` do not know
/// each other.
pub struct Services {
    /// The statistics page.
    pub statistics: Box<StatisticsPage>,
    /// The metrics of `use-service prometheus-exporter`.
    pub metrics: Box<Metrics>,
    /// Finds an address of a name for `do-resolve`, asking the name servers of a section for one
    /// family before the other.
    pub resolve: Box<Resolve>,
    /// Serves connections of peers.
    pub serve_peer: Box<ServePeer>,
    /// Does what scripts wait for that is not of their request.
    pub perform: Box<Perform>,
    /// Writes an alert to standard error.
    pub alert: Box<Alert>,
}

/// Writes an alert to standard error.
pub type Alert = dyn Fn(&str) + Send + Sync;

/// Does what a script waits for.
pub type Perform = dyn Fn(lua::Wait) -> Performed + Send + Sync;
/// What a script waits for, being done.
pub type Performed = Pin<Box<dyn Future<Output = lua::WaitAnswer>>>;

/// A proxy with what is worked out once from its settings.
pub struct PreparedProxy {
    /// Its settings.
    pub plan: Arc<Proxy>,
    /// The choice among the servers of the configuration.
    picker: Picker,
    /// The choice once servers were added.
    renewed: ArcSwapOption<Picker>,
    /// Whether servers were: looked at first, since mostly none were.
    is_renewed: AtomicBool,
    /// How strict its requests are read.
    pub request_options: ParseOptions,
    /// How strict its servers' responses are read.
    pub response_options: ParseOptions,
    /// What HTTP/2 is told on connections of its clients and to its servers.
    pub(crate) h2: Multiplexing,
    /// Whether a log line may be written for its connections.
    pub logs: bool,
    /// Servers by cookie value.
    pub by_cookie: HashMap<Box<[u8]>, usize>,
    /// Whether anything in it looks at questions to agents (SPOE), a server that was added too.
    sees_questions: AtomicBool,
}

/// What HTTP/2 is told on either side.
pub(crate) struct Multiplexing {
    /// Towards clients.
    pub(crate) front: Arc<h2::Config>,
    /// Towards servers.
    pub(crate) back: Arc<h2::Config>,
}

impl Multiplexing {
    fn new(tune: &plan::global::Tune, proxy: &Proxy) -> Self {
        let (all, options) = (&tune.h2, &proxy.options);
        Self {
            front: Arc::new(tune.multiplexing(&all.front, options.accept_unsafe_request, !all.no_websocket)),
            back: Arc::new(tune.multiplexing(&all.back, options.accept_unsafe_response, false)),
        }
    }
}

/// Plans that were in use so far.
static PLANS: AtomicU64 = AtomicU64::new(0);

/// What all workers share: read only, but for what is atomic inside.
pub struct Shared {
    /// Which of the plans that this process uses one after the other it is: places mean something
    /// with the plan alone that they are of.
    pub generation: u64,
    /// The plan.
    pub plan: Arc<Plan>,
    /// The process's counters and limits.
    pub process: Arc<Process>,
    /// All proxies, by [`plan::ProxyIndex`].
    pub proxies: Grown<PreparedProxy>,
    /// What other crates do for requests.
    pub services: Services,
}

impl Shared {
    /// Prepares a plan.
    pub fn new(plan: Arc<Plan>, process: Arc<Process>, services: Services) -> Self {
        let prepared: Vec<_> = plan.proxies.iter().map(|proxy| PreparedProxy::new(&plan, proxy)).collect();
        let generation = PLANS.fetch_add(1, Relaxed);
        Self { generation, plan, process, proxies: prepared.into(), services }
    }

    /// Takes in a backend added at run time: nobody knows its name yet. For one at a time. `None`
    /// when there is no place left.
    pub fn add(&self, backend: Proxy) -> Option<&Arc<Proxy>> {
        let added = self.plan.proxies.add(|index| Arc::new(Proxy { index, ..backend }))?;
        self.proxies.add(|index| {
            debug_assert_eq!(index, added.index, "both lists grow together");
            PreparedProxy::new(&self.plan, added)
        })?;
        Some(added)
    }
}

impl PreparedProxy {
    fn new(plan: &Plan, proxy: &Arc<Proxy>) -> Self {
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
                // Of several with one value the first is meant.
                by_cookie.entry(value.as_bytes().into()).or_insert(server.index);
            }
        }
        Self {
            picker: Picker::new(&proxy.balance, members(proxy)),
            renewed: ArcSwapOption::empty(),
            is_renewed: AtomicBool::new(false),
            // What two readers may read in two ways is refused in requests: that is what smuggling
            // is made of. Responses come from servers of our own, some of them old.
            request_options: ParseOptions {
                lone_lf: proxy.options.accept_unsafe_request,
                folding: proxy.options.accept_unsafe_request,
                ..options(proxy.options.accept_unsafe_request)
            },
            response_options: options(proxy.options.accept_unsafe_response),
            h2: Multiplexing::new(&plan.global.tune, proxy),
            logs: !proxy.loggers.is_empty(),
            by_cookie,
            sees_questions: sees_streams(proxy).into(),
            plan: proxy.clone(),
        }
    }
}

/// Whether what becomes of a stream of TCP in this backend depends on what it is: its rules, which
/// server it is for, what that server is told.
fn sees_streams(proxy: &Proxy) -> bool {
    use balance::Algorithm::{Hash, RdpCookie, Source};
    let tells_of_them = |server: ServerAt<'_>| {
        let by_source = |source: &plan::server::SourceAddress| {
            !matches!(source.transparent, UseSource::No | UseSource::Fixed(_))
        };
        let by_name = |tls: &ServerTls| matches!(tls.name, ServerName::Expression(_));
        server.send_proxy != SendProxy::None
            || server.pool_conn_name.is_some()
            || server.source.as_ref().is_some_and(by_source)
            || server.tls.as_ref().is_some_and(by_name)
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

/// The choice among a backend's servers, as it is now.
pub(crate) enum CurrentPicker<'a> {
    Own(&'a Picker),
    /// A guard of the worker's own: a count would be everybody's.
    Renewed(Guard<Option<Arc<Picker>>>, &'a Picker),
}

impl std::ops::Deref for CurrentPicker<'_> {
    type Target = Picker;

    #[inline]
    fn deref(&self) -> &Picker {
        match self {
            Self::Own(picker) => picker,
            Self::Renewed(renewed, own) => renewed.as_deref().unwrap_or(own),
        }
    }
}

impl PreparedProxy {
    /// The choice among its servers.
    #[inline]
    pub(crate) fn picker(&self) -> CurrentPicker<'_> {
        if !self.is_renewed.load(Acquire) {
            return CurrentPicker::Own(&self.picker);
        }
        CurrentPicker::Renewed(self.renewed.load(), &self.picker)
    }

    /// Lets time pass for outliers among its servers; gives what happened since the last call
    /// ([`Picker::judge`]).
    pub fn judge(&self, now_ms: u64) -> Vec<EjectionEvent> {
        self.picker().judge(now_ms)
    }

    /// Whether servers may be added (`add server`).
    pub fn is_dynamic(&self) -> bool {
        self.picker.is_dynamic()
    }

    /// Chooses among all servers there are now, after one was added.
    pub fn renew(&self) {
        let renewed = self.picker().renewed(&self.plan.balance, members(&self.plan));
        self.renewed.store(Some(Arc::new(renewed)));
        self.is_renewed.store(true, Release);
        self.sees_questions.store(sees_streams(&self.plan), Relaxed);
    }

    /// Whether anything in it looks at questions to agents (SPOE): each is a stream of its own then.
    pub(crate) fn sees_questions(&self) -> bool {
        self.sees_questions.load(Relaxed)
    }
}

fn members(proxy: &Proxy) -> Vec<Member> {
    let member = |server: ServerAt<'_>| Member {
        server: server.state.clone(),
        hash_key: server.hash_key,
        guid: server.guid.clone(),
    };
    // A removed one stands in its place, in maintenance, until another has it.
    proxy.servers.iter().map(member).collect()
}
