//! Discovered servers (`servers from`): applies the lists of the sources to the plan, the workers and the checks.

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use discovery::reconcile::{KnownServer, LineDemand, ServerNames, ServerNumbers, steps};
use discovery::{Discoverer, DiscoveryCallbacks, SweptServers};
use plan::discovered::DiscoveredServers;
use plan::discovery::{DiscoveredInstance, InstancePhase};
use plan::server::ServerSettings;
use plan::{Plan, Proxy};
use state::discovery::{Feed, Instance};
use state::server::ServerAddress;
use state::transition::{self, NOTICE};
use state::{Admin, Server, events};

use crate::checks::Notifier;
use crate::memory;
use crate::messages::MessageFormat;
use crate::servers::RuntimeServers;

/// If a list changes more servers of a line than this, they are reported together.
const REPORTED_APART: usize = 8;

/// The servers of the plan in use; none while a reload replaces the plan. The lock is held while a list is applied.
type CurrentServers = Arc<Mutex<Weak<RuntimeServers>>>;

/// The discovery of the process.
#[derive(Default)]
pub(crate) struct Discovery {
    discoverer: Discoverer,
    servers: CurrentServers,
}

impl Discovery {
    /// Applies no list until [`follow`](Self::follow): the next plan starts with the current lists.
    pub(crate) fn pause(&self) {
        *locked(&self.servers) = Weak::new();
    }

    /// Applies all lists to `servers` from now on, and follows those that its plan uses. The workers must have started its checks.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn follow(
        &self,
        servers: &Arc<RuntimeServers>,
        notifier: &Notifier,
        messages: MessageFormat,
    ) -> std::io::Result<()> {
        let notify = notifier.notify(messages);
        let mut current = locked(&self.servers);
        *current = Arc::downgrade(servers);
        // Lists may have changed during the pause.
        let lines = lines_by_list(&servers.shared.plan).into_values();
        let feeds = lines.filter_map(|lines| Some(&lines.first()?.feed));
        feeds.filter(|feed| !feed.is_applied()).for_each(|feed| servers.follow_list(feed, &notify));
        drop(current);
        let slot = self.servers.clone();
        let changed = move |feed: &Arc<Feed>| {
            let current = locked(&slot);
            if let Some(servers) = current.upgrade() {
                servers.follow_list(feed, &notify);
            }
        };
        let slot = self.servers.clone();
        let sweep = move || -> SweptServers { Box::pin(sweep(slot.clone())) };
        let notify = notifier.notify_process(messages);
        let callbacks = DiscoveryCallbacks { notify, changed: Arc::new(changed), sweep: Arc::new(sweep) };
        self.discoverer.follow(&servers.shared.plan, &callbacks)
    }
}

fn locked(servers: &CurrentServers) -> MutexGuard<'_, Weak<RuntimeServers>> {
    // After a panic while a list was applied, the servers that were changed before are intact.
    servers.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes the servers that have left and are idle. Returns whether others are still busy.
async fn sweep(slot: CurrentServers) -> bool {
    let Some(servers) = locked(&slot).upgrade() else { return true };
    servers.close_idle_of_gone().await;
    let current = locked(&slot);
    match current.upgrade() {
        Some(now) if Arc::ptr_eq(&now, &servers) => servers.remove_idle(),
        // Another plan is in use, or is about to be.
        _ => true,
    }
}

/// The demand of a line.
fn demand(line: &DiscoveredServers) -> LineDemand<'_> {
    LineDemand {
        filter: &line.filter,
        max: line.max,
        prefer_zone: line.prefer_zone.as_deref(),
        all_backup: line.prototype.state.backup,
    }
}

/// The names and numbers that the servers of a backend have.
struct Taken {
    names: ServerNames,
    numbers: ServerNumbers,
}

impl Taken {
    fn of(states: &[Arc<Server>]) -> Self {
        let mut names = ServerNames::default();
        names.extend(states.iter().map(|server| server.name.to_string().into()));
        let mut numbers = ServerNumbers::default();
        numbers.extend(states.iter().map(|server| server.id));
        Self { names, numbers }
    }
}

