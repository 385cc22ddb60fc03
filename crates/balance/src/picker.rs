//! Choosing a server among a backend's.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use arc_swap::ArcSwap;
use runtime::shard::Padded;
use state::Server;

use crate::consistent::Ring;
use crate::schedule::schedule;
use crate::settings::{Algorithm, HashKind, Settings};

/// What a request asks of the choice.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wish {
    /// The hash of the request's key, for algorithms that have one; `None` when the request has no such key,
    /// which then takes turns.
    pub hash: Option<u32>,
    /// A server that just failed: any other is better, if there is one.
    pub avoid: Option<usize>,
}

/// What a backend keeps between picks.
#[derive(Debug)]
pub struct Picker {
    servers: Vec<Arc<Server>>,
    kind: Kind,
    balance_factor: u32,
    all_backups: bool,
    /// The next turn. Written by every worker on each pick that takes turns.
    turn: Padded<AtomicUsize>,
    table: ArcSwap<Table>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Turns,
    LeastConn,
    First,
    Random(u32),
    Map,
    Ring,
}

/// What was worked out for one state of the servers.
#[derive(Debug, Default)]
struct Table {
    /// The sum of the servers' versions it was made for.
    version: u64,
    /// Who may be chosen now: the active ones, or the backups when no active one is left.
    usable: Vec<u32>,
    turns: Vec<u32>,
    ring: Ring,
}

impl Picker {
    /// A picker over `servers`, which are referred to by their place.
    pub fn new(settings: &Settings, servers: Vec<Arc<Server>>) -> Self {
        let kind = match &settings.algorithm {
            Algorithm::RoundRobin | Algorithm::StaticRr => Kind::Turns,
            Algorithm::LeastConn => Kind::LeastConn,
            Algorithm::First => Kind::First,
            Algorithm::Random { draws } => Kind::Random((*draws).max(1)),
            _ if settings.hash.kind == HashKind::Consistent => Kind::Ring,
            _ => Kind::Map,
        };
        let picker = Self {
            servers,
            kind,
            balance_factor: settings.balance_factor,
            all_backups: settings.all_backups,
            turn: Padded(AtomicUsize::new(0)),
            table: ArcSwap::default(),
        };
        picker.table.store(Arc::new(picker.work_out(picker.version())));
        picker
    }

    /// The servers it chooses among.
    pub fn servers(&self) -> &[Arc<Server>] {
        &self.servers
    }

    fn version(&self) -> u64 {
        self.servers.iter().map(|server| server.version.load(Relaxed)).sum()
    }

    fn work_out(&self, version: u64) -> Table {
        let weights = |backup: bool| -> Vec<(usize, u32)> {
            let wanted = self.servers.iter().enumerate().filter(|(_, server)| server.backup == backup);
            wanted
                .map(|(index, server)| (index, server.effective_weight()))
                .filter(|(_, weight)| *weight > 0)
                .collect()
        };
        let mut usable = weights(false);
        if usable.is_empty() {
            usable = weights(true);
            if !self.all_backups {
                usable.truncate(1);
            }
        }
        let ring = match self.kind {
            Kind::Ring => {
                Ring::new(usable.iter().map(|&(index, weight)| (index, self.servers[index].id, weight)))
            }
            _ => Ring::default(),
        };
        Table {
            version,
            turns: schedule(&usable),
            usable: usable.into_iter().map(|(index, _)| index as u32).collect(),
            ring,
        }
    }

    /// Chooses a server for a new request: `None` when none may be used.
    pub fn pick(&self, wish: Wish) -> Option<usize> {
        let version = self.version();
        let mut table = self.table.load();
        if table.version != version {
            self.table.store(Arc::new(self.work_out(version)));
            table = self.table.load();
        }
        if let [only] = table.usable[..] {
            return Some(only as usize);
        }
        let picked = self.choose(&table, wish);
        // What just failed is taken again only when there is nothing else.
        picked.or_else(|| wish.avoid.filter(|&index| table.usable.contains(&(index as u32))))
    }

