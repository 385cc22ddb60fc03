//! What a `bind` or `stats socket` line says, as plain values.

use std::time::Duration;

use plan::bind::{AccessLevel, SeverityOutput, Shards};
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
    /// `proto none`: what is TCP stays TCP.
    pub stays_raw: bool,
    /// `proto h2`: clients speak HTTP/2 without being asked.
    pub speaks_h2: bool,
    /// `proto h1`: no preface of HTTP/2 is looked for.
    pub http1_alone: bool,
    /// `idle-ping`: how often an idle client of HTTP/2 is asked whether it lives.
    pub idle_ping: Option<Duration>,
    /// `tcp-ss`: from which header on the SYN is saved.
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
    /// `nbconn`, and its word.
    pub nbconn: Option<(u32, &'a Word)>,
    /// The first parameter that listeners of reverse HTTP do not take.
    pub of_sockets: Option<&'static str>,
    pub severity_output: SeverityOutput,
    /// What it says of TLS.
    pub tls: BindTls<'a>,
}
