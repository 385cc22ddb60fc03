//! The current state of a server: address, weight, administrative and operational state, load and counters.
//!
//! The runtime socket and health checks write it through the methods of this module; request tasks read it on every pick. Each
//! value on that path is a single atomic. [`places`] counts the requests that are being served.

mod alike;
mod changes;
mod places;
mod renew;
mod revision;
mod rise;
mod secured;
mod weight;

use std::net::IpAddr;
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicU8, AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};
use std::sync::{Arc, OnceLock};

use arc_swap::{ArcSwap, ArcSwapOption};
use once_cell::race::OnceBox;
use runtime::{LazySharded, timer};

use crate::LastSession;
pub use crate::address::{Doubt, ServerAddress};
use crate::counters::ServerCounters;
use crate::durations::Durations;
pub use crate::health::{AgentHealth, CHECK_STATUSES, CheckResult, Demand, Health, Trouble};
use crate::history::{OF_SERVER, OptionalHistory};
use crate::http_durations::HttpDurations;
use crate::name::ServerName;
use crate::performance::Performance;
use crate::queue::Queue;
use crate::server_load::CountedLoad;
use changes::ChangeTime;
use renew::ConfiguredValues;
use rise::{Marked, Starter};
pub use secured::Secured;

/// The number of changes to servers in this process that affect balancers. As long as it does not change, a balancer need not
/// check the versions of its servers. Written by every change to a server's state, weight or limit.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// Returns the number of server changes in this process that matter to balancers.
#[inline]
pub fn changes() -> u64 {
    CHANGES.load(Acquire)
}

/// Why a server is administratively out of service. A set of flags, which `show servers state` shows as one number (management
/// manual, `srv_admin_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Admin(pub u32);

impl Admin {
    /// `set server … state maint`.
    pub const FORCED_MAINT: u32 = 0x01;
    /// In maintenance because the tracked server is in maintenance.
    pub const INHERITED_MAINT: u32 = 0x02;
    /// Configured as `disabled`. This marks the origin of the maintenance, and remains when the maintenance ends.
    pub const CONFIGURED_MAINT: u32 = 0x04;
    /// `set server … state drain`.
    pub const FORCED_DRAIN: u32 = 0x08;
    /// Draining because the tracked server is draining.
    pub const INHERITED_DRAIN: u32 = 0x10;
    /// In maintenance because its name does not resolve.
    pub const RESOLUTION_MAINT: u32 = 0x20;
    /// The host name was set through the runtime socket.
    pub const FQDN_SET: u32 = 0x40;
    /// All flags that mean maintenance.
    pub const MAINT: u32 = Self::FORCED_MAINT | Self::INHERITED_MAINT | Self::RESOLUTION_MAINT;
    /// All flags that mean draining.
    pub const DRAIN: u32 = Self::FORCED_DRAIN | Self::INHERITED_DRAIN;

    /// Whether the server is in maintenance: no new connection, no check.
    pub fn in_maintenance(self) -> bool {
        self.0 & Self::MAINT != 0
    }

    /// Whether the server only serves persistent sessions.
    pub fn draining(self) -> bool {
        self.0 & Self::DRAIN != 0
    }
}

/// The operational state found by checks (`srv_op_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Operational {
    /// Down.
    Stopped = 0,
    /// Up, with a weight that is still rising (`slowstart`).
    Starting = 1,
    /// Up.
    Running = 2,
    /// Up for persistent sessions, going down.
    Stopping = 3,
}

/// The counter that includes a request while a server serves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the request is counted until it leaves"]
pub enum Tally {
    /// The shared count, which limits and balancers use.
    Shared,
    /// The worker's own count.
    Own,
    /// The worker's count includes the request. The request also holds one of the slots of a limit.
    Place,
}

/// The port offset that stands for "no offset".
const NOT_MAPPED: i32 = i32::MAX;

