//! A server as it is now: address, weight, administrative and operational state, load and counters.
//!
//! Written by the runtime socket and by health checks through the methods here; read by request
//! tasks on every pick. What is read on that path is one atomic each. Requests that it serves are
//! counted in [`places`].

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
use runtime::{Sharded, timer};

pub use crate::address::{Doubt, ServerAddress};
use crate::counters::ServerCounters;
pub use crate::health::{CHECK_STATUSES, CheckResult, Demand, Health, Trouble};
use crate::name::ServerName;
use crate::performance::Performance;
use crate::queue::Queue;
use crate::server_load::CountedLoad;
use rise::{Marked, Starter};
pub use secured::Secured;

/// Changes of any server that a balancer must see, in the whole process: as long as it stands
/// still, no balancer need look at its servers' versions. Written by whoever changes a server's
/// state, weight or limit.
static CHANGES: AtomicU64 = AtomicU64::new(0);

/// How often any server of the process changed in a way that a balancer must see.
#[inline]
pub fn changes() -> u64 {
    CHANGES.load(Acquire)
}

/// Why an administrator (or what stands for one) holds a server back. A set of flags, shown by
/// `show servers state` as one number (management manual, `srv_admin_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Admin(pub u32);

impl Admin {
    /// `set server … state maint`.
    pub const FORCED_MAINT: u32 = 0x01;
    /// In maintenance because the tracked server is.
    pub const INHERITED_MAINT: u32 = 0x02;
    /// The configuration says `disabled`: a mark of where the maintenance came from, which outlives
    /// it.
    pub const CONFIGURED_MAINT: u32 = 0x04;
    /// `set server … state drain`.
    pub const FORCED_DRAIN: u32 = 0x08;
    /// Draining because the tracked server is.
    pub const INHERITED_DRAIN: u32 = 0x10;
    /// In maintenance because its name does not resolve.
    pub const RESOLUTION_MAINT: u32 = 0x20;
    /// The name to resolve was set on the runtime socket.
    pub const FQDN_SET: u32 = 0x40;
    /// All that means maintenance.
    pub const MAINT: u32 = Self::FORCED_MAINT | Self::INHERITED_MAINT | Self::RESOLUTION_MAINT;
    /// All that means draining.
    pub const DRAIN: u32 = Self::FORCED_DRAIN | Self::INHERITED_DRAIN;

    /// Whether the server is in maintenance: no new connection, no check.
    pub fn in_maintenance(self) -> bool {
        self.0 & Self::MAINT != 0
    }

    /// Whether the server only serves what is bound to it.
    pub fn draining(self) -> bool {
        self.0 & Self::DRAIN != 0
    }
}

/// What checks found (`srv_op_state`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Operational {
    /// Down.
    Stopped = 0,
    /// Up, its weight still rising (`slowstart`).
    Starting = 1,
    /// Up.
    Running = 2,
    /// Up for what is bound to it, going down.
    Stopping = 3,
}

/// Where a request is counted while a server serves it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use = "the request is counted until it leaves"]
pub enum Tally {
    /// In the one count that limits and balancers look at.
    Shared,
    /// In the worker's own.
    Own,
    /// In the worker's own, in one of the places that a limit leaves.
    Place,
}

/// An offset of ports that is none.
const NOT_MAPPED: i32 = i32::MAX;