/// An instance and its kind: its name, its address, and whether its server is a backup server.
type InstanceKey = (Box<str>, (IpAddr, u16), bool);

fn key(instance: &Instance, is_backup: bool) -> InstanceKey {
    (instance.id.clone(), (instance.address, instance.port), is_backup)
}

/// Creates the settings of a server for `line`. Its index is not set yet. `former` is the server for the same instance in an
/// earlier plan.
fn make(
    line: &Arc<DiscoveredServers>,
    instance: &Instance,
    is_backup: bool,
    former: Option<&Arc<ServerSettings>>,
    taken: &mut Taken,
) -> ServerSettings {
    let prototype = &line.prototype.state;
    let address = ServerAddress::Ip(SocketAddr::new(instance.address, instance.port));
    let (name, number) = match former {
        Some(former) => (former.state.name.to_string().into(), former.state.id),
        None => {
            let place = (instance.address, instance.port);
            (taken.names.choose(&instance.id), taken.numbers.choose(&instance.id, place))
        }
    };
    let mut seed = prototype.seed_alike(number, &name, address, is_backup);
    if let Some(weight) = instance.weight {
        seed.weight = weight;
    }
    taken.numbers.take(number);
    let discovered = DiscoveredInstance::new(&line.feed, line.number, instance);
    let state = match former.filter(|former| former.state.may_become(&seed)) {
        Some(former) => {
            former.state.renew(seed, base::clock::now_ms());
            former.state.become_alike(prototype);
            // The phase of a newer list takes effect when the sources are followed.
            if let Some(own) = &former.discovered {
                discovered.set_phase(own.phase());
            }
            former.state.clone()
        }
        None => {
            let state = prototype.alike(seed);
            if InstancePhase::of(instance) != InstancePhase::Ready {
                state.change_admin(Admin::FORCED_MAINT, 0, base::clock::now_ms());
            }
            state
        }
    };
    ServerSettings { state, discovered: Some(Arc::new(discovered)), ..line.prototype.clone() }
}

/// Uses the lists that the runtime socket of an earlier process has written, until the sources answer. Lines that are not lists
/// are ignored, because another program may have written them.
pub(crate) fn restore(plan: &Plan, lists: &[u8]) {
    for line in lists.split(|byte| *byte == b'\n') {
        let Ok(saved) = discovery::decode::saved::decode(line) else { continue };
        let sections = plan.discovery.iter().filter(|section| section.state.name == saved.section);
        let feeds = sections.flat_map(|section| section.state.feeds());
        if let Some(feed) = feeds.into_iter().find(|feed| feed.query == saved.query) {
            feed.restore(saved.instances);
        }
    }
}

/// Makes the servers of a new plan from the last lists, before the plan is in use. Servers that the former plan has too are carried
/// over with their state.
pub(crate) fn adopt(plan: &Plan, former: Option<&Plan>) {
    for proxy in plan.attended().filter(|proxy| !proxy.discovered.is_empty() && !proxy.disabled) {
        let before = former.and_then(|plan| plan.backend(&proxy.state.name));
        let before = before.filter(|before| Arc::ptr_eq(&before.state, &proxy.state));
        let mut states: Vec<_> = proxy.servers.fixed().iter().map(|server| server.state.clone()).collect();
        let mut taken = Taken::of(&states);
        let of_instance = |server: Arc<ServerSettings>| {
            let own = server.discovered.as_ref().filter(|own| own.phase() != InstancePhase::Gone)?;
            Some(((own.id.clone(), own.address, server.state.backup), server.clone()))
        };
        let former: HashMap<InstanceKey, Arc<ServerSettings>> = before
            .into_iter()
            .flat_map(|before| before.servers.discovered())
            .filter_map(of_instance)
            .collect();
        // New servers must not get the name of one that another line carries over.
        let fixed: HashSet<Box<str>> = states.iter().map(|server| server.name.to_string().into()).collect();
        taken.names.extend(former.values().map(|server| server.state.name.to_string().into()));
        taken.numbers.extend(former.values().map(|server| server.state.id));
        for line in &proxy.discovered {
            if line.feed.list().is_none()
                && let Some(list) = discovery::read_now(&line.section)
            {
                line.feed.restore(list);
            }
            let Some(list) = line.feed.list() else { continue };
            // Instances that are draining get a server only if they have one.
            let of_draining = |instance: &Instance| {
                let server = |is_backup: bool| former.get(&key(instance, is_backup));
                server(false).into_iter().chain(server(true)).filter_map(|server| known(server))
            };
            let draining: Vec<_> =
                list.iter().filter(|instance| instance.is_draining).flat_map(of_draining).collect();
            let steps = steps(&list, demand(line), &draining);
            let kept = steps.keep.into_iter().map(|(server, at)| (at, draining[server].is_backup));
            let listed: Vec<_> = steps.add.into_iter().chain(kept).collect();
            line.count.store(listed.len() as u64, Relaxed);
            // The excess is reported when the sources are followed.
            if steps.excess > 0 {
                line.feed.set_applied(None);
            }
            for (at, is_backup) in listed {
                let known = former.get(&key(&list[at], is_backup));
                // A server of the configuration may have taken its name.
                let known = known.filter(|known| !fixed.contains(&*known.state.name));
                if let Some(server) = proxy.servers.add(make(line, &list[at], is_backup, known, &mut taken)) {
                    states.push(server.state.clone());
                }
            }
        }
        proxy.state.servers.store(Arc::new(states));
    }
    lines_by_list(plan).values().for_each(|lines| count(lines));
}