/// One server of a backend.
#[derive(Debug)]
pub struct Server {
    /// `id`, unique within the backend.
    pub id: u32,
    /// Whether the id is configured explicitly. Set by the configuration.
    pub forced_id: AtomicBool,
    /// The configuration of the server. Written by a reload.
    configured: ArcSwap<ConfiguredValues>,
    /// The name of the server.
    pub name: ServerName,
    /// The name of the server's backend.
    pub proxy: Arc<str>,
    /// Whether the server is only used if no other server is up (`backup`).
    pub backup: bool,
    /// The connection limit (`maxconn`), 0 for none. Written through [`Server::set_maxconn`].
    pub maxconn: AtomicU32,
    /// The lower limit under low load (`minconn`).
    pub minconn: u32,
    /// With a limit that holds for several processes ([`FLEET_LIMIT`]): the number of requests that the others are known to have.
    pub elsewhere: AtomicU32,
    /// Queue limit (`maxqueue`), 0 for none.
    pub maxqueue: u32,
    /// The current address for connections. Written through [`Server::set_address`].
    pub address: ArcSwap<ServerAddress>,
    /// How often the address changed. Connections that were opened before the last change are outdated. Written with each change.
    moves: AtomicU32,
    /// Whether connections use TLS: a [`Secured`]. Written by an operator.
    secured: AtomicU8,
    /// Whether the address is the unspecified one, which stands for the client's destination. Written with the address.
    unspecified: AtomicBool,
    /// The host name from which the address was resolved, if any. Written through [`Server::set_fqdn`].
    pub fqdn: ArcSwapOption<Box<str>>,
    /// The name of the SRV records for name, port and weight. Set once, by the configuration.
    pub srv_record: OnceBox<Box<str>>,
    /// `guid`. Set once, by the configuration.
    pub guid: OnceLock<Box<str>>,
    /// Whether the server's connections are distinguished by a name in requests (`pool-conn-name`, `sni`). Set by the
    /// configuration.
    pub names_connections: AtomicBool,
    /// Whether the server's name is resolved at run time (`resolvers`). Set by the configuration.
    pub resolved: AtomicBool,
    /// Called to resolve the name again if connections to the server's address fail.
    doubt: ArcSwapOption<Doubt>,
    /// Called to raise the weight when the server comes up, if `slowstart` is configured.
    pub(crate) starter: ArcSwapOption<Starter>,
    /// Called when the server goes up or down, if the configuration specifies an action for this.
    pub(crate) marked: ArcSwapOption<Marked>,
    /// The port from the configuration or an SRV record. Used once the server has an address.
    pub service_port: AtomicU32,
    /// The offset to the client's destination port (`addr:+8`); [`NOT_MAPPED`] for a fixed port.
    port_offset: AtomicI32,
    /// The configured weight (`initial weight`), 0 to 256. Written by a reload.
    initial_weight: AtomicU32,
    /// The weight set by an administrator or agent, 0 to 256.
    weight: AtomicU32,
    /// The effective share of the weight during `slowstart`, 0 to 100.
    ramp: AtomicU32,
    admin: AtomicU32,
    operational: AtomicU8,
    /// Incremented with every change that matters to a balancer.
    pub version: AtomicU64,
    /// The order in which servers last came up (`balance sticky`); 0 for servers that were never down.
    pub turn: AtomicU64,
    /// The requests being served (see [`serving`](Self::serving)). Every worker that picks this server writes it when a request
    /// starts and ends. If requests are counted separately, this is instead the number of slots of the limit that workers hold,
    /// used or not, and is written when a worker takes or returns a slot.
    pub served: CountedLoad,
    /// Whether each worker counts its requests in its own `counters`. This is the case if servers are not compared by their
    /// number of requests, because the sum is then rarely needed. Set by the balancer when it is created.
    pub counts_apart: AtomicBool,
    /// Whether a limit was set while requests were counted separately. These requests count against the limit until they end.
    limited_late: AtomicBool,
    /// Whether the server was added at run time.
    pub dynamic: AtomicBool,
    /// Distinguishes the server from earlier servers with the same name and id: the number of times, up to this server, that a
    /// server was added after others had been removed. Set when the server is added at run time.
    pub revision: AtomicU32,
    /// Whether the server was removed. It can no longer be found, and code that still refers to its index sees it in maintenance.
    pub removed: AtomicBool,
    /// Whether the configuration refers to the server (`track`, `use-server`, expressions), so that it must not be removed.
    pub referenced: AtomicBool,
    /// Requests waiting for this server.
    pub queue: Queue,
    /// The server that this one tracks. Written by `tracking`.
    pub(crate) tracked: ArcSwapOption<Server>,
    /// Counters.
    pub counters: LazySharded<ServerCounters>,
    /// The times of requests.
    pub durations: Durations,
    /// The times of HTTP requests by their attributes.
    pub durations_by_attributes: HttpDurations,
    /// The maximum number of concurrent requests (`smax`). If requests are counted separately, this is the highest observed sum; it
    /// is computed whenever a worker reaches a new maximum.
    pub served_max: AtomicU32,
    /// Whether health checks run.
    pub checked: AtomicBool,
    /// Check results.
    pub health: Health,
    /// Whether the agent is queried.
    pub agent_checked: AtomicBool,
    /// The state from agent checks: level 1 unless the agent reported the server as down.
    pub agent: AgentHealth,
    /// When the state last changed.
    pub changed: ChangeTime,
    /// When the last session began.
    pub last_session: LastSession,
    /// How often the server went down.
    pub downs: AtomicU32,
    /// When a change of the server was last recorded in the journal, in ms; its creation before that.
    pub(crate) reported_at: AtomicU64,
    /// Total downtime in ms before the last change.
    pub down_ms: AtomicU64,
    /// How often the weight started to rise (`slowstart`).
    pub(crate) rises: AtomicU32,
    /// The server's performance, if its backend ejects outliers.
    performance: OnceBox<Performance>,
    /// The last minutes, if they are sampled. Written by the sampler.
    pub history: OptionalHistory<OF_SERVER>,
}

