//! UDP load balancing: sessions, rules, checks, logs, and reloads.

mod checks;
mod configuration;
mod reloads;
mod rules;
mod servers;
mod sessions;
