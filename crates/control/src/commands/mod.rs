//! The commands of the runtime socket (management manual, 9.3), a file a family. `socket::table`
//! lists and calls them.

pub(crate) mod anonymized;
pub(crate) mod authorities;
pub(crate) mod backends;
pub(crate) mod caches;
pub(crate) mod captured;
pub(crate) mod certificates;
pub(crate) mod clearing;
pub(crate) mod debug;
pub(crate) mod descriptors;
pub(crate) mod dev;
pub(crate) mod events;
pub(crate) mod handshakes;
pub(crate) mod http_client;
pub(crate) mod lists;
pub(crate) mod orders;
pub(crate) mod overviews;
pub(crate) mod patterns;
pub(crate) mod peers;
pub(crate) mod profiling;
pub(crate) mod rare;
pub(crate) mod reloads;
pub(crate) mod server_address;
pub(crate) mod servers;
pub(crate) mod sets;
pub(crate) mod show;
pub(crate) mod stream_dump;
pub(crate) mod streams;
pub(crate) mod tables;
pub(crate) mod traces;
pub(crate) mod variables;
