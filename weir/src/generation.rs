//! The running state of a plan: the state shared by its workers, and its tasks on each worker. A reload replaces it; state that
//! belongs to the process is in [`Common`].

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arc_swap::ArcSwap;
use diag::Severity;
use net::udp::UdpSocket;
use plan::Plan;
use plan::bind::BindAddress;
use proxy::serve::quic::QuicPort;
use proxy::{Shared, Worker};
use statistics::prometheus::MetricsRequest;
use telemetry::ExporterCallbacks;
use tokio::task::AbortHandle;

use crate::emails::Emails;
use crate::messages::MessageFormat;
use crate::process_context::Common;
use crate::servers::RuntimeServers;
use crate::services;
use crate::sockets::{ListeningSocket, QuicPlace, QuicRole, SocketOwner};
use crate::{caches, checks};

/// The running state of a plan.
pub(crate) struct Generation {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sections: resolvers::Sections,
    checks: Arc<health::Checks>,
    servers: Arc<RuntimeServers>,
    /// Set when another plan is in use; its tasks then serve the runtime sockets.
    is_old: Arc<AtomicBool>,
}

/// The generation in use.
pub(crate) struct InUse(ArcSwap<Generation>);

impl InUse {
    /// Starts with the first generation.
    pub(crate) fn new(desk: Arc<Generation>) -> Self {
        Self(ArcSwap::new(desk))
    }

    /// Returns the current generation.
    pub(crate) fn desk(&self) -> Arc<Generation> {
        self.0.load_full()
    }

    /// Returns the state shared by the workers.
    pub(crate) fn shared(&self) -> Arc<Shared> {
        self.0.load().shared.clone()
    }

    /// Replaces the current generation and returns the previous one.
    pub(crate) fn replace(&self, desk: Arc<Generation>) -> Arc<Generation> {
        self.0.swap(desk)
    }
}

/// The tasks of a plan on one worker. Dropped when another plan is in use.
#[derive(Default)]
struct Tasks {
    ends: Vec<AbortHandle>,
    running: Option<health::RunningChecks>,
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.ends.iter().for_each(AbortHandle::abort);
    }
}

thread_local! {
    /// The tasks of the calling worker.
    static TASKS: RefCell<Tasks> = RefCell::default();
}

impl Generation {
    /// Prepares a plan, and makes the process's messages and commands use it.
    ///
    /// # Errors
    /// The threads for e-mails cannot be started.
    pub(crate) fn new(common: &Common, plan: Arc<Plan>, former: Option<&Shared>) -> Result<Self, String> {
        let replaced = former;
        let former = former.map(|former| &*former.plan);
        let Common { process, runtime, notifier, messages, .. } = common;
        // The callback checks the generation, because indices are only valid in this plan.
        let generation = Arc::new(std::sync::OnceLock::new());
        let moved = {
            let generation = generation.clone();
            Arc::new(move |backend, server| {
                if let Some(generation) = generation.get().copied() {
                    tokio::task::spawn_local(proxy::worker::close_idle(generation, backend, server));
                }
            })
        };
        let peers = {
            let plan = plan.clone();
            Arc::new(move |section: &str| crate::peers::rename(&plan, section))
        };
        let callbacks = resolvers::ResolverCallbacks { notify: notifier.notify(*messages), moved, peers };
        common.discovery.pause();
        crate::discovered::adopt(&plan, former);
        let sections = resolvers::Sections::new(plan.clone(), process.clone(), callbacks);
        let asking = httpclient::ClientSettings::of(&plan, &sections);
        let services = services::services(runtime.clone(), sections.clone(), asking, &plan, common.messages);
        let shared = Arc::new(Shared::new(plan, process.clone(), services, replaced));
        // The cell is set only here.
        let _ = generation.set(shared.generation);
        if let Some(program) = &shared.plan.lua {
            program.serve(Box::new(crate::scripts::ProcessHost(Arc::downgrade(&shared), runtime.clone())));
        }
        runtime.set_scripts(Arc::new(crate::scripts::Commands(Arc::downgrade(&shared))));
        let emails = Emails::start(&shared.plan, &checks::refused_emails(&shared, *messages))
            .map_err(|error| format!("cannot start the e-mail threads: {error}"))?;
        notifier.bind(&shared, emails);
        if let Some(former) = former {
            caches::let_go(former, Some(&shared.plan));
        }
        caches::serve(&shared, former.is_none(), *messages);
        let callbacks = exporter_callbacks(common);
        let exports = common.exporter.follow(&shared.plan, &sections, &callbacks);
        exports.map_err(|error| format!("cannot start the export of telemetry: {error}"))?;
        let checks = Arc::new(checks::gather(&shared, notifier, *messages));
        let servers = crate::servers::keep(&shared, runtime, &checks, &sections);
        Ok(Self { shared, sections, checks, servers, is_old: Arc::default() })
    }

