//! Health checks: what they ask, what the answers mean, and what follows for servers and backends.
//!
//! One local task a checked server. [`start`] is called on every worker, which takes its share of the servers; the
//! returned [`Checks`] ends them when dropped (a reload). Results go into [`state::Server`], messages to a
//! [`Notify`] that the binary wires to the logs.

#![forbid(unsafe_code)]

mod agent;
mod http_check;
mod probe;
mod script;
mod verdict;
mod watch;

use std::collections::HashMap;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use config::Plan;
use config::plan::Proxy;
use config::plan::server::{CheckSettings, SendProxy, ServerSettings, Source};
use tokio::task::JoinHandle;

pub use probe::{Outcome, Verdict};

/// Takes a message: the backend it is about, its syslog level, its text.
pub type Notify = Arc<dyn Fn(&state::Proxy, u8, &str) + Send + Sync>;

/// Everything a check of one server needs to know.
#[derive(Clone)]
pub struct Subject {
    /// The backend.
    pub proxy: Arc<state::Proxy>,
    /// The server.
    pub server: Arc<state::Server>,
    /// What is asked, and when.
    pub settings: CheckSettings,
    /// `slowstart`.
    pub slow_start: Option<Duration>,
    /// `on-marked-down shutdown-sessions`.
    pub shutdown_when_down: bool,
    /// `on-marked-up shutdown-backup-sessions`.
    pub shutdown_backups_when_up: bool,
    /// `source`.
    pub source: Option<Source>,
    /// `namespace`.
    pub namespace: Option<Box<str>>,
    /// The header sent with `check-send-proxy`.
    pub send_proxy: SendProxy,
}

/// What all checks share.
pub struct Context {
    /// Where messages go.
    pub notify: Notify,
    /// `node`, for `http-check send-state`.
    pub node: Box<str>,
    /// `spread-checks`, in percent.
    pub spread: u32,
    /// The largest answer read: `tune.bufsize`.
    pub buffer: usize,
    /// Servers that follow another's state, by the address of the one followed.
    followers: HashMap<*const state::Server, Vec<Follower>>,
}

/// A server with `track`.
struct Follower {
    proxy: Arc<state::Proxy>,
    server: Arc<state::Server>,
    slow_start: Option<Duration>,
}

/// The checks of one worker; dropping it ends them.
#[derive(Debug)]
pub struct Checks(Vec<JoinHandle<()>>);

