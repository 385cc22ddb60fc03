//! The keywords of sections: one table per family.

pub mod acme;
pub mod bind;
pub mod bind_quic;
mod bind_row;
pub mod cache;
pub mod check;
pub mod check_expect;
pub mod check_option;
pub mod check_protocol;
mod check_words;
pub mod compression;
pub mod discovery;
pub mod environment;
pub mod fcgi;
pub mod filter;
pub mod global;
pub mod httpclient;
pub mod log;
pub mod lua;
pub mod mail;
pub mod option;
pub mod peers;
pub mod persistence;
pub mod policies;
pub mod proxy;
pub mod resolvers;
pub mod rules;
pub mod sections;
pub mod server;
pub(crate) mod server_address;
mod server_check;
mod server_row;
pub mod spoe;
pub mod stats;
pub mod telemetry;
pub mod threads;
pub mod timeout;
pub mod tls;
pub mod tune;
pub mod tune_h2;
pub mod tune_quic;
pub mod udp;

use crate::draft::keyword::Keyword;

/// All tables, in the order of the keyword reference.
static TABLES: &[&[Keyword]] = &[
    environment::TABLE,
    global::TABLE,
    threads::TABLE,
    tune::TABLE,
    tune_h2::TABLE,
    tune_quic::TABLE,
    httpclient::TABLE,
    lua::TABLE,
    proxy::TABLE,
    filter::TABLE,
    compression::TABLE,
    rules::TABLE,
    timeout::TABLE,
    option::TABLE,
    log::TABLE,
    stats::TABLE,
    persistence::TABLE,
    policies::TABLE,
    check::TABLE,
    check_option::TABLE,
    check_protocol::TABLE,
    sections::TABLE,
    resolvers::TABLE,
    acme::TABLE,
    fcgi::TABLE,
    mail::TABLE,
    peers::TABLE,
    cache::TABLE,
    spoe::TABLE,
    telemetry::TABLE,
    discovery::TABLE,
    udp::TABLE,
];

/// Every row.
pub fn all() -> impl Iterator<Item = &'static Keyword> {
    TABLES.iter().copied().flatten()
}