    /// Follows the sources of the plan's discovered servers. Called when all workers have started the plan's checks.
    pub(crate) fn follow_sources(&self, common: &Common) {
        let followed = common.discovery.follow(&self.servers, &common.notifier, common.messages);
        if let Err(error) = followed {
            let text = format!("cannot start the discovery of servers: {error}");
            common.messages.say(Severity::Alert, &text);
        }
    }

    /// Starts the plan's tasks on the calling worker: its share of the listeners and checks, and periodic work.
    pub(crate) fn attend(&self, worker: &Rc<Worker>, share: Vec<ListeningSocket>, common: &Arc<Common>) {
        let mut tasks = Tasks::default();
        if worker.index == 0 {
            tasks.ends.extend(ask_about_certificates(&self.shared, &self.sections));
            tasks.ends.extend(order_certificates(&self.shared, &self.sections, common.messages));
            tasks.ends.extend(crate::tables::sweep(&self.shared.plan));
            tasks.ends.extend(crate::certificates::watch(&self.shared));
            tasks.ends.extend(crate::durations::watch(&self.shared));
            let notify = common.notifier.notify(common.messages);
            tasks.ends.extend(crate::fleet_limits::keep(&self.shared));
            tasks.ends.extend(crate::outliers::watch(&self.shared, notify));
            tasks.ends.extend(crate::history::sample(&self.shared.plan, &common.runtime.statistics));
        }
        tasks.ends.extend(crate::scripts::start(&self.shared, worker.index));
        for bound in share {
            tasks.ends.extend(self.listen(worker, bound, common));
        }
        proxy::serve::udp::leave_others(worker);
        for (frontend, proxy) in
            self.shared.plan.proxies.iter().enumerate().filter(|(_, proxy)| !proxy.disabled)
        {
            for (number, bind) in proxy.binds.iter().enumerate() {
                let is_reverse = matches!(bind.address, BindAddress::Reverse(_));
                if is_reverse && bind.workers.first() == Some(&worker.index) {
                    let task = proxy::serve::reverse::dial::keep(worker.clone(), frontend, number);
                    tokio::task::spawn_local(task);
                }
            }
        }
        tasks.running = Some(self.checks.start());
        TASKS.replace(tasks);
    }

    /// Stops the tasks on the calling worker that the next plan starts again.
    pub(crate) fn leave(&self) {
        self.is_old.store(true, Relaxed);
        for socket in &self.shared.plan.global.stats_sockets {
            socket.listener.wake();
        }
        drop(TASKS.take());
        crate::scripts::stop();
        self.shared.plan.lua.iter().for_each(|program| program.retire());
        self.sections.stop();
    }

    /// Serves a socket. Accept loops notice by themselves that another plan is in use; tasks that receive datagrams are aborted.
    fn listen(
        &self,
        worker: &Rc<Worker>,
        bound: ListeningSocket,
        common: &Arc<Common>,
    ) -> Option<AbortHandle> {
        let messages = common.messages;
        if let SocketOwner::Datagrams { proxy, .. } = bound.owner {
            let worker = worker.clone();
            let task = tokio::task::spawn_local(async move {
                let ListeningSocket { socket, workers, .. } = bound;
                let served = proxy::serve::datagrams::serve(worker, socket, proxy, &workers).await;
                if let Err(error) = served {
                    messages.say(Severity::Alert, &format!("cannot receive log messages: {error}"));
                }
            });
            return Some(task.abort_handle());
        }
        if let (Some(place), SocketOwner::Frontend { proxy, bind }) = (bound.quic, bound.owner) {
            self.serve_quic(worker, bound, place, (proxy, bind), common);
            return None;
        }
        if let SocketOwner::Frontend { proxy, bind } = bound.owner
            && self.shared.plan.proxies[proxy].udp.is_some()
        {
            serve_datagrams(worker, bound, (proxy, bind), common);
            return None;
        }
        let listener = match net::Listener::from_fd(bound.socket) {
            Ok(listener) => listener,
            Err(error) => {
                messages.say(Severity::Alert, &format!("cannot watch a listener: {error}"));
                return None;
            }
        };
        match bound.owner {
            SocketOwner::Frontend { proxy, bind } => {
                let task = proxy::serve::accept::serve(worker.clone(), listener, proxy, bind, bound.workers);
                let (exposed, worker) = (common.exposed.clone(), Rc::downgrade(worker));
                tokio::task::spawn_local(async move {
                    task.await;
                    // `shutdown frontend`: the address is free only once no copy of the socket is left. The copies of a replaced
                    // plan have already been closed.
                    if worker.upgrade().is_some_and(|worker| !worker.is_old()) {
                        exposed.close_of(bound.owner);
                    }
                });
            }
            SocketOwner::Datagrams { .. } => {}
            SocketOwner::RuntimeSocket(number) => {
                let socket = &self.shared.plan.global.stats_sockets[number];
                let task =
                    crate::control_socket::serve(common.clone(), socket, listener, self.is_old.clone());
                tokio::task::spawn_local(task);
            }
        }
        None
    }

