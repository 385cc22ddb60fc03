//! The parameters of a `bind` or `stats socket` line, as plain values.

use std::time::Duration;

use plan::bind::{AccessLevel, SeverityOutput, Shards};
use plan::quic::Congestion;
use runtime::placement::ThreadSet;
use syntax::Word;

use crate::draft::tls::BindTls;

/// The parameters of a bind line.
#[derive(Debug, Clone, Default)]
#[allow(missing_docs)]
pub struct BindDraft<'a> {
    pub name: Option<&'a str>,
    pub guid_prefix: Option<&'a Word>,
    pub id: Option<u32>,
    pub maxconn: u32,
    pub accept_proxy: bool,
    pub netscaler_magic: Option<u32>,
    /// `proto none`: TCP is not upgraded to HTTP.
    pub stays_raw: bool,
    /// `proto h2`: clients speak HTTP/2 with prior knowledge.
    pub speaks_h2: bool,
    /// `proto h1`: the HTTP/2 preface is not recognized.
    pub http1_alone: bool,
    /// `idle-ping`: the interval at which idle HTTP/2 clients are pinged.
    pub idle_ping: Option<Duration>,
    /// `tcp-ss`: the header from which on the SYN is saved.
    pub save_syn: Option<u8>,
    pub tcp_ut: Option<Duration>,
    pub tfo: bool,
    pub md5sig: Option<&'a str>,
    pub mss: Option<i32>,
    pub defer_accept: bool,
    pub transparent: bool,
    pub v6only: Option<bool>,
    pub interface: Option<&'a str>,
    pub namespace: Option<&'a str>,
    pub backlog: u32,
    pub mode: Option<u32>,
    pub uid: Option<u32>,
    pub gid: Option<u32>,
    pub level: AccessLevel,
    pub expose_fds: bool,
    pub congestion: Option<&'a str>,
    pub shards: Option<Shards>,
    pub threads: Vec<ThreadSet>,
    /// The value of `nbconn`, and its word.
    pub nbconn: Option<(u32, &'a Word)>,
    /// The first parameter that listeners of reverse HTTP do not accept.
    pub of_sockets: Option<&'static str>,
    pub severity_output: SeverityOutput,
    /// `proto quic`.
    pub speaks_quic: Option<&'a Word>,
    /// `proto qmux`.
    pub speaks_qmux: Option<&'a Word>,
    /// QUIC parameters.
    pub quic: QuicWords<'a>,
    /// TLS parameters.
    pub tls: BindTls<'a>,
}

/// The QUIC parameters of a line.
#[derive(Debug, Clone, Default)]
pub struct QuicWords<'a> {
    /// `quic-cc-algo`, with its word.
    pub congestion: Option<(Congestion, &'a Word)>,
    /// Its maximum window in bytes.
    pub max_window: Option<u64>,
    /// `quic-force-retry`.
    pub force_retry: bool,
    /// The first of these parameters.
    pub first: Option<&'static str>,
}