/// The lines of a plan by the addresses of their lists, which outlive the plan.
fn lines_by_list(plan: &Plan) -> HashMap<*const Feed, Vec<&DiscoveredServers>> {
    let mut lines: HashMap<_, Vec<_>> = HashMap::new();
    for line in plan.attended().flat_map(|proxy| &proxy.discovered) {
        lines.entry(Arc::as_ptr(&line.feed)).or_default().push(&**line);
    }
    lines
}

/// Adds up the counts of the lines that use a list.
fn count(lines: &[&DiscoveredServers]) {
    let Some(first) = lines.first() else { return };
    let sum = |number: fn(&DiscoveredServers) -> &AtomicU64| -> u64 {
        lines.iter().map(|line| number(line).load(Relaxed)).sum()
    };
    first.feed.servers.store(sum(|line| &line.count), Relaxed);
    first.feed.excess.store(sum(|line| &line.excess), Relaxed);
}

impl RuntimeServers {
    /// Applies a list to the lines that use it.
    pub(crate) fn follow_list(&self, feed: &Arc<Feed>, notify: &health::Notify) {
        // After a panic, the servers that were changed before are intact.
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(list) = feed.list() else { return };
        let plan = &self.shared.plan;
        let mut lines = Vec::new();
        for index in plan.attended.iter().copied() {
            let proxy = &plan.proxies[index];
            for line in proxy.discovered.iter().filter(|line| Arc::ptr_eq(&line.feed, feed)) {
                lines.push(&**line);
                if !proxy.disabled {
                    let report = Reporter { proxy: &proxy.state, notify };
                    self.follow_line(index, proxy, line, &list, &report);
                }
            }
        }
        feed.set_applied(Some(list));
        count(&lines);
    }

