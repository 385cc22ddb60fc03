//! `tune.*` of the `global` section (manual, section 3.2): settings of the data path, and settings of parts that do not exist here,
//! which cause a warning.

use base::units::DefaultUnit::Seconds;
use diag::Diagnostic;
use plan::global::MultiQueue;

use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, global, ineffective, removed_since};
use crate::draft::row::Outcome;
use crate::draft::row::places::G;
use crate::draft::settings::GlobalSettings;
use crate::tables::httpclient;

const OWN: &str = "memory and scheduling are managed differently";
const COPY: &str = "forwarding never copies more than necessary";

/// The maximum of other sizes.
const MOST: u64 = u32::MAX as u64 / 2;
/// The maximum of `tune.bufsize`: message heads use 32-bit offsets, and larger values are mistakes.
const MOST_BUFFER: usize = 256 << 20;
/// The maximum of `tune.ssl.capture-buffer-size`: ClientHellos are never longer.
const MOST_CAPTURED: usize = 1 << 18;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    //     name                            arguments    description                                                        setting
    global("tune.bufsize",                 "<size>",    "buffer size, which limits the header section of a message",     bufsize),
    global("tune.maxrewrite",              "<size>",    "part of the buffer reserved for added headers",                 |g, a| size(&mut g.plan.tune.maxrewrite, a)),
    global("tune.cli.max-payload-size",    "<size>",    "maximum payload size of a runtime command",                    |g, a| size(&mut g.plan.tune.cli_payload, a)),
    global("tune.h1.fe.glitches-threshold", "<number>", "number of protocol anomalies after which a client connection is closed", |g, a| number(&mut g.plan.tune.glitches.client, a, 0, u32::MAX)).lenient_numbers(),
    global("tune.h1.be.glitches-threshold", "<number>", "number of protocol anomalies after which a server connection is closed", |g, a| number(&mut g.plan.tune.glitches.server, a, 0, u32::MAX)).lenient_numbers(),
    global("tune.glitches.kill.cpu-usage", "<number>",  "minimum CPU usage for closing such connections, in percent",    |g, a| number(&mut g.plan.tune.glitches.cpu_usage, a, 0, 100)).lenient_numbers(),
    global("tune.http.maxhdr",             "<number>",  "maximum number of headers in a message",                        |g, a| number(&mut g.plan.tune.max_headers, a, 1, 32767)),
    global("tune.http.cookielen",          "<number>",  "maximum length of a captured cookie",                           |g, a| number(&mut g.plan.tune.cookie_length, a, 1, 65535)),
    global("tune.http.logurilen",          "<number>",  "maximum length of a logged URI",                                log_uri_length).lenient_numbers(),
    global("tune.maxaccept",               "<number>",  "maximum number of connections accepted in a row, -1 for no limit", |g, a| number(&mut g.plan.tune.maxaccept, a, -1, i32::MAX)).lenient_numbers().once(),
    global("tune.pool-high-fd-ratio",      "<percent>", "share of file descriptors above which idle connections are closed, in percent", |g, a| number(&mut g.plan.tune.pool_high_fd_ratio, a, 0, 100)).lenient_numbers(),
    global("tune.pool-low-fd-ratio",       "<percent>", "share of file descriptors above which connections are not kept idle, in percent", |g, a| number(&mut g.plan.tune.pool_low_fd_ratio, a, 0, 100)).lenient_numbers(),
    global("tune.idle-pool.shared",        "{ on | off | full }", "whether threads share idle connections",       idle_pool_shared),
    global("tune.rcvbuf.client",           "<size>",    "kernel receive buffer size on the client side",                 |g, a| socket_buffer(&mut g.plan.tune.rcvbuf_client, a)),
    global("tune.rcvbuf.frontend",         "<size>",    "kernel receive buffer size of sockets for log datagrams and QUIC", |g, a| socket_buffer(&mut g.plan.tune.rcvbuf_frontend, a)),
    global("tune.sndbuf.frontend",         "<size>",    "kernel send buffer size of sockets for QUIC",                    |g, a| socket_buffer(&mut g.plan.tune.sndbuf_frontend, a)),
    global("tune.rcvbuf.backend",          "<size>",    "kernel receive buffer size of sockets for datagrams of servers", |g, a| socket_buffer(&mut g.plan.tune.rcvbuf_backend, a)),
    global("tune.sndbuf.backend",          "<size>",    "kernel send buffer size of sockets for datagrams to servers",    |g, a| socket_buffer(&mut g.plan.tune.sndbuf_backend, a)),
    global("tune.rcvbuf.server",           "<size>",    "kernel receive buffer size on the server side",                 |g, a| socket_buffer(&mut g.plan.tune.rcvbuf_server, a)),
    global("tune.sndbuf.client",           "<size>",    "kernel send buffer size on the client side",                    |g, a| socket_buffer(&mut g.plan.tune.sndbuf_client, a)),
    global("tune.sndbuf.server",           "<size>",    "kernel send buffer size on the server side",                    |g, a| socket_buffer(&mut g.plan.tune.sndbuf_server, a)),
    global("tune.notsent-lowat.client",    "<size>",    "maximum unsent data in the kernel buffer of a client connection", |g, a| size(&mut g.plan.tune.notsent_client, a)),
    global("tune.notsent-lowat.server",    "<size>",    "maximum unsent data in the kernel buffer of a server connection", |g, a| size(&mut g.plan.tune.notsent_server, a)),
    global("tune.renice.startup",          "<number>",  "process priority while the configuration is read",              |g, a| priority(&mut g.plan.tune.renice_startup, a)),
    global("tune.renice.runtime",          "<number>",  "process priority after startup, -20 (highest) to 19",           |g, a| priority(&mut g.plan.tune.renice_runtime, a)),
    global("tune.pipesize",                "<size>",    "size of pipes for forwarding inside the kernel",                |g, a| size(&mut g.plan.tune.pipesize, a)),
    global("tune.peers.max-updates-at-once", "<number>",            "maximum number of entries sent to a peer at once",   |g, a| { g.plan.tune.peers_updates = a.integer("a number of entries", 1, i32::MAX as usize)?; a.finish() }).lenient_numbers(),
    global("tune.listener.multi-queue",    "{ on | off | fair }", "how connections are distributed among threads",       multi_queue),
    global("tune.max-checks-per-thread",   "<number>",  "maximum number of concurrent checks per thread",                |g, a| number(&mut g.plan.tune.max_checks_per_thread, a, 0, u32::MAX)).lenient_numbers(),
    global("tune.vars.check-max-size",     "<size>",    "maximum size of the variables of a check",                      |g, a| size(&mut g.plan.tune.vars_max.check, a)),
    global("tune.vars.global-max-size",    "<size>",    "maximum size of all variables",                                 |g, a| size(&mut g.plan.tune.vars_max.all, a)),
    global("tune.vars.proc-max-size",      "<size>",    "maximum size of the variables of the process",                  |g, a| size(&mut g.plan.tune.vars_max.process, a)),
    global("tune.vars.sess-max-size",      "<size>",    "maximum size of the variables of a session",                    |g, a| size(&mut g.plan.tune.vars_max.session, a)),
    global("tune.vars.txn-max-size",       "<size>",    "maximum size of the variables of a transaction",                |g, a| size(&mut g.plan.tune.vars_max.transaction, a)),
    global("tune.vars.reqres-max-size",    "<size>",    "maximum size of the variables of a request or response",        |g, a| size(&mut g.plan.tune.vars_max.message, a)),

    ineffective("tune.idletimer",                   G, COPY),
    ineffective("tune.applet.zero-copy-forwarding", G, COPY),
    ineffective("tune.buffers.limit",               G, OWN),
    ineffective("tune.buffers.reserve",             G, OWN),
    global("tune.bufsize.large",           "<size>",    "size of large buffers for rules that wait for a body",          large_bufsize),
    ineffective("tune.bufsize.small",               G, OWN),
    removed_since("tune.chksize",                   G, "2.8", "checks use `tune.bufsize`"),
    ineffective("tune.defaults.purge",              G, OWN),
    ineffective("tune.disable-fast-forward",        G, COPY),
    ineffective("tune.disable-zero-copy-forwarding", G, COPY),
    ineffective("tune.epoll.mask-events",           G, OWN),
    ineffective("tune.events.max-events-at-once",   G, OWN),
    ineffective("tune.fail-alloc",                  G, "debugging aid of HAProxy"),
    ineffective("tune.fd.edge-triggered",           G, "descriptors are always edge-triggered"),
    ineffective("tune.fd.tables",                   G, OWN),
    ineffective("tune.h1.zero-copy-fwd-recv",       G, COPY),
    ineffective("tune.h1.zero-copy-fwd-send",       G, COPY),
    ineffective("tune.max-rules-at-once",           G, OWN),
    ineffective("tune.maxpollevents",               G, OWN),
    ineffective("tune.memory.hot-size",             G, OWN),
    ineffective("tune.pattern.cache-size",          G, "pattern lookups are not cached"),
    ineffective("tune.pt.zero-copy-forwarding",     G, COPY),
    ineffective("tune.recv_enough",                 G, OWN),
    ineffective("tune.ring.queues",                 G, "rings have no queues"),
    ineffective("tune.runqueue-depth",              G, OWN),
    ineffective("tune.sched.low-latency",           G, OWN),
    global("tune.ssl.cachesize",           "<number>",    "maximum number of cached client sessions per listener",            |g, a| { g.tls.sessions = a.integer("a number", 0, usize::MAX)?; a.finish() }),
    global("tune.ssl.capture-buffer-size", "<number>",  "maximum size of captured ClientHello lists, 0 to disable",      capture_size).lenient_numbers(),
    global("tune.ssl.capture-cipherlist-size", "<number>", "deprecated: use `tune.ssl.capture-buffer-size`",          |g, a| { deprecated(a); capture_size(g, a) }).lenient_numbers(),
    global("tune.ssl.certificate-compression", "{ auto | off }", "whether certificates may be compressed (RFC 8879)",          |g, a| { g.tls.compresses = a.one_of(&[("auto", true), ("off", false)])?; a.finish() }),
    global("tune.ssl.default-dh-param",    "<number>",    "size of default Diffie-Hellman parameters in bits",                |g, a| { g.tls.dh_bits = a.integer("a number", 1024, 16384)?; a.finish() }),
    ineffective("tune.ssl.force-private-cache",     G, "one process with all threads keeps the sessions"),
    global("tune.ssl.hard-maxrecord",      "<bytes>",     "maximum size of TLS records; the smaller of this and `tune.ssl.maxrecord` applies", |g, a| { g.tls.max_record[1] = a.integer("a number", 0, 16384)?; a.finish() }),
    global("tune.ssl.keylog",              "{ on | off }", "whether the secrets of TLS connections are kept for logs",    |g, a| { g.tls.key_log = a.on_off()?; a.finish() }),
    global("tune.ssl.keyupdate-rate-limit", "<limit>",    "maximum number of key updates per second from a peer, 0 for no limit", |g, a| { g.tls.key_updates = a.integer("a number", 0, 1 << 24)?; a.finish() }),
    global("tune.ssl.lifetime",            "<time>",      "maximum lifetime of a resumable session",                         |g, a| { g.tls.lifetime = a.duration(Seconds)?; a.finish() }).partial("sessions kept by OpenSSL have a fixed lifetime of two hours"),
    global("tune.ssl.maxrecord",           "<bytes>",     "maximum size of TLS records, 0 for the protocol's maximum",       |g, a| { g.tls.max_record[0] = a.integer("a number", 0, 16384)?; a.finish() }),
    global("tune.ssl.ocsp-update.maxdelay", "<seconds>",   "the same as `ocsp-update.maxdelay`",                        httpclient::max_delay),
    global("tune.ssl.ocsp-update.mindelay", "<seconds>",   "the same as `ocsp-update.mindelay`",                        httpclient::min_delay),
    global("tune.ssl.ssl-ctx-cache-size",  "<number>",    "maximum number of cached generated certificates",                 |g, a| { g.tls.generated = a.integer("a number", 0, 1 << 24)?; a.finish() }).lenient_numbers(),
    global("tune.stick-counters",          "<number>",  "maximum number of stick table entries tracked at once",         |g, a| number(&mut g.plan.tune.stick_counters, a, 0, sample::track::MOST_COUNTERS)).lenient_numbers(),
    global("tune.streams-elasticity",      "<number>",    "maximum total of HTTP/2 streams in percent of `maxconn`, 0 for no limit", elasticity),
    ineffective("tune.takeover-other-tg-connections", G, "idle connections are shared within a group"),
];