/// One server of a backend.
#[derive(Debug)]
pub struct Server {
    /// `id`, unique within the backend.
    pub id: u32,
    /// Whether that is its line's own `id`; set by the configuration.
    pub forced_id: AtomicBool,
    /// What the configuration says of it. Written by a reload.
    configured: ArcSwap<ServerSeed>,
    /// Its name.
    pub name: ServerName,
    /// The name of its backend.
    pub proxy: Box<str>,
    /// Whether it is used only when no other is up (`backup`).
    pub backup: bool,
    /// The limit of connections (`maxconn`), 0 for none; written through [`Server::set_maxconn`].
    pub maxconn: AtomicU32,
    /// The lower limit under low load (`minconn`).
    pub minconn: u32,
    /// How many may wait for it (`maxqueue`), 0 for no limit.
    pub maxqueue: u32,
    /// Where connections go now; written through [`Server::set_address`].
    pub address: ArcSwap<ServerAddress>,
    /// How often the address changed: connections opened before the last change lead elsewhere.
    /// Written by whoever changes it.
    moves: AtomicU32,
    /// Whether TLS is spoken with it: a [`Secured`]. Written by an operator.
    secured: AtomicU8,
    /// Whether that address is the unspecified one, which stands for what the client wanted.
    /// Written with the address.
    unspecified: AtomicBool,
    /// The host name that the address comes from, if any; written through [`Server::set_fqdn`].
    pub fqdn: ArcSwapOption<Box<str>>,
    /// The name of the SRV records that name, port and weight come from; set once, by the
    /// configuration.
    pub srv_record: OnceLock<Box<str>>,
    /// `guid`; set once, by the configuration.
    pub guid: OnceLock<Box<str>>,
    /// Whether its connections are told apart by a name that requests have (`pool-conn-name`,
    /// `sni`); set by the configuration.
    pub names_connections: AtomicBool,
    /// Whether name servers are asked for its name while it runs (`resolvers`); set by the
    /// configuration.
    pub resolved: AtomicBool,
    /// Who is told that nothing answers at its address: who resolves its name.
    doubt: ArcSwapOption<Doubt>,
    /// Who raises its weight when it comes up, where `slowstart` is said.
    pub(crate) starter: ArcSwapOption<Starter>,
    /// Who is told when it goes up or down, where the configuration wants something done then.
    pub(crate) marked: ArcSwapOption<Marked>,
    /// The port of the configuration or of an SRV record: what a server without an address will
    /// have.
    pub service_port: AtomicU32,
    /// How far its port is from the one that the client wanted (`addr:+8`); [`NOT_MAPPED`] where it
    /// has one of its own.
    port_offset: AtomicI32,
    /// The weight of the configuration (`initial weight`), 0 to 256. Written by a reload.
    initial_weight: AtomicU32,
    /// The weight as an administrator or agent set it, 0 to 256.
    weight: AtomicU32,
    /// 0 to 100: the share of the weight that counts while `slowstart` raises it.
    ramp: AtomicU32,
    admin: AtomicU32,
    operational: AtomicU8,
    /// Grows with every change that a balancer must see.
    pub version: AtomicU64,
    /// Orders servers by when they last came up (`balance sticky`): 0 for those that always were.
    pub turn: AtomicU64,
    /// Requests being served now: see [`serving`](Self::serving). Written by every worker that
    /// picks this server, when a request comes and when it leaves. Where requests are counted
    /// apart, the places of the limit that workers took, for requests or to keep: written when a
    /// worker needs more, and when it gives one back.
    pub served: CountedLoad,
    /// Whether requests are counted in each worker's own `counters`: where nothing compares the
    /// servers by this number, the sum is wanted now and then only. Set by the balancer when it is
    /// made.
    pub counts_apart: AtomicBool,
    /// Whether a limit was set while requests were counted so: they count against it until they
    /// leave.
    limited_late: AtomicBool,
    /// Whether it was added at run time.
    pub dynamic: AtomicBool,
    /// Tells it from others of its name and number before it: how many times a server was added
    /// after others had been removed, until this one came. Set when it is added at run time.
    pub revision: AtomicU32,
    /// Whether it was removed: nothing finds it any more, and what still knows its place finds it
    /// in maintenance.
    pub removed: AtomicBool,
    /// Whether the configuration names it (`track`, `use-server`, expressions): it may not be
    /// removed.
    pub referenced: AtomicBool,
    /// Requests waiting for this server.
    pub queue: Queue,
    /// Whom it tracks, and who tracks it.
    /// The server that it tracks; `tracking` writes it.
    pub(crate) tracked: ArcSwapOption<Server>,
    /// Counters.
    pub counters: Sharded<ServerCounters>,
    /// The highest number of requests served at once (`smax`). Where they are counted apart, the
    /// highest sum that was seen: it is looked at whenever a worker has more than ever before.
    pub served_max: AtomicU32,
    /// Whether health checks run.
    pub checked: AtomicBool,
    /// Check results, for the statistics.
    pub health: Health,
    /// Whether the agent is asked.
    pub agent_checked: AtomicBool,
    /// Results of agent checks: level 1 unless the agent said down.
    pub agent: Health,
    /// When the state last changed, in ms of the monotonic clock.
    pub changed_at: AtomicU64,
    /// When a session last ended, in ms; 0 for never.
    pub last_session: AtomicU64,
    /// Times it went down, and ms spent down before the present state.
    pub downs: AtomicU32,
    /// Total downtime in ms before `changed_at`.
    pub down_ms: AtomicU64,
    /// How often its weight began to rise (`slowstart`).
    pub(crate) rises: AtomicU32,
    /// What is known of how it serves, where its backend ejects outliers.
    performance: OnceLock<Box<Performance>>,
}

