//! Servers: balancing, checks, name resolution, persistence, queues, connections.

mod balancing;
mod changes;
mod chaos;
mod check_connections;
mod check_multiplexed;
mod discovery;
mod discovery_sources;
mod emails;
mod health;
mod idle_connections;
mod names;
mod persistence;
mod policies;
mod private_connections;
mod protocol_checks;
mod queues;
mod reaching;