/// The first of the two keywords counts, and the second is an error. 0, or at least one stream per connection.
fn elasticity(global: &mut GlobalSettings<'_>, args: &mut Args<'_, '_>) -> Outcome {
    let value = args.next().and_then(|word| word.parse().ok()).filter(|value| *value == 0 || *value >= 100);
    global.plan.tune.streams_elasticity = value.ok_or_else(|| {
        args.wrong("`tune.streams-elasticity` requires a percentage of at least 100, or 0")
            .haproxy("'tune.streams-elasticity' expects 0 or a positive percentage value of 100 or above")
    })?;
    args.finish()
}

fn capture_size(global: &mut GlobalSettings<'_>, args: &mut Args<'_, '_>) -> Outcome {
    let name = args.keyword();
    if global.tls.capture.is_some() {
        return Err(Diagnostic::alert(format!("`{name}`: the capture size is already set"))
            .at(args.statement.keyword_span())
            .haproxy(format!("'{name}' is already configured.")));
    }
    global.tls.capture = Some(args.integer("a number", 0, MOST_CAPTURED)?);
    args.finish()
}

fn deprecated(args: &mut Args<'_, '_>) {
    let place = args.statement.keyword_span();
    let message = Diagnostic::warning("`tune.ssl.capture-cipherlist-size` is deprecated")
        .at(place)
        .help("use `tune.ssl.capture-buffer-size` instead")
        .haproxy("'tune.ssl.capture-cipherlist-size' is deprecated and will be removed in version 2.7. Please use 'tune.ssl.capture-buffer-size' instead.");
    args.diagnostics.push(message);
}