    fn choose(&self, table: &Table, wish: Wish) -> Option<usize> {
        let fits = |index: usize| Some(index) != wish.avoid && self.has_room(index);
        match (self.kind, wish.hash) {
            (Kind::LeastConn, _) => self.least_loaded(table, wish.avoid),
            (Kind::First, _) => {
                let mut usable = table.usable.iter().map(|&index| index as usize);
                let free = usable.clone().find(|&index| fits(index));
                free.or_else(|| usable.find(|&index| Some(index) != wish.avoid))
            }
            (Kind::Random(draws), _) => self.random(table, draws, wish.avoid),
            (Kind::Map, Some(hash)) if !table.turns.is_empty() => {
                let index = table.turns[hash as usize % table.turns.len()] as usize;
                if Some(index) == wish.avoid { self.next_turn(table, wish.avoid) } else { Some(index) }
            }
            (Kind::Ring, Some(hash)) => {
                let within = |index: usize| Some(index) != wish.avoid && self.within_factor(table, index);
                table.ring.find(hash, within).or_else(|| self.next_turn(table, wish.avoid))
            }
            _ => self.next_turn(table, wish.avoid),
        }
    }

    fn next_turn(&self, table: &Table, avoid: Option<usize>) -> Option<usize> {
        let count = table.turns.len();
        if count == 0 {
            return None;
        }
        let mut full = None;
        for _ in 0..count {
            let index = table.turns[self.turn.0.fetch_add(1, Relaxed) % count] as usize;
            if Some(index) == avoid {
                continue;
            }
            if self.has_room(index) {
                return Some(index);
            }
            full.get_or_insert(index);
        }
        // All are full: the request will wait for the one whose turn it was.
        full
    }

    /// Whether a request would be served by `index` at once.
    fn has_room(&self, index: usize) -> bool {
        let server = &self.servers[index];
        let limit = server.maxconn.load(Relaxed);
        limit == 0 || (server.queue.is_empty() && server.served.0.load(Relaxed) < limit)
    }

    /// Requests served and waiting, by weight: comparable between servers.
    fn load(&self, index: usize) -> u64 {
        let server = &self.servers[index];
        let requests = u64::from(server.served.0.load(Relaxed)) + u64::from(server.queue.len());
        requests * 256 * 256 / u64::from(server.effective_weight().max(1))
    }

    fn least_loaded(&self, table: &Table, avoid: Option<usize>) -> Option<usize> {
        let count = table.usable.len();
        if count == 0 {
            return None;
        }
        // Ties take turns: the search begins at another server each time.
        let start = self.turn.0.fetch_add(1, Relaxed);
        (0..count)
            .map(|step| table.usable[(start + step) % count] as usize)
            .filter(|&index| Some(index) != avoid)
            .min_by_key(|&index| self.load(index))
    }

    fn random(&self, table: &Table, draws: u32, avoid: Option<usize>) -> Option<usize> {
        let count = table.turns.len();
        if count == 0 {
            return None;
        }
        (0..draws)
            .map(|_| table.turns[fastrand::usize(..count)] as usize)
            .filter(|&index| Some(index) != avoid)
            .min_by_key(|&index| self.load(index))
            .or_else(|| self.next_turn(table, avoid))
    }

    /// `hash-balance-factor`: whether the server's load is below its share of the average.
    fn within_factor(&self, table: &Table, index: usize) -> bool {
        if self.balance_factor == 0 {
            return true;
        }
        let total: u64 = table.usable.iter().map(|&index| self.requests(index as usize)).sum::<u64>() + 1;
        let weights: u64 = table
            .usable
            .iter()
            .map(|&index| u64::from(self.servers[index as usize].effective_weight()))
            .sum();
        let weight = u64::from(self.servers[index].effective_weight());
        let share = (total * weight * u64::from(self.balance_factor)).div_ceil(weights.max(1) * 100);
        self.requests(index) < share.max(1)
    }

