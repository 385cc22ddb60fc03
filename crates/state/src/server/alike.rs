//! Servers made from the settings of a prototype: the instances that a discovery source lists.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{Server, ServerSeed};

impl Server {
    /// Returns the configuration of a server like this one, with its own identity.
    pub fn seed_alike(&self, id: u32, name: &str, address: super::ServerAddress, backup: bool) -> ServerSeed {
        ServerSeed { id, name: name.into(), address, backup: backup || self.backup, ..self.configured() }
    }

    /// Creates a server from `seed` with the checks and other properties of this one.
    pub fn alike(&self, seed: ServerSeed) -> Arc<Self> {
        let server = Self::new(seed);
        server.become_alike(self);
        server
    }

    /// Takes over the properties of a prototype that are not part of a [`ServerSeed`].
    pub fn become_alike(&self, prototype: &Self) {
        self.secured.store(prototype.secured.load(Relaxed), Relaxed);
        self.names_connections.store(prototype.names_connections.load(Relaxed), Relaxed);
        let agent = prototype.agent.get().map(|agent| (&*self.agent, agent));
        for (own, other) in [(&self.health, &prototype.health)].into_iter().chain(agent) {
            own.rise.store(other.rise.load(Relaxed), Relaxed);
            own.fall.store(other.fall.load(Relaxed), Relaxed);
            own.configured.store(other.configured.load(Relaxed), Relaxed);
            own.observes.store(other.observes.load(Relaxed), Relaxed);
            own.address.store(other.address.load_full());
            own.port.store(other.port.load(Relaxed), Relaxed);
            own.send.store(other.send.load_full());
            if own.last.load().status.is_empty() {
                own.level.store(other.level.load(Relaxed), Relaxed);
            }
        }
        self.agent_checked.store(prototype.agent_checked.load(Relaxed), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use super::*;
    use crate::server::ServerAddress;
    use crate::server::tests::server;

    #[test]
    fn a_copy_has_the_checks_of_its_prototype_and_its_own_identity() {
        let prototype = server();
        prototype.health.rise.store(7, Relaxed);
        prototype.health.configured.store(true, Relaxed);
        prototype.health.port.store(8080, Relaxed);
        let address = ServerAddress::Ip(SocketAddr::from(([10, 0, 0, 1], 80)));
        let copy = prototype.alike(prototype.seed_alike(9, "pod-1", address.clone(), true));
        assert_eq!((copy.id, &*copy.name, copy.backup), (9, "pod-1", true));
        assert_eq!((copy.health.rise.load(Relaxed), copy.health.port.load(Relaxed)), (7, 8080));
        assert!(copy.health.configured.load(Relaxed));
        assert_eq!(**copy.address.load(), address);
        assert_eq!(copy.user_weight(), prototype.user_weight());
    }
}
