//! Servers and pickers for tests.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use balance::{Algorithm, BalanceSettings, Member, Picker, Wish};
use state::Server;
use state::server::{ServerAddress, ServerSeed, Tally};

/// A server number `at` with this weight.
pub fn server(at: usize, weight: u32, backup: bool) -> Arc<Server> {
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
}

/// A picker and its servers.
#[derive(Debug)]
pub struct Farm {
    pub picker: Picker,
    pub servers: Vec<Arc<Server>>,
}

impl Farm {
    pub fn with(settings: BalanceSettings, servers: Vec<Arc<Server>>) -> Farm {
        let members = servers.iter().cloned().map(Member::from).collect();
        Farm { picker: Picker::new(&settings, members), servers }
    }

    /// Active servers with these weights.
    pub fn new(algorithm: Algorithm, weights: &[u32]) -> Farm {
        let servers = weights.iter().enumerate().map(|(at, weight)| server(at, *weight, false)).collect();
        Farm::with(BalanceSettings { algorithm, ..BalanceSettings::default() }, servers)
    }

    pub fn pick(&self, wish: Wish) -> Option<usize> {
        self.picker.pick(wish, |server| server.maxconn.load(Relaxed))
    }

    pub fn picks(&self, count: usize) -> Vec<usize> {
        (0..count).filter_map(|_| self.pick(Wish::default())).collect()
    }

    /// Adds a request, whatever the server's limit.
    pub fn enter(&self, index: usize) {
        let server = &self.servers[index];
        let limit = if server.maxconn.load(Relaxed) > 0 { u32::MAX } else { 0 };
        assert!(server.try_enter(limit).is_some());
        self.picker.entered(index, 2_000_000);
    }

    pub fn leave(&self, index: usize) {
        let server = &self.servers[index];
        server.leave(match (server.counts_apart.load(Relaxed), server.maxconn.load(Relaxed)) {
            (false, _) => Tally::Shared,
            (true, 0) => Tally::Own,
            (true, _) => Tally::Place,
        });
        self.picker.left(index);
    }
}
