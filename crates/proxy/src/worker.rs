//! What a worker's tasks share: the plan, what was prepared from it once, idle connections, log lines.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Relaxed, Release},
};

use arc_swap::{ArcSwapOption, Guard};
use balance::{Member, Picker};
use base::address::Family;
use http::ParseOptions;
use plan::Plan;
use plan::servers::ServerAt;
use plan::{Grown, Proxy};
use state::Process;
use state::resolvers::Section;

use crate::log::Outbox;
use crate::server::local::{LocalProxy, Locals};
use crate::server::pool::Pools;

/// An answer made by a service of another room (the statistics page).
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
pub type Resolve = dyn Fn(&Arc<Section>, Box<str>, Option<Family>) -> Found + Send + Sync;
/// An address that is being looked for.
pub type Found = Pin<Box<dyn Future<Output = Option<IpAddr>>>>;

/// What other rooms do for requests; wired by the binary, since `proxy` and `control` do not know each other.
pub struct Services {
    /// The statistics page.
    pub statistics: Box<StatisticsPage>,
    /// The metrics of `use-service prometheus-exporter`.
    pub metrics: Box<Metrics>,
    /// Finds an address of a name for `do-resolve`, asking the name servers of a section for one family before the other.
    pub resolve: Box<Resolve>,
}

/// A proxy with what is worked out once from its settings.
pub struct Prepared {
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
    /// Whether a log line may be written for its connections.
    pub logs: bool,
    /// Servers by cookie value.
    pub by_cookie: HashMap<Box<[u8]>, usize>,
}

/// What all workers share: read only, but for what is atomic inside.
pub struct Shared {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The process's counters and limits.
    pub process: Arc<Process>,
    /// All proxies, by [`plan::ProxyIndex`].
    pub proxies: Grown<Prepared>,
    /// What other rooms do for requests.
    pub services: Services,
}

impl Shared {
    /// Prepares a plan.
    pub fn new(plan: Arc<Plan>, process: Arc<Process>, services: Services) -> Self {
        let prepared: Vec<_> = plan.proxies.iter().map(|proxy| Prepared::new(&plan, proxy)).collect();
        Self { plan, process, proxies: prepared.into(), services }
    }

    /// Takes in a backend added at run time: nobody knows its name yet. For one at a time. `None` when there is no place left.
    pub fn add(&self, backend: Proxy) -> Option<&Arc<Proxy>> {
        let added = self.plan.proxies.add(|index| Arc::new(Proxy { index, ..backend }))?;
        self.proxies.add(|index| {
            debug_assert_eq!(index, added.index, "both lists grow together");
            Prepared::new(&self.plan, added)
        })?;
        Some(added)
    }
}

impl Prepared {
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
            // What two readers may read in two ways is refused in requests: that is what smuggling is made of.
            // Responses come from servers of our own, some of them old.
            request_options: ParseOptions {
                lone_lf: proxy.options.accept_unsafe_request,
                folding: proxy.options.accept_unsafe_request,
                ..options(proxy.options.accept_unsafe_request)
            },
            response_options: options(proxy.options.accept_unsafe_response),
            logs: !proxy.loggers.is_empty(),
            by_cookie,
            plan: proxy.clone(),
        }
    }
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

