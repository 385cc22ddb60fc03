//! `tune.quic.*` and other QUIC settings of the `global` section (manual, chapter 3).

use base::units::DefaultUnit::Milliseconds;
use diag::Diagnostic;
use plan::quic::QuicSide;

use super::tune::number;
use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, global, ineffective};
use crate::draft::row::Outcome;
use crate::draft::row::places::G;
use crate::draft::settings::GlobalSettings;

/// The limits of a congestion window in bytes.
pub(crate) const WINDOWS: std::ops::RangeInclusive<u64> = 10 << 10..=4 << 30;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    //     name                                 arguments         description                                                          setting
    global("cluster-secret",                     "<secret>",       "secret from which QUIC tokens are derived, shared by several nodes", cluster_secret).once(),
    global("harden.reject-privileged-ports.quic", "{ on | off }",  "drops QUIC datagrams with source ports below 1024",             |g, a| { g.plan.tune.quic.reject_privileged_ports = a.on_off()?; a.finish() }),
    ineffective("limited-quic", G, "QUIC never has the limits of OpenSSL's compatibility layer"),
    global("tune.quic.be.cc.cubic-min-losses",   "<number>",       "number of lost packets after which Cubic reduces the congestion window", |g, a| number(&mut back(g).cubic_min_losses, a, 1, u32::MAX)).lenient_numbers(),
    global("tune.quic.be.cc.hystart",            "{ on | off }",   "whether HyStart++ replaces slow start",                         |g, a| switch(&mut back(g).hystart, a)),
    global("tune.quic.be.cc.max-frame-loss",     "<number>",       "number of losses of one frame after which the connection is closed", |_, a| number(&mut 0, a, 1, u32::MAX)).lenient_numbers()
        .without_effect("frames are repeated until `tune.quic.be.max-idle-timeout` passes without an answer"),
    global("tune.quic.be.cc.max-win-size",       "<size>",         "maximum congestion window of server connections",               |g, a| { back(g).max_window = window(a)?; a.finish() }),
    global("tune.quic.be.cc.reorder-ratio",      "<percent>",      "maximum reordering threshold in percent of the packets in flight", |_, a| number(&mut 0, a, 0, 100)).lenient_numbers()
        .without_effect("the threshold is always 3 packets or 9/8 of the round-trip time (RFC 9002)"),
    global("tune.quic.be.max-idle-timeout",      "<time>",         "time after which idle server connections are closed, 0 to disable", |g, a| { back(g).max_idle_timeout = a.duration(Milliseconds)?; a.finish() }),
    global("tune.quic.be.sec.glitches-threshold", "<number>",      "number of protocol anomalies after which a server connection is closed, 0 to disable", |g, a| number(&mut back(g).glitches, a, 0, u32::MAX)).lenient_numbers(),
    global("tune.quic.be.stream.data-ratio",     "<percent>",      "share of the receive buffer of a server connection that one stream may use, in percent", |g, a| number(&mut back(g).data_ratio, a, 1, 100)).lenient_numbers(),
    global("tune.quic.be.stream.max-concurrent", "<number>",       "maximum number of concurrent requests on a server connection", |g, a| number(&mut back(g).max_streams, a, 1, u32::MAX)).lenient_numbers(),
    global("tune.quic.be.stream.rxbuf",          "<size>",         "receive buffer size of a server connection, for all its streams", |g, a| size(&mut back(g).rxbuf, a)),
    global("tune.quic.be.tx.pacing",             "{ on | off }",   "whether packets to servers are spread over time",               |g, a| switch(&mut back(g).pacing, a)),
    global("tune.quic.be.tx.udp-gso",            "{ on | off }",   "whether the kernel splits datagrams to servers (GSO)",          |g, a| switch(&mut back(g).segmentation, a)),
    global("tune.quic.fe.cc.cubic-min-losses",   "<number>",       "number of lost packets after which Cubic reduces the congestion window", |g, a| number(&mut front(g).cubic_min_losses, a, 1, u32::MAX)).lenient_numbers(),
    global("tune.quic.fe.cc.hystart",            "{ on | off }",   "whether HyStart++ replaces slow start",                         |g, a| switch(&mut front(g).hystart, a)),
    global("tune.quic.fe.cc.max-frame-loss",     "<number>",       "number of losses of one frame after which the connection is closed", |_, a| number(&mut 0, a, 1, u32::MAX)).lenient_numbers()
        .without_effect("frames are repeated until `tune.quic.fe.max-idle-timeout` passes without an answer"),
    global("tune.quic.fe.cc.max-win-size",       "<size>",         "maximum congestion window of client connections",               |g, a| { front(g).max_window = window(a)?; a.finish() }),
    global("tune.quic.fe.cc.reorder-ratio",      "<percent>",      "maximum reordering threshold in percent of the packets in flight", |_, a| number(&mut 0, a, 0, 100)).lenient_numbers()
        .without_effect("the threshold is always 3 packets or 9/8 of the round-trip time (RFC 9002)"),
    global("tune.quic.fe.max-idle-timeout",      "<time>",         "time after which idle client connections are closed, 0 to disable", |g, a| { front(g).max_idle_timeout = a.duration(Milliseconds)?; a.finish() }),
    global("tune.quic.fe.sec.glitches-threshold", "<number>",      "number of protocol anomalies after which a client connection is closed, 0 to disable", |g, a| number(&mut front(g).glitches, a, 0, u32::MAX)).lenient_numbers(),
    global("tune.quic.fe.sec.retry-threshold",   "<number>",       "number of concurrent handshakes of a frontend from which on clients must validate their address", |g, a| number(&mut g.plan.tune.quic.retry_threshold, a, 0, u32::MAX)).lenient_numbers(),
    global("tune.quic.fe.sock-per-conn",         "{ default-on | force-off }", "whether QUIC connections have their own sockets",   |_, a| { a.one_of(&[("default-on", ()), ("force-off", ())])?; a.finish() })
        .without_effect("connections share the sockets of their listener, and need no privilege"),
    global("tune.quic.fe.stream.data-ratio",     "<percent>",      "share of the receive buffer of a client connection that one stream may use, in percent", |g, a| number(&mut front(g).data_ratio, a, 1, 100)).lenient_numbers(),
    global("tune.quic.fe.stream.max-concurrent", "<number>",       "maximum number of concurrent streams on a client connection",   |g, a| number(&mut front(g).max_streams, a, 1, u32::MAX)).lenient_numbers(),
    global("tune.quic.fe.stream.max-total",      "<number>",       "maximum number of requests on a client connection, 0 for no limit", |g, a| number(&mut g.plan.tune.quic.max_total_streams, a, 0, MOST_STREAMS)).lenient_numbers(),
    global("tune.quic.fe.stream.rxbuf",          "<size>",         "receive buffer size of a client connection, for all its streams", |g, a| size(&mut front(g).rxbuf, a)),
    global("tune.quic.fe.tx.pacing",             "{ on | off }",   "whether packets to clients are spread over time",               |g, a| switch(&mut front(g).pacing, a)),
    global("tune.quic.fe.tx.udp-gso",            "{ on | off }",   "whether the kernel splits datagrams to clients (GSO)",          |g, a| switch(&mut front(g).segmentation, a)),
    global("tune.quic.listen",                   "{ on | off }",   "whether QUIC listeners are bound",                              |g, a| switch(&mut g.plan.tune.quic.listen, a)),
    global("tune.quic.mem.tx-max",               "<size>",         "maximum memory for unacknowledged data of all connections, 0 for no limit", |g, a| size(&mut g.plan.tune.quic.tx_memory, a)),
    global("tune.quic.zero-copy-fwd-send",       "{ on | off }",   "whether data is sent without a copy",                           |g, a| switch(&mut g.plan.tune.quic.zero_copy, a)),
];