impl Drop for Checks {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

/// Starts the calling worker's share of a plan's checks: server `i` of all those checked goes to worker `i mod n`.
pub fn start(plan: &Plan, notify: Notify) -> Checks {
    let subjects = subjects(plan);
    let context = std::rc::Rc::new(Context {
        notify,
        node: plan.global.node.clone().unwrap_or_default(),
        spread: plan.global.spread_checks,
        buffer: plan.global.tune.bufsize,
        followers: followers(plan),
    });
    let workers = runtime::shard::workers();
    let own = runtime::current_worker();
    let shortest = subjects.iter().map(|subject| subject.settings.inter).min().unwrap_or_default();
    let spread = plan.global.max_spread_checks.map_or(shortest, |max| shortest.min(max));
    let count = subjects.len() as u32;
    let tasks = subjects.into_iter().enumerate().filter(|(index, _)| index % workers == own).map(
        |(index, subject)| {
            // The first checks are spread over the shortest interval, so that they do not all fall together.
            let delay = spread * index as u32 / count;
            tokio::task::spawn_local(watch::watch(subject, context.clone(), delay))
        },
    );
    let mut tasks: Vec<JoinHandle<()>> = tasks.collect();
    for (index, (subject, send)) in agents(plan).into_iter().enumerate() {
        if index % workers == own {
            let delay = subject.settings.inter.min(spread.max(Duration::from_millis(1))) / 2;
            tasks.push(tokio::task::spawn_local(agent::watch(subject, send, context.clone(), delay)));
        }
    }
    Checks(tasks)
}

/// Starts the checks of one server that was added at run time, on the calling worker; they end when the result is dropped.
pub fn start_one(plan: &Plan, proxy: &Proxy, server: &ServerSettings, notify: Notify) -> Checks {
    let context = std::rc::Rc::new(Context {
        notify,
        node: plan.global.node.clone().unwrap_or_default(),
        spread: plan.global.spread_checks,
        buffer: plan.global.tune.bufsize,
        // Nobody follows a server that may be removed.
        followers: HashMap::new(),
    });
    let mut tasks = Vec::new();
    if let Some(subject) = subject(&proxy.state, server) {
        let delay = Duration::ZERO;
        tasks.push(tokio::task::spawn_local(watch::watch(subject, context.clone(), delay)));
    }
    if let Some((subject, send)) = agent(proxy, server) {
        tasks.push(tokio::task::spawn_local(agent::watch(subject, send, context, Duration::ZERO)));
    }
    Checks(tasks)
}

/// Servers added at run time that follow another. Written when one is added or removed, read when a state changes.
static ADDED: RwLock<Vec<(Arc<state::Server>, Arc<Follower>)>> = RwLock::new(Vec::new());

/// Lets a server that was added at run time follow the state of `followed`.
pub fn follow(followed: &Arc<state::Server>, proxy: &Arc<state::Proxy>, server: &ServerSettings) {
    let follower =
        Follower { proxy: proxy.clone(), server: server.state.clone(), slow_start: server.slow_start };
    let mut added = ADDED.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    added.push((followed.clone(), Arc::new(follower)));
}

/// Ends that.
pub fn unfollow(server: &Arc<state::Server>) {
    let mut added = ADDED.write().unwrap_or_else(|poisoned| poisoned.into_inner());
    added.retain(|(_, follower)| !Arc::ptr_eq(&follower.server, server));
}

/// The followers of `server` that were added.
fn added_followers(server: &Arc<state::Server>) -> Vec<Arc<Follower>> {
    let added = ADDED.read().unwrap_or_else(|poisoned| poisoned.into_inner());
    let of_server = added.iter().filter(|(followed, _)| Arc::ptr_eq(followed, server));
    of_server.map(|(_, follower)| follower.clone()).collect()
}

/// The servers with an agent, as subjects whose check is the conversation with it, and what it is told.
fn agents(plan: &Plan) -> Vec<(Subject, Box<[u8]>)> {
    let mut agents = Vec::new();
    for proxy in plan.proxies.iter().filter(|proxy| !proxy.disabled) {
        agents.extend(proxy.servers.iter().filter_map(|server| agent(proxy, server)));
    }
    agents
}

/// The agent of one server, if it has one, and what it is told.
fn agent(proxy: &Proxy, server: &ServerSettings) -> Option<(Subject, Box<[u8]>)> {
    let agent = server.agent.as_ref()?;
    let settings = CheckSettings {
        inter: agent.inter,
        fastinter: None,
        downinter: None,
        rise: 1,
        fall: 1,
        address: agent.address,
        port: Some(agent.port),
        send_proxy: false,
        timeout: agent.timeout,
        connect_timeout: agent.connect_timeout,
        kind: Arc::new(config::plan::server::CheckKind::Tcp),
        log: proxy.options.log_health_checks,
        disable_on_404: false,
        send_state: false,
        initially_up: true,
    };
    let subject = Subject {
        proxy: proxy.state.clone(),
        server: server.state.clone(),
        settings,
        slow_start: server.slow_start,
        shutdown_when_down: server.shutdown_sessions_when_down,
        shutdown_backups_when_up: server.shutdown_backups_when_up,
        source: server.source.clone(),
        namespace: server.namespace.clone(),
        send_proxy: SendProxy::None,
    };
    Some((subject, agent.send.clone()))
}

/// The checked servers of a plan, in its order. Sets what the statistics show of their checks.
fn subjects(plan: &Plan) -> Vec<Subject> {
    let servers = plan
        .proxies
        .iter()
        .filter(|proxy| !proxy.disabled)
        .flat_map(|proxy| proxy.servers.iter().filter_map(|server| subject(&proxy.state, server)));
    servers.collect()
}

fn subject(proxy: &Arc<state::Proxy>, server: &ServerSettings) -> Option<Subject> {
    let settings = server.check.clone()?;
    Some(Subject {
        proxy: proxy.clone(),
        server: server.state.clone(),
        slow_start: server.slow_start,
        shutdown_when_down: server.shutdown_sessions_when_down,
        shutdown_backups_when_up: server.shutdown_backups_when_up,
        source: server.source.clone(),
        namespace: server.namespace.clone(),
        send_proxy: match server.send_proxy {
            _ if !settings.send_proxy => SendProxy::None,
            SendProxy::None => SendProxy::V1,
            version => version,
        },
        settings,
    })
}

fn followers(plan: &Plan) -> HashMap<*const state::Server, Vec<Follower>> {
    let mut followers: HashMap<_, Vec<_>> = HashMap::new();
    for proxy in &plan.proxies {
        for server in proxy.servers.iter() {
            if let Some((_, followed)) = &server.track {
                followers.entry(Arc::as_ptr(followed)).or_default().push(Follower {
                    proxy: proxy.state.clone(),
                    server: server.state.clone(),
                    slow_start: server.slow_start,
                });
            }
        }
    }
    followers
}

#[cfg(test)]
mod tests;