pub(super) fn number<T>(value: &mut T, args: &mut Args<'_, '_>, low: T, high: T) -> Outcome
where
    T: std::str::FromStr + PartialOrd + std::fmt::Display + Copy,
{
    *value = args.integer("an integer", low, high)?;
    args.finish()
}

/// A size that may be set once, 0 for none.
fn socket_buffer(value: &mut usize, args: &mut Args<'_, '_>) -> Outcome {
    if *value == 0 {
        return size(value, args);
    }
    let name = args.keyword();
    args.size(MOST)?;
    let message = Diagnostic::warning(format!("`{name}` is already set: the first line is used")).tolerated();
    let place = args.statement.keyword_span();
    args.diagnostics.push(message.at(place).haproxy(format!("'{name}' already specified. Continuing.")));
    args.finish()
}

fn size(value: &mut usize, args: &mut Args<'_, '_>) -> Outcome {
    *value = args.size(MOST)? as usize;
    args.finish()
}

fn priority(value: &mut Option<i32>, args: &mut Args<'_, '_>) -> Outcome {
    *value = Some(args.integer("a priority", -20, 19)?);
    args.finish()
}

fn bufsize<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    size(&mut global.plan.tune.bufsize, args)?;
    if !(1024..=MOST_BUFFER).contains(&global.plan.tune.bufsize) {
        return Err(args
            .wrong(format!("`tune.bufsize` must be between 1024 bytes and {} MiB", MOST_BUFFER >> 20))
            .help("each message in transit takes a buffer")
            .haproxy(format!("'tune.bufsize' expects a size in bytes from 1024 to {MOST_BUFFER}.")));
    }
    Ok(())
}