    /// Serves a QUIC socket of a frontend's bind line, until that stops.
    fn serve_quic(
        &self,
        worker: &Rc<Worker>,
        bound: ListeningSocket,
        place: QuicPlace,
        (frontend, bind): (usize, usize),
        common: &Arc<Common>,
    ) {
        let Some(queue) = bound.queue else { return };
        let receives = place.role == QuicRole::New;
        let socket = match UdpSocket::new(bound.socket, receives) {
            Ok(socket) => socket,
            Err(error) => {
                common.messages.say(Severity::Alert, &format!("cannot watch a QUIC socket: {error}"));
                return;
            }
        };
        if !self.shared.plan.global.tune.quic.front.segmentation {
            socket.disable_segmentation();
        }
        let port = QuicPort { socket, receives, place: place.position, queue };
        tokio::task::spawn_local(proxy::serve::quic::serve(worker.clone(), port, frontend, bind));
    }
}

/// Serves a socket of a `udp-lb` section, until that stops.
fn serve_datagrams(
    worker: &Rc<Worker>,
    bound: ListeningSocket,
    (frontend, bind): (usize, usize),
    common: &Arc<Common>,
) {
    match proxy::serve::udp::serve(worker.clone(), bound.socket, frontend, bind) {
        Ok(Some(task)) => {
            let exposed = common.exposed.clone();
            tokio::task::spawn_local(async move {
                // The address is free only once no copy of the socket is left.
                if let Some((proxy, bind)) = task.await {
                    exposed.close_of(SocketOwner::Frontend { proxy, bind });
                }
            });
        }
        Ok(None) => {}
        Err(error) => common.messages.say(Severity::Alert, &format!("cannot receive datagrams: {error}")),
    }
}

/// Returns the functions by which the exporter of telemetry reports and reads metrics.
fn exporter_callbacks(common: &Common) -> ExporterCallbacks {
    let statistics = common.runtime.statistics.clone();
    let metrics = move || {
        let request = MetricsRequest { method: http::Method::Get, uri: "/", accept: b"" };
        let response = statistics::prometheus::respond(&statistics, &request);
        String::from_utf8_lossy(&response.body.flatten().collect::<Vec<u8>>()).into_owned()
    };
    let statistics = common.runtime.statistics.clone();
    let proxies = move || statistics.view().proxies.iter().map(|proxy| proxy.state.clone()).collect();
    let notify = common.notifier.notify_process(common.messages);
    ExporterCallbacks { notify, metrics: Arc::new(metrics), proxies: Arc::new(proxies) }
}

/// Starts the updates of OCSP responses.
fn ask_about_certificates(shared: &Arc<Shared>, sections: &resolvers::Sections) -> Option<AbortHandle> {
    let plan = &shared.plan;
    let mut settings = httpclient::ClientSettings::of(plan, sections);
    settings.proxy = plan.global.ocsp_proxy;
    let logged = shared.clone();
    let log = Rc::new(move |level: u8, text: &str| checks::log_global(&logged, level, text));
    let (files, process) = (plan.tls.clone(), shared.process.clone());
    Some(tokio::task::spawn_local(ocsp::run(ocsp::Asking { files, process, settings, log })).abort_handle())
}

/// Starts ordering certificates.
fn order_certificates(
    shared: &Arc<Shared>,
    sections: &resolvers::Sections,
    messages: MessageFormat,
) -> Vec<AbortHandle> {
    let plan = &shared.plan;
    let weak = Arc::downgrade(shared);
    let log = Rc::new(move |level: u8, text: &str| {
        if level <= 3 {
            messages.say(Severity::Warning, text);
        }
        if let Some(shared) = weak.upgrade() {
            checks::log_global(&shared, level, text);
        }
    });
    acme::start(plan, &shared.process, httpclient::ClientSettings::of(plan, sections), log)
}