impl Prepared {
    /// The choice among its servers.
    #[inline]
    pub(crate) fn picker(&self) -> CurrentPicker<'_> {
        if !self.is_renewed.load(Acquire) {
            return CurrentPicker::Own(&self.picker);
        }
        CurrentPicker::Renewed(self.renewed.load(), &self.picker)
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

/// Closes the idle connections of all workers to a server; ready when they are closed.
pub async fn close_idle(backend: usize, server: usize) {
    for index in 0..runtime::shard::workers() {
        let (send, receive) = tokio::sync::oneshot::channel();
        runtime::worker::post(index, move || {
            if let Some(worker) = current()
                && let Some(server) = worker.locals.known_server(backend, server)
            {
                while worker.pools.evict(&server) {}
            }
            // Who asked may be gone.
            let _ = send.send(());
        });
        // A worker that no longer answers has no connection either.
        let _ = receive.await;
    }
}

/// Lets all workers go of a server that was removed, so that its place may become another's.
pub fn forget(backend: usize, server: usize) {
    for index in 0..runtime::shard::workers() {
        // A worker that no longer listens ends with all that it holds.
        runtime::worker::post(index, move || {
            if let Some(worker) = current() {
                worker.locals.forget(backend, server);
            }
        });
    }
}

/// What a worker does beside serving: watches its idle connections. Runs as long as the worker.
pub async fn background(worker: Rc<Worker>) {
    crate::server::pool::sweep(worker).await;
}

thread_local! {
    static CURRENT: OnceCell<Rc<Worker>> = const { OnceCell::new() };
}

/// The calling thread's worker, for messages that come from other threads.
pub(crate) fn current() -> Option<Rc<Worker>> {
    CURRENT.with(|current| current.get().cloned())
}

/// One worker's own things. Lives as long as its thread.
pub struct Worker {
    /// Its number.
    pub index: usize,
    /// What all workers share.
    pub shared: Arc<Shared>,
    /// The proxies and servers that it had to do with.
    pub(crate) locals: Locals,
    /// Idle connections to servers.
    pub(crate) pools: Pools,
    /// Log lines on their way out.
    pub(crate) outbox: RefCell<Outbox>,
    /// The workers of its group: those that serve the same listeners and share idle connections.
    pub(crate) group: std::ops::Range<usize>,
    /// The next session's number, and the next stream's where nothing reads those: workers count apart, in steps of the number of workers.
    next_number: Cell<u64>,
    /// Whether something reads the numbers of streams.
    numbers_streams: bool,
}

impl Worker {
    /// The calling thread's worker.
    pub fn new(shared: Arc<Shared>, group: std::ops::Range<usize>) -> Rc<Self> {
        let index = runtime::current_worker();
        runtime::buffer::set_small_size(shared.plan.global.tune.bufsize);
        if shared.plan.variables.wants_turns() {
            runtime::profile::want_measures();
        }
        let worker = Rc::new(Self {
            index,
            group,
            locals: Locals::new(shared.clone()),
            pools: Pools::new(&shared),
            outbox: RefCell::new(Outbox::new(&shared)),
            next_number: Cell::new(index as u64),
            numbers_streams: shared.plan.variables.wants_stream_numbers(),
            shared,
        });
        CURRENT.with(|current| {
            // A thread has one worker for its whole life.
            let _ = current.set(worker.clone());
        });
        worker
    }

    /// The number of a new stream, unique in the process.
    #[inline]
    pub(crate) fn stream_id(&self) -> u64 {
        if self.numbers_streams {
            runtime::shared::Shared::add(&self.shared.process.streams, 1)
        } else {
            self.session_id()
        }
    }

    /// The number of a new session, unique in the process.
    #[inline]
    pub(crate) fn session_id(&self) -> u64 {
        let id = self.next_number.get();
        self.next_number.set(id + runtime::shard::workers() as u64);
        id
    }

    /// The proxy `index`, to be kept by a task.
    #[inline]
    pub(crate) fn local(&self, index: usize) -> Rc<LocalProxy> {
        self.locals.proxy(index)
    }

    /// The prepared proxy `index`.
    #[inline]
    pub(crate) fn proxy(&self, index: usize) -> &Prepared {
        &self.shared.proxies[index]
    }

    /// Whether a soft stop wants this connection to end with its current request: all of them, or while
    /// `close-spread-time` lasts more and more of them.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        let process = &self.shared.process;
        process.closing.load(Relaxed) && {
            let (window, until) = (process.close_window.load(Relaxed), process.close_until.load(Relaxed));
            let left = until.saturating_sub(runtime::timer::now_ms());
            until != u64::MAX && (left == 0 || fastrand::u64(..window.max(1)) >= left)
        }
    }
}
