//! Health checks: their requests, the evaluation of responses, and the consequences for servers and backends.
//!
//! There is one task per checked server, and another per server with an agent. [`Checks::new`] collects them once.
//! [`Checks::start`] is called on every worker and starts its share; the returned [`RunningChecks`] ends those on that worker when
//! it is dropped. A check stays on its worker until a wake-up finds that the worker has too many checks (`balance`). Results are
//! stored in [`state::Server`], and messages are passed to a [`Notify`] callback that the binary connects to the logs.

#![forbid(unsafe_code)]

mod agent;
mod answer;
mod balance;
mod check_env;
mod expect;
mod external;
mod fastcgi;
pub mod fuzzing;
mod grpc;
mod idle;
mod link;
mod multiplexed;
mod observe;
mod on_marked;
mod outcome;
mod program;
mod protocol;
mod request;
mod rise;
mod script;
mod task;
mod verdict;
mod watch;

use std::collections::HashMap;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use plan::Plan;
use plan::Proxy;
use plan::check::{AgentSettings, CheckKind, CheckSettings};
use plan::dial::Buffers;
use plan::server::ServerSettings;
use runtime::Sharded;
use state::server::Demand;
use state::{Process, Server};

pub use idle::{Connecting, Idle, IdleRequest, Lent, QuicReached, QuicUnreached, Reaching, Speaking, Taking};
pub use outcome::{CheckOutcome, CheckVerdict};
pub use task::RunningChecks;

/// Receives a message. The arguments are the backend, the syslog level and the text.
pub type Notify = Arc<dyn Fn(&state::Proxy, u8, &str) + Send + Sync>;

/// A server of a plan.
#[derive(Clone)]
pub(crate) struct CheckedServer {
    /// The backend.
    backend: Arc<Proxy>,
    /// The server line. Holding it prevents the reuse of its index.
    own: Arc<ServerSettings>,
}

impl CheckedServer {
    /// Returns the server line.
    fn own(&self) -> &ServerSettings {
        &self.own
    }

    /// Returns the server's current state.
    fn server(&self) -> &Arc<Server> {
        &self.own().state
    }
}

/// A server with its check.
#[derive(Clone)]
pub(crate) struct Subject {
    peer: CheckedServer,
    /// The content and schedule of the check.
    settings: Arc<CheckSettings>,
}

impl Subject {
    fn own(&self) -> &ServerSettings {
        self.peer.own()
    }

    fn server(&self) -> &Arc<Server> {
        self.peer.server()
    }

    fn backend(&self) -> &Proxy {
        &self.peer.backend
    }

    /// Runs the check once. Calls `then` before the connection is closed.
    async fn check<T>(&self, context: &CheckContext, then: impl FnOnce(CheckOutcome) -> T) -> T {
        let start = base::clock::now_ms();
        observe::begins(self);
        let (mut outcome, _link) = match &*self.settings.kind {
            CheckKind::Script(script) => script::run(self, context, script).await,
            CheckKind::External { command, path, preserve_env } => {
                let (path, forks) = (path.as_deref(), context.forks);
                (external::run(self, command, path, *preserve_env, forks).await, None)
            }
        };
        outcome.duration = Duration::from_millis(base::clock::now_ms() - start);
        observe::ends(self, &outcome);
        then(outcome)
    }
}

/// The state shared by all checks of a plan, on any worker.
pub(crate) struct CheckContext {
    /// The receiver of messages.
    notify: Notify,
    /// The pool of idle server connections, if there is one.
    idle: Option<Arc<dyn Idle>>,
    /// The process, for expressions and for its check counters.
    process: Arc<Process>,
    /// `node`, or the host name, for `http-check send-state`.
    node: Box<str>,
    /// `spread-checks`, in percent.
    spread: u32,
    /// The kernel's buffer sizes for connections to servers.
    sockets: Buffers,
    /// Those for datagrams.
    datagrams: Buffers,
    /// The maximum size of a response: `tune.bufsize`.
    buffer: usize,
    /// `tune.max-checks-per-thread`, 0 for no limit.
    at_once: usize,
    /// The HTTP/2 settings.
    multiplexing: Arc<h2::Config>,
    /// `insecure-fork-wanted`.
    forks: bool,
    /// The TLS handshake data to keep for expressions.
    keep: tls::Keep,
    /// The tracking servers of each tracked server. Changed when a server is added or removed at run time.
    followers: RwLock<HashMap<Followed, Vec<CheckedServer>>>,
    /// Whether the checks of this plan have ever been started on a worker. This stays true when they end.
    started: Sharded<AtomicBool>,
}

impl CheckContext {
    /// Returns the servers that track `server`, the latest declared first.
    fn followers(&self, server: &Arc<Server>) -> Vec<CheckedServer> {
        let followers = self.followers.read().unwrap_or_else(|poisoned| poisoned.into_inner());
        let latest_first = |peers: &Vec<CheckedServer>| peers.iter().rev().cloned().collect();
        followers.get(&Followed::of(server)).map(latest_first).unwrap_or_default()
    }
}

/// Identifies a tracked server by its address in memory, which does not change while the plan exists.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Followed(usize);

impl Followed {
    fn of(server: &Arc<Server>) -> Self {
        Self(Arc::as_ptr(server) as usize)
    }
}