/// The number of streams that a client can open (RFC 9000, 4.6).
const MOST_STREAMS: u64 = 1 << 60;

fn front<'g>(global: &'g mut GlobalSettings<'_>) -> &'g mut QuicSide {
    &mut global.plan.tune.quic.front
}

fn back<'g>(global: &'g mut GlobalSettings<'_>) -> &'g mut QuicSide {
    &mut global.plan.tune.quic.back
}

fn switch(value: &mut bool, args: &mut Args<'_, '_>) -> Outcome {
    *value = args.on_off()?;
    args.finish()
}

fn size(value: &mut u64, args: &mut Args<'_, '_>) -> Outcome {
    // The limit of flow control (RFC 9000, 4.1).
    *value = args.size((1 << 62) - 1)?;
    args.finish()
}

fn window(args: &mut Args<'_, '_>) -> Result<u64, Diagnostic> {
    let size = args.size(u64::MAX)?;
    if !WINDOWS.contains(&size) {
        let name = args.keyword();
        return Err(args
            .wrong(format!("`{name}` must be between 10k and 4g"))
            .haproxy(format!("'{name}' expects a size between 10k and 4g.")));
    }
    Ok(size)
}

fn cluster_secret<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    global.plan.cluster_secret = Some(args.required("a secret")?.as_str().into());
    args.finish()
}