    fn requests(&self, index: usize) -> u64 {
        self.servers[index].served.0.load(Relaxed).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use state::server::{ServerAddress, ServerSeed};
    use state::{Admin, Operational};

    fn servers(weights: &[(u32, bool)]) -> Vec<Arc<Server>> {
        let seed = |(at, &(weight, backup)): (usize, &(u32, bool))| {
            Server::new(ServerSeed {
                id: at as u32 + 1,
                name: format!("s{at}").into(),
                proxy: "be".into(),
                backup,
                maxconn: 0,
                minconn: 0,
                maxqueue: 0,
                address: ServerAddress::Unresolved,
                weight,
                disabled: false,
                checked: false,
            })
        };
        weights.iter().enumerate().map(seed).collect()
    }

    fn picker(algorithm: Algorithm, weights: &[(u32, bool)]) -> Picker {
        Picker::new(&Settings { algorithm, ..Settings::default() }, servers(weights))
    }

    fn picks(picker: &Picker, count: usize) -> Vec<usize> {
        (0..count).filter_map(|_| picker.pick(Wish::default())).collect()
    }

    #[test]
    fn round_robin_takes_turns_and_skips_who_is_down() {
        let picker = picker(Algorithm::RoundRobin, &[(1, false); 3]);
        assert_eq!(picks(&picker, 6), [0, 1, 2, 0, 1, 2]);
        picker.servers[1].set_operational(Operational::Stopped, 1);
        assert_eq!(picks(&picker, 4), [0, 2, 0, 2]);
        picker.servers[1].set_operational(Operational::Running, 2);
        assert_eq!(picks(&picker, 3).len(), 3);
    }

    #[test]
    fn backups_serve_only_when_no_active_server_is_left_and_then_the_first_alone() {
        let picker = picker(Algorithm::RoundRobin, &[(1, false), (1, true), (1, true)]);
        assert_eq!(picks(&picker, 2), [0, 0]);
        picker.servers[0].change_admin(Admin::FORCED_MAINT, 0, 1);
        assert_eq!(picks(&picker, 3), [1, 1, 1]);
        for server in &picker.servers {
            server.change_admin(Admin::FORCED_MAINT, 0, 2);
        }
        assert_eq!(picker.pick(Wish::default()), None);
    }

    #[test]
    fn a_full_server_is_passed_over_and_waited_for_only_when_all_are_full() {
        let picker = picker(Algorithm::RoundRobin, &[(1, false); 2]);
        picker.servers[0].maxconn.store(1, Relaxed);
        picker.servers[0].enter();
        assert_eq!(picks(&picker, 3), [1, 1, 1]);
        picker.servers[1].maxconn.store(1, Relaxed);
        picker.servers[1].enter();
        assert_eq!(picks(&picker, 4).len(), 4);
    }

    #[test]
    fn leastconn_takes_the_least_loaded_by_weight() {
        let picker = picker(Algorithm::LeastConn, &[(100, false), (200, false)]);
        for _ in 0..2 {
            picker.servers[0].enter();
        }
        for _ in 0..3 {
            picker.servers[1].enter();
        }
        assert_eq!(picker.pick(Wish::default()), Some(1));
        picker.servers[1].enter();
        picker.servers[1].enter();
        assert_eq!(picker.pick(Wish::default()), Some(0));
    }

    #[test]
    fn what_just_failed_is_avoided_unless_it_is_alone() {
        for algorithm in [
            Algorithm::RoundRobin,
            Algorithm::LeastConn,
            Algorithm::First,
            Algorithm::Random { draws: 2 },
            Algorithm::Source,
        ] {
            let picker = picker(algorithm, &[(1, false), (1, false)]);
            for hash in 0..20 {
                assert_eq!(picker.pick(Wish { hash: Some(hash), avoid: Some(0) }), Some(1));
            }
            picker.servers[1].set_operational(Operational::Stopped, 1);
            assert_eq!(picker.pick(Wish { hash: Some(1), avoid: Some(0) }), Some(0));
        }
    }

    #[test]
    fn a_key_stays_on_its_server() {
        let map = picker(Algorithm::Source, &[(1, false), (2, false), (1, false)]);
        for hash in 0..50 {
            let wish = Wish { hash: Some(hash), avoid: None };
            assert_eq!(map.pick(wish), map.pick(wish));
        }
    }

    #[test]
    fn first_fills_one_server_before_the_next() {
        let picker = picker(Algorithm::First, &[(1, false), (1, false)]);
        picker.servers[0].maxconn.store(2, Relaxed);
        assert_eq!(picks(&picker, 2), [0, 0]);
        picker.servers[0].enter();
        picker.servers[0].enter();
        assert_eq!(picks(&picker, 2), [1, 1]);
    }
}