    fn follow_line(
        &self,
        index: usize,
        proxy: &Arc<Proxy>,
        line: &Arc<DiscoveredServers>,
        list: &[Instance],
        report: &Reporter<'_>,
    ) {
        let of_line = |server: &Arc<ServerSettings>| {
            server.discovered.as_ref().is_some_and(|own| own.line == line.number)
        };
        let servers: Vec<Arc<ServerSettings>> = proxy.servers.discovered().filter(of_line).collect();
        let known: Vec<KnownServer<'_>> = servers.iter().filter_map(|server| known(server)).collect();
        let steps = steps(list, demand(line), &known);
        drop(known);
        let excess = line.excess.swap(steps.excess as u64, Relaxed);
        let (section, reports) = (&line.section.state.name, steps.add.len() + steps.leave.len());
        let reports_apart = reports <= REPORTED_APART;
        let count = steps.keep.len() + steps.add.len();
        line.count.store(count as u64, Relaxed);
        // Servers that receive requests are added first, so that the backend always has some.
        let added = self.add_all(index, proxy, line, list, &steps.add);
        for server in added.iter().filter(|_| reports_apart) {
            let address = server.discovered.as_ref().map(|own| SocketAddr::from(own.address));
            let address = address.map_or_else(String::new, |address| format!(" at {address}"));
            report.server(&server.state, &format!("is added{address}: discovery {section} lists it"));
        }
        let is_ready = |instance: usize| InstancePhase::of(&list[instance]) == InstancePhase::Ready;
        for wanted in [true, false] {
            for &(server, instance) in steps.keep.iter().filter(|(_, instance)| is_ready(*instance) == wanted)
            {
                keep(proxy, &servers[server], &list[instance], report);
            }
        }
        for &server in &steps.leave {
            let server = &servers[server];
            leave(server);
            if reports_apart {
                let text = format!("leaves: discovery {section} does not list it any more");
                report.server(&server.state, &text);
            }
        }
        if !reports_apart {
            let (added, left) = (added.len(), steps.leave.len());
            report.backend(&format!(
                "discovery {section}: {added} servers of backend {} are added and {left} leave, {count} are listed.",
                proxy.state.name
            ));
            memory::return_soon();
        }
        if steps.excess as u64 > excess {
            report.backend(&format!(
                "discovery {section}: {} instances get no server in backend {}, because its line has `max {}`.",
                steps.excess, proxy.state.name, line.max
            ));
        }
        if let Some((level, text)) = transition::refresh_backend(&proxy.state, base::clock::now_ms()) {
            report.send(level, &text);
        }
    }

    /// Adds the servers of instances.
    fn add_all(
        &self,
        index: usize,
        proxy: &Arc<Proxy>,
        line: &Arc<DiscoveredServers>,
        list: &[Instance],
        instances: &[(usize, bool)],
    ) -> Vec<Arc<ServerSettings>> {
        if instances.is_empty() {
            return Vec::new();
        }
        let mut states = proxy.state.servers.load().to_vec();
        let mut taken = Taken::of(&states);
        let mut added = Vec::with_capacity(instances.len());
        for &(at, is_backup) in instances {
            let server = make(line, &list[at], is_backup, None, &mut taken);
            // Nothing chooses it before its checks are prepared.
            server.state.change_admin(Admin::FORCED_MAINT, 0, base::clock::now_ms());
            let Some(server) = proxy.servers.add(server) else { break };
            server.state.number_revision();
            states.push(server.state.clone());
            added.push(server);
        }
        proxy.state.servers.store(Arc::new(states));
        self.shared.proxies[index].renew();
        self.show(proxy);
        for server in &added {
            self.checks.add(proxy, server);
            events::discovered(&proxy.state, &server.state);
            let is_ready = server.discovered.as_ref().is_some_and(|own| own.phase() == InstancePhase::Ready);
            if is_ready {
                let now = base::clock::now_ms();
                server.state.change_admin(0, Admin::FORCED_MAINT, now);
                transition::leave_maintenance(&server.state, now);
            }
        }
        added
    }

    /// Closes the idle connections to servers that have left.
    async fn close_idle_of_gone(&self) {
        let plan = &self.shared.plan;
        for (index, proxy) in
            plan.proxies.iter().enumerate().filter(|(_, proxy)| !proxy.discovered.is_empty())
        {
            for server in proxy.servers.discovered().filter(is_gone) {
                if server.state.serving() == 0 && server.state.open().load(Relaxed) > 0 {
                    proxy::worker::close_idle(self.shared.generation, index, server.index).await;
                }
            }
        }
    }

    /// Removes the servers that have left and are idle. Returns whether others are still busy.
    fn remove_idle(&self) -> bool {
        // After a panic, the servers that were changed before are intact.
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_any_busy = false;
        let plan = &self.shared.plan;
        for (index, proxy) in
            plan.proxies.iter().enumerate().filter(|(_, proxy)| !proxy.discovered.is_empty())
        {
            let gone = proxy.servers.discovered().filter(is_gone);
            let (idle, busy): (Vec<_>, Vec<_>) = gone.partition(|server| is_idle(&server.state));
            is_any_busy |= !busy.is_empty();
            self.remove_all(index, proxy, &idle);
        }
        is_any_busy
    }

