//! The servers whose names a section resolves: updates their addresses, ports, weights and states when a resolution ends (manual,
//! section 5.3). Called by `task`, on the section's worker only.

use std::collections::{HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use base::address::Family;
use plan::Plan;
use plan::resolvers::{Resolution as Settings, Wishes};
use plan::{Proxy, Resolvers};
use state::server::ServerAddress;
use state::transition::{self, NOTICE};
use state::{Admin, Server};

use crate::ResolverCallbacks;
use crate::choose::{Choice, choose, class};
use crate::engine::{EngineOutput, NameKey, QueryKind, Resolution, ResolutionStatus, ResolverEngine};
use crate::message::{Data, ServiceRecord};

/// A server of a plan, with its resolutions.
struct Follower {
    backend: Arc<Proxy>,
    index: usize,
    /// The resolution of the server's host name.
    host: Option<usize>,
    /// The resolution of the server's SRV records.
    records: Option<usize>,
    /// The address that the server has from that resolution. No other server of its backend should use it too.
    taken: Option<IpAddr>,
    /// The SRV record assigned to the server: host and port.
    record: Option<(Box<str>, u16)>,
}

impl Follower {
    /// Returns a follower without resolutions. A server that had an SRV record in an earlier process keeps it.
    fn new(backend: Arc<Proxy>, index: usize) -> Self {
        let server = &backend.servers.fixed()[index].state;
        let record = server.srv_record.get().and_then(|_| {
            let host = server.fqdn.load();
            host.as_ref().map(|host| (Box::clone(host), server.port()))
        });
        Self { backend, index, host: None, records: None, taken: None, record }
    }

    fn server(&self) -> &Arc<Server> {
        &self.backend.servers.fixed()[self.index].state
    }

    fn settings(&self) -> Option<&Settings> {
        self.backend.servers.fixed()[self.index].resolution.as_ref()
    }

    fn address(&self) -> Option<IpAddr> {
        match &**self.server().address.load() {
            ServerAddress::Ip(address) => Some(address.ip()),
            _ => None,
        }
    }
}

/// The followers of a section.
pub(crate) struct Followers {
    section: Arc<Resolvers>,
    callbacks: ResolverCallbacks,
    list: Vec<Follower>,
    /// The followers of each host's resolution, in configuration order.
    by_host: HashMap<usize, Vec<usize>>,
}

/// Addresses of a host while its servers choose among them.
struct HostAddresses {
    addresses: Vec<IpAddr>,
    set: HashSet<IpAddr>,
    /// How many servers of a backend use an address. An address that a server has only from startup is counted once an answer
    /// contains it.
    taken: HashMap<(usize, IpAddr), u32>,
    /// The best class of any address, for the wishes that were evaluated last, because most servers of a host have the same wishes.
    best: Option<(Wishes, u8)>,
}

impl HostAddresses {
    fn best_class(&mut self, wishes: &Wishes) -> u8 {
        if let Some((of, best)) = &self.best
            && of == wishes
        {
            return *best;
        }
        let best = self.addresses.iter().map(|address| class(*address, wishes)).max().unwrap_or(0);
        self.best = Some((wishes.clone(), best));
        best
    }
}

/// Access to the engine within one turn.
pub(crate) struct EngineTurn<'a> {
    pub(crate) engine: &'a mut ResolverEngine,
    pub(crate) now: u64,
    pub(crate) out: &'a mut Vec<EngineOutput>,
}