/// The value of [`ServerSeed::minconn`] for a server with a `maxconn` that holds for several processes (`fleet`). Such a server cannot
/// have a `minconn`, so only requests to servers with either check for it.
pub const FLEET_LIMIT: u32 = u32::MAX;

/// The configuration from which a server is created.
#[derive(Debug, Clone)]
pub struct ServerSeed {
    /// `id`.
    pub id: u32,
    /// The name of the server.
    pub name: Arc<str>,
    /// The name of the server's backend.
    pub proxy: Arc<str>,
    /// `backup`.
    pub backup: bool,
    /// `maxconn`.
    pub maxconn: u32,
    /// `minconn`, or [`FLEET_LIMIT`].
    pub minconn: u32,
    /// `maxqueue`.
    pub maxqueue: u32,
    /// The address for connections.
    pub address: ServerAddress,
    /// `weight`.
    pub weight: u32,
    /// `disabled`.
    pub disabled: bool,
    /// Whether checks run at start.
    pub checked: bool,
}

impl Server {
    /// Creates a server in its configured state, which is up until a check fails.
    pub fn new(seed: ServerSeed) -> Arc<Self> {
        let port = match &seed.address {
            ServerAddress::Ip(address) => address.port(),
            _ => 0,
        };
        let configured = Arc::new(ConfiguredValues::new(&seed));
        Arc::new(Self {
            id: seed.id,
            configured: ArcSwap::new(configured.clone()),
            forced_id: AtomicBool::new(false),
            names_connections: AtomicBool::new(false),
            name: seed.name.into(),
            proxy: seed.proxy,
            backup: seed.backup,
            maxconn: AtomicU32::new(seed.maxconn),
            minconn: seed.minconn,
            elsewhere: AtomicU32::new(0),
            maxqueue: seed.maxqueue,
            unspecified: AtomicBool::new(seed.address.is_unspecified()),
            address: ArcSwap::new(configured.address.clone()),
            moves: AtomicU32::new(0),
            secured: AtomicU8::new(Secured::Never as u8),
            fqdn: ArcSwapOption::empty(),
            srv_record: OnceBox::new(),
            guid: OnceLock::new(),
            resolved: AtomicBool::new(false),
            doubt: ArcSwapOption::empty(),
            starter: ArcSwapOption::empty(),
            marked: ArcSwapOption::empty(),
            service_port: AtomicU32::new(port.into()),
            port_offset: AtomicI32::new(NOT_MAPPED),
            initial_weight: AtomicU32::new(seed.weight),
            weight: AtomicU32::new(seed.weight),
            ramp: AtomicU32::new(100),
            admin: AtomicU32::new(if seed.disabled {
                Admin::CONFIGURED_MAINT | Admin::FORCED_MAINT
            } else {
                0
            }),
            operational: AtomicU8::new(Operational::Running as u8),
            version: AtomicU64::new(0),
            turn: AtomicU64::new(0),
            served: CountedLoad::default(),
            counts_apart: AtomicBool::new(false),
            limited_late: AtomicBool::new(false),
            dynamic: AtomicBool::new(false),
            revision: AtomicU32::new(0),
            removed: AtomicBool::new(false),
            referenced: AtomicBool::new(false),
            queue: Queue::default(),
            tracked: ArcSwapOption::empty(),
            counters: LazySharded::default(),
            durations: Durations::default(),
            durations_by_attributes: HttpDurations::default(),
            served_max: AtomicU32::new(0),
            checked: AtomicBool::new(seed.checked),
            health: Health::default(),
            agent_checked: AtomicBool::new(false),
            agent: AgentHealth::default(),
            changed: ChangeTime::new(timer::now_ms()),
            reported_at: AtomicU64::new(timer::now_ms()),
            last_session: LastSession::default(),
            downs: AtomicU32::new(0),
            down_ms: AtomicU64::new(0),
            rises: AtomicU32::new(0),
            performance: OnceBox::new(),
            history: OnceBox::new(),
        })
    }