    fn remove_all(&self, index: usize, proxy: &Arc<Proxy>, servers: &[Arc<ServerSettings>]) {
        if servers.is_empty() {
            return;
        }
        for server in servers {
            server.state.removed.store(true, Relaxed);
        }
        let mut states = proxy.state.servers.load().to_vec();
        states.retain(|state| !state.removed.load(Relaxed));
        proxy.state.servers.store(Arc::new(states));
        for server in servers {
            self.checks.forget(&server.state);
            server.state.end_revision();
            events::forgotten(&proxy.state, &server.state);
            proxy.servers.remove(server.index);
            proxy::worker::forget(self.shared.generation, index, server.index);
        }
        self.show(proxy);
    }
}

/// A server as an earlier list has made it.
fn known(server: &ServerSettings) -> Option<KnownServer<'_>> {
    let own = server.discovered.as_ref()?;
    Some(KnownServer {
        id: &own.id,
        address: own.address,
        is_backup: server.state.backup,
        phase: own.phase(),
    })
}

/// Whether the instance of a server is not listed any more.
fn is_gone(server: &Arc<ServerSettings>) -> bool {
    server.discovered.as_ref().is_some_and(|own| own.phase() == InstancePhase::Gone)
}

/// Whether nothing uses a server.
fn is_idle(server: &Server) -> bool {
    server.serving() == 0 && server.open().load(Relaxed) == 0 && server.queue.is_empty()
}

/// Takes a server out of service. Requests that it has begun to serve continue.
fn leave(server: &ServerSettings) {
    if let Some(own) = &server.discovered {
        own.set_phase(InstancePhase::Gone);
    }
    server.state.change_admin(Admin::FORCED_MAINT, 0, base::clock::now_ms());
    server.state.queue.wake_all();
    server.state.outdate();
}

/// Applies the weight and the phase of an instance to its server.
fn keep(proxy: &Proxy, server: &ServerSettings, instance: &Instance, report: &Reporter<'_>) {
    let Some(own) = &server.discovered else { return };
    if own.set_weight(instance.weight) {
        let of_line = proxy.discovered[own.line].prototype.state.initial_weight();
        server.state.set_weight(instance.weight.unwrap_or(of_line));
    }
    let phase = InstancePhase::of(instance);
    if own.set_phase(phase) == phase {
        return;
    }
    let (set, clear) = match phase {
        InstancePhase::Ready => (0, Admin::FORCED_MAINT | Admin::FORCED_DRAIN),
        InstancePhase::Draining => (Admin::FORCED_DRAIN, Admin::FORCED_MAINT),
        InstancePhase::NotReady | InstancePhase::Gone => (Admin::FORCED_MAINT, 0),
    };
    let via = format!(" (discovery {})", own.feed.section);
    let send = |_: &state::Proxy, level: u8, text: &str| report.send(level, text);
    transition::administer(&proxy.state, &server.state, set, clear, &via, base::clock::now_ms(), &send);
}

/// Reports changes of a backend's servers, from a thread that is not a worker.
struct Reporter<'a> {
    proxy: &'a Arc<state::Proxy>,
    notify: &'a health::Notify,
}

impl Reporter<'_> {
    /// Reports a change of a server.
    fn server(&self, server: &Server, what: &str) {
        let text = format!("{} {what}.", transition::subject(server));
        server.record_change(&text);
        self.send(NOTICE, &text);
    }

    /// Reports a change of several servers.
    fn backend(&self, text: &str) {
        state::journal::record(state::EventTopic::Servers, &self.proxy.name, text);
        self.send(NOTICE, text);
    }

    fn send(&self, level: u8, text: &str) {
        let (proxy, notify, text) = (self.proxy.clone(), self.notify.clone(), text.to_owned());
        // Loggers have counters that only workers write.
        runtime::worker::post(0, move || notify(&proxy, level, &text));
    }
}