/// The checks of a plan.
pub struct Checks {
    context: Arc<CheckContext>,
    subjects: Vec<Subject>,
    agents: Vec<(CheckedServer, AgentSettings)>,
    /// The time over which the first checks are spread.
    spread: Duration,
}

impl Checks {
    /// Collects the checks and agents of `plan`, in order.
    pub fn new(plan: &Plan, process: Arc<Process>, notify: Notify, idle: Option<Arc<dyn Idle>>) -> Self {
        let mut subjects = Vec::new();
        let mut agents: Vec<(CheckedServer, AgentSettings)> = Vec::new();
        let mut followers: HashMap<Followed, Vec<CheckedServer>> = HashMap::new();
        let mut observed = Vec::new();
        for backend in plan.attended().filter(|proxy| !proxy.disabled) {
            for own in backend.servers.iter() {
                let peer = || CheckedServer { backend: backend.clone(), own: own.shared() };
                if let Some(settings) = own.check.clone() {
                    subjects.push(Subject { peer: peer(), settings });
                }
                if let Some(agent) = own.agent.clone() {
                    agents.push((peer(), agent));
                }
                if let Some((_, followed)) = &own.track {
                    followers.entry(Followed::of(followed)).or_default().push(peer());
                }
                if rise::applies(&own) || on_marked::applies(&own) {
                    observed.push(peer());
                }
            }
        }
        let checks = subjects.iter().map(|subject| subject.settings.inter);
        let shortest = checks.chain(agents.iter().map(|(_, agent)| agent.inter)).min().unwrap_or_default();
        let context = CheckContext {
            notify,
            idle,
            process,
            node: plan
                .global
                .node
                .clone()
                .unwrap_or_else(|| String::from_utf8_lossy(sample::fetch::hostname()).into()),
            spread: plan.global.spread_checks,
            sockets: (&plan.global.tune).into(),
            datagrams: Buffers::of_datagrams(&plan.global.tune),
            buffer: plan.global.tune.bufsize,
            at_once: plan.global.tune.max_checks_per_thread as usize,
            multiplexing: {
                let tune = &plan.global.tune;
                Arc::new(tune.multiplexing(&tune.h2.back, false, false))
            },
            forks: plan.global.insecure_fork_wanted,
            keep: tls::Keep {
                session: plan.variables.wants_tls_session(),
                finished: plan.variables.wants_tls_finished(),
                ..tls::Keep::default()
            },
            followers: RwLock::new(followers),
            started: Sharded::default(),
        };
        let context = Arc::new(context);
        for peer in &observed {
            rise::prepare(peer, &context);
            on_marked::prepare(peer);
        }
        // Done before any worker serves, so that status queries and requests find the server's initial state.
        subjects.iter().for_each(watch::prepare);
        let spread = plan.global.max_spread_checks.map_or(shortest, |max| shortest.min(max));
        Self { context, subjects, agents, spread }
    }

    /// Starts to check a server that was added to `backend` at run time. Its checks end when it is removed.
    pub fn add(&self, backend: &Arc<Proxy>, server: &Arc<ServerSettings>) {
        let peer = CheckedServer { backend: backend.clone(), own: server.clone() };
        if let Some((_, followed)) = &peer.own().track {
            let mut followers =
                self.context.followers.write().unwrap_or_else(|poisoned| poisoned.into_inner());
            followers.entry(Followed::of(followed)).or_default().push(peer.clone());
        }
        rise::prepare(&peer, &self.context);
        on_marked::prepare(&peer);
        if let Some(settings) = peer.own().check.clone() {
            let subject = Subject { peer: peer.clone(), settings };
            watch::prepare(&subject);
            task::begin(&self.context, server.index, task::CheckTask::check(subject, Duration::ZERO));
        }
        if let Some(agent) = peer.own().agent.clone() {
            task::begin(&self.context, server.index, task::CheckTask::agent(peer, agent, Duration::ZERO));
        }
    }

    /// Removes a server from the tracking servers, and ends its checks.
    pub fn forget(&self, server: &Arc<Server>) {
        let mut followers = self.context.followers.write().unwrap_or_else(|poisoned| poisoned.into_inner());
        followers.values_mut().for_each(|peers| peers.retain(|peer| !Arc::ptr_eq(peer.server(), server)));
        drop(followers);
        server.health.demand(Demand::End);
        if let Some(agent) = server.agent.get() {
            agent.demand(Demand::End);
        }
    }

    /// Starts the calling worker's share. Check `i` begins on worker `i mod n`, and the first checks are spread over the shortest
    /// interval so that they do not coincide.
    pub fn start(&self) -> RunningChecks {
        let running = RunningChecks::enter(&self.context);
        let (workers, own) = (runtime::shard::workers(), runtime::current_worker());
        let count = (self.subjects.len() + self.agents.len()) as u32;
        let mine = |index: usize| (index % workers == own).then(|| self.spread * index as u32 / count);
        for (index, subject) in self.subjects.iter().enumerate() {
            if let Some(delay) = mine(index) {
                running.spawn(task::CheckTask::check(subject.clone(), delay));
            }
        }
        for (index, (peer, agent)) in self.agents.iter().enumerate() {
            if let Some(delay) = mine(self.subjects.len() + index) {
                running.spawn(task::CheckTask::agent(peer.clone(), agent.clone(), delay));
            }
        }
        running
    }
}

#[cfg(test)]
mod tests;