    /// Returns the server's performance, once it is [measured](Self::measure).
    #[inline]
    pub fn performance(&self) -> Option<&Performance> {
        self.performance.get()
    }

    /// Starts measuring the server's performance. Called by a balancer that ejects outliers.
    pub fn measure(&self) -> &Performance {
        self.performance.get_or_init(Box::default)
    }

    /// Sets the effective share of the server's weight for outlier ejection, in percent; 0 while the server is ejected.
    pub fn set_trust(&self, percent: u32) {
        if self.measure().set_trust(percent) {
            self.touch();
            self.queue.wake_all();
        }
    }

    /// Returns the administrative flags.
    #[inline]
    pub fn admin(&self) -> Admin {
        Admin(self.admin.load(Relaxed))
    }

    /// Returns the operational state.
    #[inline]
    pub fn operational(&self) -> Operational {
        match self.operational.load(Relaxed) {
            0 => Operational::Stopped,
            1 => Operational::Starting,
            3 => Operational::Stopping,
            _ => Operational::Running,
        }
    }

    /// Whether the server's agent, if it has one, reports the server as down.
    pub fn agent_says_down(&self) -> bool {
        self.agent_checked.load(Relaxed) && self.agent.level.load(Relaxed) == 0
    }

    /// Returns the configured weight, 0 to 256.
    #[inline]
    pub fn initial_weight(&self) -> u32 {
        self.initial_weight.load(Relaxed)
    }

    /// Whether the server accepts connections: it is running and not in maintenance. A draining server accepts persistent sessions.
    #[inline]
    pub fn is_up(&self) -> bool {
        !self.admin().in_maintenance() && self.operational() != Operational::Stopped
    }

    /// Sets the connection limit, 0 for none.
    pub fn set_maxconn(&self, limit: u32) {
        if self.maxconn.swap(limit, Relaxed) == 0 && limit > 0 && self.counts_apart.load(Relaxed) {
            self.limited_late.store(true, Relaxed);
        }
        self.touch();
        self.queue.wake_all();
    }

    /// Sets the host name. The resolver is responsible for resolving it.
    pub fn set_fqdn(&self, name: Option<&str>) {
        self.fqdn.store(name.map(|name| Arc::new(Box::from(name))));
    }

    /// Sets the callback for failed connections to the server's address, replacing any earlier callback.
    pub fn on_doubt(&self, notify: impl Fn() + Send + Sync + 'static) {
        self.doubt.store(Some(Arc::new(Doubt(Box::new(notify)))));
    }

    /// Reports that connecting to the server's address failed. The name may have a different address by now (manual, 5.3.1).
    pub fn doubt_address(&self) {
        if let Some(doubt) = self.doubt.load_full() {
            (doubt.0)();
        }
    }

    /// Returns how often the address changed or the server left service. If this is read before the address, it shows later whether
    /// a connection may still be used.
    #[inline]
    pub fn moves(&self) -> u32 {
        self.moves.load(Acquire)
    }

    /// Whether the server's address is the unspecified one. Connections then go to the client's destination.
    #[inline]
    pub fn is_unspecified(&self) -> bool {
        self.unspecified.load(Relaxed)
    }

    /// Returns the port for a resolved address; 0 stands for the port of the client's destination.
    pub fn port(&self) -> u16 {
        self.service_port.load(Relaxed) as u16
    }

    /// Returns the offset to the client's destination port, if an offset is configured.
    #[inline]
    pub fn port_offset(&self) -> Option<i32> {
        Some(self.port_offset.load(Relaxed)).filter(|offset| *offset != NOT_MAPPED)
    }

    /// Sets the offset. Call this before [`set_address`](Self::set_address), after which older connections are not used any more.
    pub fn set_port_offset(&self, offset: Option<i32>) {
        self.port_offset.store(offset.unwrap_or(NOT_MAPPED), Relaxed);
    }

    /// Sets the address for connections.
    pub fn set_address(&self, address: ServerAddress) {
        if let ServerAddress::Ip(address) = &address {
            self.service_port.store(address.port().into(), Relaxed);
        }
        self.unspecified.store(address.is_unspecified(), Relaxed);
        self.address.store(Arc::new(address));
        self.outdate();
        self.touch();
    }

    /// Marks current connections as outdated, so that they are not used again once they are idle.
    pub fn outdate(&self) {
        self.moves.fetch_add(1, Release);
    }