fn large_bufsize<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    size(&mut global.plan.tune.large_bufsize, args)?;
    if global.plan.tune.large_bufsize > MOST_BUFFER {
        return Err(args
            .wrong(format!("`tune.bufsize.large` must be at most {} MiB", MOST_BUFFER >> 20))
            .help("each request that waits for a body longer than `tune.bufsize` takes one")
            .haproxy(format!("'tune.bufsize.large' expects a size in bytes up to {MOST_BUFFER}.")));
    }
    if global.plan.tune.large_bufsize <= global.plan.tune.bufsize {
        args.warn("`tune.bufsize.large` has no effect: it is not larger than `tune.bufsize`");
    }
    Ok(())
}

/// The configured value is the logged length; the plan stores one more, since HAProxy's default of 1024 means 1023.
fn log_uri_length<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    number(&mut global.plan.tune.log_uri_length, args, 0, 65535)?;
    global.plan.tune.log_uri_length += 1;
    Ok(())
}

fn idle_pool_shared<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    global.plan.tune.idle_pool_shared = args.one_of(&[("on", true), ("off", false), ("full", true)])?;
    args.finish()
}

fn multi_queue<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    global.plan.tune.multi_queue =
        args.one_of(&[("on", MultiQueue::On), ("off", MultiQueue::Off), ("fair", MultiQueue::Fair)])?;
    args.finish()
}
