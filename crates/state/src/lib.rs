//! State that survives changes of plan: proxies and servers with their counters and queues.
//!
//! This crate has no I/O and no clock: callers pass the time in milliseconds of the monotonic clock. Request tasks write the
//! state; health checks and the runtime socket read and change it. They never call each other.

#![forbid(unsafe_code)]

pub mod acme;
mod address;
pub mod clear;
pub mod counters;
pub mod discovery;
pub mod durations;
pub mod errors;
pub mod events;
pub mod extra_attempts;
pub mod faults;
mod health;
pub mod histogram;
pub mod history;
pub mod http_durations;
pub mod journal;
mod last_session;
pub mod latency;
pub mod mirror;
mod name;
pub mod performance;
pub mod process;
pub mod proxy;
pub mod queue;
pub mod quic_connections;
pub mod quic_counters;
pub mod recent;
pub mod resolvers;
pub mod ring;
pub mod saved_state;
pub mod server;
pub mod server_load;
pub mod sessions;
pub mod statistic;
mod statuses;
pub mod table;
pub mod telemetry;
mod tracking;
pub mod transition;

pub use counters::{BackendCounters, FrontendCounters, ListenerCounters, ServerCounters};
pub use discovery::{DiscoverySource, Feed, FeedState, Instance};
pub use durations::{DurationHistogram, Durations, MeasuredTime};
pub use extra_attempts::ExtraAttempts;
pub use faults::{FaultCause, Faults};
pub use histogram::{Histogram, Spread};
pub use http_durations::HttpDurations;
pub use journal::{EventTopic, RepeatedEvent};
pub use last_session::LastSession;
pub use latency::{AttemptOutcome, Latency};
pub use mirror::Mirror;
pub use name::ServerName;
pub use performance::Performance;
pub use process::Process;
pub use proxy::{Listener, Mode, Proxy};
pub use queue::{Queue, Ticket};
pub use recent::Recent;
pub use ring::Ring;
pub use server::{Admin, Operational, Server};
pub use server_load::ServerLoad;
pub use statuses::{CountedStatuses, Statuses};