/// What makes a server at boot.
#[derive(Debug, Clone)]
pub struct ServerSeed {
    /// `id`.
    pub id: u32,
    /// Its name.
    pub name: Box<str>,
    /// The name of its backend.
    pub proxy: Box<str>,
    /// `backup`.
    pub backup: bool,
    /// `maxconn`.
    pub maxconn: u32,
    /// `minconn`.
    pub minconn: u32,
    /// `maxqueue`.
    pub maxqueue: u32,
    /// Where connections go.
    pub address: ServerAddress,
    /// `weight`.
    pub weight: u32,
    /// `disabled`.
    pub disabled: bool,
    /// Whether checks run at start.
    pub checked: bool,
}

impl Server {
    /// A server in the state that the configuration gives it: up until a check says otherwise.
    pub fn new(seed: ServerSeed) -> Arc<Self> {
        let port = match &seed.address {
            ServerAddress::Ip(address) => address.port(),
            _ => 0,
        };
        let configured = ArcSwap::from_pointee(seed.clone());
        Arc::new(Self {
            id: seed.id,
            configured,
            forced_id: AtomicBool::new(false),
            names_connections: AtomicBool::new(false),
            name: seed.name.into(),
            proxy: seed.proxy,
            backup: seed.backup,
            maxconn: AtomicU32::new(seed.maxconn),
            minconn: seed.minconn,
            maxqueue: seed.maxqueue,
            unspecified: AtomicBool::new(seed.address.is_unspecified()),
            address: ArcSwap::from_pointee(seed.address),
            moves: AtomicU32::new(0),
            secured: AtomicU8::new(Secured::Never as u8),
            fqdn: ArcSwapOption::empty(),
            srv_record: OnceLock::new(),
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
            counters: Sharded::default(),
            served_max: AtomicU32::new(0),
            checked: AtomicBool::new(seed.checked),
            health: Health::default(),
            agent_checked: AtomicBool::new(false),
            agent: Health::default(),
            changed_at: AtomicU64::new(timer::now_ms()),
            last_session: AtomicU64::new(0),
            downs: AtomicU32::new(0),
            down_ms: AtomicU64::new(0),
            rises: AtomicU32::new(0),
            performance: OnceLock::new(),
        })
    }

    /// What is known of how it serves, once that is [measured](Self::measure).
    #[inline]
    pub fn performance(&self) -> Option<&Performance> {
        self.performance.get().map(Box::as_ref)
    }

    /// Has it measured from now on. Called by its balancer, where outliers are ejected.
    pub fn measure(&self) -> &Performance {
        self.performance.get_or_init(Box::default)
    }

    /// Sets the share of its weight that counts, in percent, as far as its backend ejects outliers: 0
    /// while it is ejected.
    pub fn set_trust(&self, percent: u32) {
        if self.measure().set_trust(percent) {
            self.touch();
            self.queue.wake_all();
        }
    }

    /// The administrative flags.
    #[inline]
    pub fn admin(&self) -> Admin {
        Admin(self.admin.load(Relaxed))
    }

    /// What checks found.
    #[inline]
    pub fn operational(&self) -> Operational {
        match self.operational.load(Relaxed) {
            0 => Operational::Stopped,
            1 => Operational::Starting,
            3 => Operational::Stopping,
            _ => Operational::Running,
        }
    }

    /// Whether the agent, if there is one, holds the server down.
    pub fn agent_says_down(&self) -> bool {
        self.agent_checked.load(Relaxed) && self.agent.level.load(Relaxed) == 0
    }

    /// The weight of the configuration, 0 to 256.
    #[inline]
    pub fn initial_weight(&self) -> u32 {
        self.initial_weight.load(Relaxed)
    }

    /// Whether a connection may be made at all: running and not in maintenance. A draining server
    /// is usable for what is bound to it (persistence).
    #[inline]
    pub fn is_up(&self) -> bool {
        !self.admin().in_maintenance() && self.operational() != Operational::Stopped
    }

    /// Sets the limit of connections, 0 for none.
    pub fn set_maxconn(&self, limit: u32) {
        if self.maxconn.swap(limit, Relaxed) == 0 && limit > 0 && self.counts_apart.load(Relaxed) {
            self.limited_late.store(true, Relaxed);
        }
        self.touch();
        self.queue.wake_all();
    }

    /// Changes the host name that the address comes from; resolving it is for whoever asks name
    /// servers.
    pub fn set_fqdn(&self, name: Option<&str>) {
        self.fqdn.store(name.map(|name| Arc::new(Box::from(name))));
    }

    /// Says who is to be told that nothing answers at its address; the last word counts.
    pub fn on_doubt(&self, tell: impl Fn() + Send + Sync + 'static) {
        self.doubt.store(Some(Arc::new(Doubt(Box::new(tell)))));
    }

    /// Nothing answers at its address: its name may have another one by now (manual, 5.3.1).
    pub fn doubt_address(&self) {
        if let Some(doubt) = self.doubt.load_full() {
            (doubt.0)();
        }
    }