impl Followers {
    /// Returns the servers of `plan` that `section` resolves. No resolution is started.
    pub(crate) fn new(section: &Arc<Resolvers>, plan: &Arc<Plan>, callbacks: &ResolverCallbacks) -> Self {
        let mut list = Vec::new();
        for backend in plan.attended().filter(|backend| !backend.disabled) {
            for server in backend.servers.iter() {
                let own = server.resolution.as_ref().is_some_and(|own| Arc::ptr_eq(&own.resolvers, section));
                if own {
                    list.push(Follower::new(backend.clone(), server.index));
                }
            }
        }
        Self { section: section.clone(), callbacks: callbacks.clone(), list, by_host: HashMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Starts resolving all names.
    pub(crate) fn begin(&mut self, turn: &mut EngineTurn<'_>) {
        for at in 0..self.list.len() {
            let server = self.list[at].server().clone();
            if let Some(name) = server.srv_record.get() {
                let key = NameKey::new(name, QueryKind::Service);
                self.list[at].records = turn.engine.follow(key, turn.now, turn.out);
            } else if let Some(name) = &*server.fqdn.load() {
                self.follow_host(at, name, turn);
            }
        }
    }

    fn follow_host(&mut self, at: usize, name: &str, turn: &mut EngineTurn<'_>) {
        let prefer = self.list[at].settings().and_then(|own| own.wishes.prefer).unwrap_or(Family::V6);
        let key = NameKey::new(name, QueryKind::Address(prefer));
        let Some(host) = turn.engine.follow(key, turn.now, turn.out) else { return };
        self.list[at].host = Some(host);
        let places = self.by_host.entry(host).or_default();
        places.insert(places.partition_point(|place| *place < at), at);
        if turn.engine.get(host).is_some_and(|known| known.status == ResolutionStatus::Valid) {
            let mut found = self.found(host, turn);
            self.take_address(at, None, &mut found, turn);
        }
    }

    /// Handles a server that cannot be reached: its name is resolved sooner.
    pub(crate) fn doubt(&self, at: usize, turn: &mut EngineTurn<'_>) {
        if let Some(host) = self.list.get(at).and_then(|follower| follower.host) {
            turn.engine.sooner(host, turn.now, turn.out);
        }
    }

    /// Iterates over the servers in order.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Arc<Server>> {
        self.list.iter().map(Follower::server)
    }

    fn leave_host(&mut self, at: usize, turn: &mut EngineTurn<'_>) {
        self.list[at].taken = None;
        if let Some(host) = self.list[at].host.take() {
            if let Some(places) = self.by_host.get_mut(&host) {
                places.retain(|place| *place != at);
            }
            turn.engine.leave(host, turn.now);
        }
    }

    /// Gives a server another host name (`set server … fqdn`).
    pub(crate) fn rename(
        &mut self,
        backend: &str,
        server: &Arc<Server>,
        name: &str,
        turn: &mut EngineTurn<'_>,
    ) {
        let at = self
            .list
            .iter()
            .position(|one| *one.backend.state.name == *backend && Arc::ptr_eq(one.server(), server));
        let Some(at) = at else { return };
        self.leave_host(at, turn);
        server.set_fqdn(Some(name));
        self.follow_host(at, name, turn);
    }

    /// Handles the end of a resolution; `by` is the name server that answered.
    pub(crate) fn ended(&mut self, resolution: usize, by: Option<usize>, turn: &mut EngineTurn<'_>) {
        let Some(ended) = turn.engine.get(resolution) else { return };
        let valid = ended.status == ResolutionStatus::Valid;
        let held = turn.engine.is_held(ended, turn.now);
        if ended.key.kind == QueryKind::Service {
            let services = if valid { services(ended) } else { Vec::new() };
            if valid || !held {
                self.take_services(resolution, &services, turn);
            }
        } else if valid || !held {
            let mut by = by;
            let mut found = self.found(resolution, turn);
            for at in self.by_host.get(&resolution).cloned().unwrap_or_default() {
                match valid {
                    true => self.take_address(at, by.take(), &mut found, turn),
                    false => self.lose_address(at, turn),
                }
            }
        }
        if !valid && !held {
            turn.engine.forget_records(resolution);
        }
        self.report_peers(resolution);
    }

    /// Reports the end of a resolution to the `peers` sections with servers that follow it.
    fn report_peers(&self, resolution: usize) {
        let mut last = None;
        for follower in &self.list {
            let index = follower.backend.index;
            let concerns = [follower.records, follower.host].contains(&Some(resolution));
            if concerns && follower.backend.peers.is_some() && last.replace(index) != Some(index) {
                (self.callbacks.peers)(&follower.backend.state.name);
            }
        }
    }

    fn found(&self, host: usize, turn: &EngineTurn<'_>) -> HostAddresses {
        let records = turn.engine.get(host).map_or(&[][..], |known| &known.records);
        let of = |data: &Data| match data {
            Data::Address(address) => Some(*address),
            Data::Service(_) => None,
        };
        let addresses: Vec<IpAddr> = records.iter().filter_map(|kept| of(&kept.data)).collect();
        let mut taken = HashMap::new();
        for at in self.by_host.get(&host).into_iter().flatten() {
            let follower = &self.list[*at];
            if let Some(address) = follower.taken {
                *taken.entry((follower.backend.index, address)).or_default() += 1;
            }
        }
        HostAddresses { set: addresses.iter().copied().collect(), addresses, taken, best: None }
    }

    /// Gives a server the best of the addresses found for its name.
    fn take_address(
        &mut self,
        at: usize,
        by: Option<usize>,
        found: &mut HostAddresses,
        turn: &mut EngineTurn<'_>,
    ) {
        let follower = &self.list[at];
        let (own, backend, mine) = (follower.address(), follower.backend.index, follower.taken);
        let Some(settings) = follower.settings() else { return };
        let others = |found: &HostAddresses, address| {
            let all = found.taken.get(&(backend, address)).copied().unwrap_or(0);
            all - u32::from(mine == Some(address) && all > 0)
        };
        // An address set by hand stays as long as the name still has the one that it replaced.
        if own.is_some() && own != mine && mine.is_some_and(|mine| found.set.contains(&mine)) {
            return;
        }
        // The server nearly always has the best address already, and then no comparison is needed.
        if let Some(own) = own.filter(|own| mine == Some(*own) && found.set.contains(own))
            && others(found, own) == 0
            && class(own, &settings.wishes) == found.best_class(&settings.wishes)
        {
            return;
        }
        let addresses = found.addresses.iter().copied();
        let choice = choose(addresses, &settings.wishes, own, |address| others(found, address) > 0);
        let new = match choice {
            Choice::Keep => own,
            Choice::Take(address) => Some(address),
            Choice::Nothing => None,
        };
        if let Some(count) = mine.and_then(|mine| found.taken.get_mut(&(backend, mine))) {
            *count -= 1;
        }
        if let Some(new) = new {
            *found.taken.entry((backend, new)).or_default() += 1;
        }
        self.list[at].taken = new;
        match choice {
            Choice::Keep => {}
            Choice::Nothing => self.lose_address(at, turn),
            Choice::Take(address) => {
                let source = match by {
                    Some(nameserver) => {
                        let own = &self.section.state;
                        own.nameservers[nameserver].counters.update.add(1);
                        format!("{}/{}", own.name, own.nameservers[nameserver].name)
                    }
                    None => "DNS cache".to_owned(),
                };
                self.set_address(at, address, None, &source);
                self.bring_back(&self.list[at]);
            }
        }
    }

    /// Sets a server's address, and its port if it changes too.
    fn set_address(&self, at: usize, address: IpAddr, port: Option<u16>, source: &str) {
        let follower = &self.list[at];
        let (server, proxy) = (follower.server(), &follower.backend.state);
        let (old, old_port) = (follower.address(), server.port());
        let port = port.unwrap_or(old_port);
        let mut changes = Vec::new();
        if old != Some(address) {
            let shown = old.map_or_else(|| "(none)".to_owned(), |old| old.to_string());
            changes.push(format!("IP changed from '{shown}' to '{address}'"));
        }
        if port != old_port {
            changes.push(format!("port changed from '{old_port}' to '{port}'"));
        }
        if !changes.is_empty() {
            server.set_address(ServerAddress::Ip(SocketAddr::new(address, port)));
            (self.callbacks.moved)(follower.backend.index, follower.index);
            let text = format!("{}/{}: {} by '{source}'.", proxy.name, server.name, changes.join(", "));
            (self.callbacks.notify)(proxy, NOTICE, &text);
        }
    }

    /// Ends the maintenance caused by a name without an address.
    fn bring_back(&self, follower: &Follower) {
        let (server, proxy) = (follower.server(), &follower.backend.state);
        if server.admin().0 & Admin::RESOLUTION_MAINT == 0 {
            return;
        }
        let now = base::clock::now_ms();
        server.change_admin(0, Admin::RESOLUTION_MAINT, now);
        if !server.admin().in_maintenance() {
            // The server is up until the next check, unless `init-state` sets its initial state.
            if server.health.initial().is_none() || !server.checked.load(Relaxed) {
                server.health.level.store(server.health.rise.load(Relaxed), Relaxed);
                server.come_up(now);
            }
            let text = transition::resolves_again(server);
            server.record_change(&text);
            (self.callbacks.notify)(proxy, NOTICE, &text);
        }
        let text = format!(
            "Server {}/{} administratively READY thanks to valid DNS answer.",
            proxy.name, server.name
        );
        (self.callbacks.notify)(proxy, NOTICE, &text);
        self.refresh(follower, now);
        self.inherit(follower);
    }

    /// Puts a server into maintenance because its name no longer has an address. The status is the cause.
    fn lose_address(&mut self, at: usize, turn: &EngineTurn<'_>) {
        self.list[at].taken = None;
        let follower = &self.list[at];
        let status = follower.host.and_then(|host| turn.engine.get(host)).map(|known| known.status);
        let cause = match status {
            Some(ResolutionStatus::Valid | ResolutionStatus::Unknown) => "No IP for server ",
            Some(ResolutionStatus::NoName) => "DNS NX status",
            Some(ResolutionStatus::Timeout) => "DNS timeout status",
            Some(ResolutionStatus::Refused) => "DNS refused status",
            Some(ResolutionStatus::Other) | None => "unspecified DNS error",
        };
        self.take_down(follower, cause);
    }

    fn take_down(&self, follower: &Follower, cause: &str) {
        let (server, proxy) = (follower.server(), &follower.backend.state);
        let before = server.admin();
        if before.0 & Admin::RESOLUTION_MAINT != 0 {
            return;
        }
        // The server loses its address only after maintenance has begun, when it gets no more requests.
        let notify = |proxy: &state::Proxy, level, text: &str| (self.callbacks.notify)(proxy, level, text);
        let via = format!(" ({cause})");
        transition::administer(
            proxy,
            server,
            Admin::RESOLUTION_MAINT,
            0,
            &via,
            base::clock::now_ms(),
            &notify,
        );
        server.health.level.store(0, Relaxed);
        server.set_address(ServerAddress::Unresolved);
        (self.callbacks.moved)(follower.backend.index, follower.index);
    }

    fn refresh(&self, follower: &Follower, now: u64) {
        let proxy = &follower.backend.state;
        if let Some((level, text)) = transition::refresh_backend(proxy, now) {
            (self.callbacks.notify)(proxy, level, &text);
        }
    }

    /// Propagates the maintenance to the servers that track this one.
    fn inherit(&self, follower: &Follower) {
        let notify = |proxy: &state::Proxy, level, text: &str| (self.callbacks.notify)(proxy, level, text);
        transition::inherit(&follower.backend.state, follower.server(), base::clock::now_ms(), &notify);
    }

    /// Assigns the records of an SRV name to servers, separately in each backend. Servers whose record no longer exists are freed,
    /// and each record without a server gets a free one while there are any.
    fn take_services(&mut self, records: usize, services: &[ServiceRecord], turn: &mut EngineTurn<'_>) {
        let key = |host: &str, port: u16| (host.to_ascii_lowercase(), port);
        let wanted: HashSet<_> = services.iter().map(|service| key(&service.target, service.port)).collect();
        let places: Vec<usize> =
            (0..self.list.len()).filter(|at| self.list[*at].records == Some(records)).collect();
        let mut standing = HashMap::new();
        let mut free: HashMap<usize, VecDeque<usize>> = HashMap::new();
        for at in places {
            let own = self.list[at].record.as_ref().map(|(host, port)| key(host, *port));
            let backend = self.list[at].backend.index;
            match own {
                Some(own) if wanted.contains(&own) => {
                    standing.insert((backend, own), at);
                    free.entry(backend).or_default();
                }
                own => {
                    if own.is_some() {
                        self.free(at, turn);
                    }
                    free.entry(backend).or_default().push_back(at);
                }
            }
        }
        for (backend, mut free) in free {
            for service in services {
                let standing = standing.get(&(backend, key(&service.target, service.port))).copied();
                if let Some(at) = standing.or_else(|| free.pop_front()) {
                    self.assign_record(at, service, turn);
                }
            }
        }
    }

    /// Assigns a record to a server, or updates the server of a record.
    fn assign_record(&mut self, at: usize, service: &ServiceRecord, turn: &mut EngineTurn<'_>) {
        let server = self.list[at].server().clone();
        let new = self.list[at].record.is_none();
        if new {
            self.list[at].record = Some((service.target.clone(), service.port));
        }
        let ignore = self.list[at].settings().is_some_and(|own| own.wishes.ignore_weight);
        // Scales 0..=65535 to 0..=256, so that only 0 becomes 0.
        let weight = u32::from(service.weight).div_ceil(256).min(256);
        if !ignore && server.user_weight() != weight {
            server.set_weight(weight);
            self.refresh(&self.list[at], turn.now);
        }
        if let Some(address) = service.address {
            self.leave_host(at, turn);
            self.set_address(at, address, Some(service.port), "DNS additional record");
            self.name_by_record(at, new, &service.target);
            self.bring_back(&self.list[at]);
            return;
        }
        self.name_by_record(at, new, &service.target);
        // The port is always that of the record, even if it was set by hand.
        match self.list[at].address().filter(|_| server.port() != service.port) {
            Some(own) => server.set_address(ServerAddress::Ip(SocketAddr::new(own, service.port))),
            None => server.service_port.store(service.port.into(), Relaxed),
        }
        if self.list[at].host.is_none() {
            self.follow_host(at, &service.target, turn);
        }
    }

    /// Gives a server the host name of its record, if the record is `new` to it.
    fn name_by_record(&self, at: usize, new: bool, name: &str) {
        if !new {
            return;
        }
        let (server, proxy) = (self.list[at].server(), &self.list[at].backend.state);
        let old = server.fqdn.load();
        let shown = old.as_ref().map_or("(null)", |old| old);
        let text =
            format!("{}/{} changed its FQDN from {shown} to {name} by 'SRV record'", proxy.name, server.name);
        server.set_fqdn(Some(name));
        server.change_admin(Admin::FQDN_SET, 0, base::clock::now_ms());
        (self.callbacks.notify)(proxy, NOTICE, &text);
    }

    /// Takes a server without a record out of use until it gets another record.
    fn free(&mut self, at: usize, turn: &mut EngineTurn<'_>) {
        self.leave_host(at, turn);
        self.list[at].record = None;
        let follower = &self.list[at];
        self.take_down(follower, "entry removed from SRV record");
        follower.server().set_fqdn(None);
        follower.server().service_port.store(0, Relaxed);
    }
}

fn services(ended: &Resolution) -> Vec<ServiceRecord> {
    let of = |data: &Data| match data {
        Data::Service(service) => Some(service.clone()),
        Data::Address(_) => None,
    };
    ended.records.iter().filter_map(|kept| of(&kept.data)).collect()
}