    /// Sets and clears administrative flags. Returns whether anything changed.
    pub fn change_admin(&self, set: u32, clear: u32, now_ms: u64) -> bool {
        let old = self.admin.load(Relaxed);
        let new = (old & !clear) | set;
        if new == old {
            return false;
        }
        let was_up = self.is_up();
        self.admin.store(new, Relaxed);
        match (Admin(old).in_maintenance(), Admin(new).in_maintenance()) {
            (true, false) => self.begin_anew(),
            // Without checks, the server would never come back.
            (false, true) if was_up && !self.health.configured.load(Relaxed) => {
                self.health.level.store(0, Relaxed);
            }
            _ => {}
        }
        self.note_change(was_up, now_ms);
        true
    }

    /// Enables checks again. Returns the state until the first check, if `init-state` sets one.
    pub fn enable_checks(&self) -> Option<Operational> {
        self.checked.store(true, Relaxed);
        let begins = self.admin().0 & (Admin::FORCED_MAINT | Admin::CONFIGURED_MAINT) == 0;
        begins.then(|| self.set_initial_health()).flatten()
    }

    /// Returns the value for this server in cookies that are derived with `key` (`dynamic-cookie-key`), or `None` without an IP address:
    /// HAProxy's hash of the key, address and port in four bytes, so that HAProxy and Weir can share cookies.
    pub fn dynamic_cookie(&self, key: &str) -> Option<String> {
        let ServerAddress::Ip(address) = &**self.address.load() else { return None };
        let mut seed = base::raw::bytes_of(key).into_owned();
        match address.ip() {
            IpAddr::V4(ip) => seed.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => seed.extend_from_slice(&ip.octets()),
        }
        seed.extend_from_slice(&u32::from(address.port()).to_be_bytes());
        Some(format!("{:016x}", base::hash::xxh64(&seed, 0)))
    }

    /// Resets a checked server with an `init-state` to its initial state.
    fn begin_anew(&self) {
        if let Some(state) = self.set_initial_health() {
            self.operational.store(state as u8, Relaxed);
        }
    }

    /// Resets the health of a checked server with an `init-state`. Returns the corresponding state.
    fn set_initial_health(&self) -> Option<Operational> {
        let level = self.health.initial().filter(|_| self.checked.load(Relaxed))?;
        self.health.level.store(level, Relaxed);
        let is_up = level >= self.health.rise.load(Relaxed);
        Some(if is_up { Operational::Running } else { Operational::Stopped })
    }

    /// Sets the operational state. Returns whether it changed.
    pub fn set_operational(&self, new: Operational, now_ms: u64) -> bool {
        if self.operational() == new {
            return false;
        }
        let was_up = self.is_up();
        self.operational.store(new as u8, Relaxed);
        self.note_change(was_up, now_ms);
        true
    }

    fn note_change(&self, was_up: bool, now_ms: u64) {
        let up = self.is_up();
        if was_up != up {
            let previous = self.changed.note(now_ms);
            if up {
                self.down_ms.fetch_add(previous, Relaxed);
                self.served.0.latency.forget();
                self.turn.store(changes() + 1, Relaxed);
            } else {
                self.downs.fetch_add(1, Relaxed);
            }
        }
        self.touch();
        if up {
            self.queue.wake_all();
        }
        if was_up != up {
            self.mark(up);
        }
    }

    fn touch(&self) {
        self.version.fetch_add(1, Relaxed);
        // Incremented after the change itself, so that a reader of the count sees the change.
        CHANGES.fetch_add(1, Release);
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::net::SocketAddr;

    pub(crate) fn server() -> Arc<Server> {
        Server::new(ServerSeed {
            id: 1,
            name: "s1".into(),
            proxy: "be".into(),
            backup: false,
            maxconn: 0,
            minconn: 0,
            maxqueue: 0,
            address: ServerAddress::Ip(SocketAddr::from(([127, 0, 0, 1], 80))),
            weight: 100,
            disabled: false,
            checked: false,
        })
    }

    #[test]
    fn a_draining_server_is_up_but_gets_no_new_requests() {
        let server = server();
        assert!(server.change_admin(Admin::FORCED_DRAIN, 0, 1));
        assert!(server.is_up());
        assert_eq!(server.effective_weight(), 0);
        assert!(server.change_admin(0, Admin::DRAIN, 2));
        assert_eq!(server.effective_weight(), 100);
    }

    #[test]
    fn downtime_is_counted_until_the_server_is_up_again() {
        let server = server();
        let start = timer::now_ms();
        server.set_operational(Operational::Stopped, start + 1000);
        server.set_operational(Operational::Running, start + 4000);
        assert_eq!(server.downs.load(Relaxed), 1);
        assert_eq!(server.down_ms.load(Relaxed), 3000);
    }
}