    /// How often the address changed, or the server left service. Read before the address, it tells
    /// whether a connection may still be used.
    #[inline]
    pub fn moves(&self) -> u32 {
        self.moves.load(Acquire)
    }

    /// Whether its address is the unspecified one: connections then go where the client wanted.
    #[inline]
    pub fn is_unspecified(&self) -> bool {
        self.unspecified.load(Relaxed)
    }

    /// The port that goes with an address found by a name, 0 for the client's own.
    pub fn port(&self) -> u16 {
        self.service_port.load(Relaxed) as u16
    }

    /// How far its port is from the one that the client wanted, if that is where it is.
    #[inline]
    pub fn port_offset(&self) -> Option<i32> {
        Some(self.port_offset.load(Relaxed)).filter(|offset| *offset != NOT_MAPPED)
    }

    /// Sets that; call it before [`set_address`](Self::set_address), which ends the use of older
    /// connections.
    pub fn set_port_offset(&self, offset: Option<i32>) {
        self.port_offset.store(offset.unwrap_or(NOT_MAPPED), Relaxed);
    }

    /// Changes where connections go.
    pub fn set_address(&self, address: ServerAddress) {
        if let ServerAddress::Ip(address) = &address {
            self.service_port.store(address.port().into(), Relaxed);
        }
        self.unspecified.store(address.is_unspecified(), Relaxed);
        self.address.store(Arc::new(address));
        self.outdate();
        self.touch();
    }

    /// Ends the use of the connections there are, once they are idle.
    pub fn outdate(&self) {
        self.moves.fetch_add(1, Release);
    }

    /// Sets `set` and clears `clear` among the administrative flags; says whether anything changed.
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
            // Where nothing is checked nothing brings it back.
            (false, true) if was_up && !self.health.configured.load(Relaxed) => {
                self.health.level.store(0, Relaxed);
            }
            _ => {}
        }
        self.note_change(was_up, now_ms);
        true
    }

    /// Lets checks begin again; what the server is until the first one is as at the start
    /// (`init-state`).
    pub fn enable_checks(&self, now_ms: u64) {
        let was_up = self.is_up();
        self.checked.store(true, Relaxed);
        if self.admin().0 & (Admin::FORCED_MAINT | Admin::CONFIGURED_MAINT) == 0 {
            self.begin_anew();
            self.note_change(was_up, now_ms);
        }
    }

    /// The value that means this server in cookies made with `key` (`dynamic-cookie-key`):
    /// HAProxy's own recipe of key, address and port in four bytes, so that a cluster of both
    /// agrees. `None` for a server without an IP address.
    pub fn dynamic_cookie(&self, key: &str) -> Option<String> {
        let ServerAddress::Ip(address) = &**self.address.load() else { return None };
        let mut seed = key.as_bytes().to_vec();
        match address.ip() {
            IpAddr::V4(ip) => seed.extend_from_slice(&ip.octets()),
            IpAddr::V6(ip) => seed.extend_from_slice(&ip.octets()),
        }
        seed.extend_from_slice(&u32::from(address.port()).to_be_bytes());
        Some(format!("{:016x}", base::hash::xxh64(&seed, 0)))
    }

    /// A server that is checked and has an `init-state` is again what it was at the start.
    fn begin_anew(&self) {
        let Some(level) = self.health.initial() else { return };
        if self.checked.load(Relaxed) {
            let up = level >= self.health.rise.load(Relaxed);
            self.health.level.store(level, Relaxed);
            let state = if up { Operational::Running } else { Operational::Stopped };
            self.operational.store(state as u8, Relaxed);
        }
    }

    /// Sets what checks found; says whether anything changed.
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
            let since = self.changed_at.swap(now_ms, Relaxed);
            if up {
                self.down_ms.fetch_add(now_ms.saturating_sub(since), Relaxed);
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
        // Behind the change itself: who sees the count sees what it counts.
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
    fn a_draining_server_is_up_but_gets_nothing_new() {
        let server = server();
        assert!(server.change_admin(Admin::FORCED_DRAIN, 0, 1));
        assert!(server.is_up());
        assert_eq!(server.effective_weight(), 0);
        assert!(server.change_admin(0, Admin::DRAIN, 2));
        assert_eq!(server.effective_weight(), 100);
    }

    #[test]
    fn downtime_is_counted_from_the_change_to_the_change_back() {
        let server = server();
        let start = server.changed_at.load(Relaxed);
        server.set_operational(Operational::Stopped, start + 1000);
        server.set_operational(Operational::Running, start + 4000);
        assert_eq!(server.downs.load(Relaxed), 1);
        assert_eq!(server.down_ms.load(Relaxed), 3000);
    }
}
