//! `tune.h2.*` of the `global` section (manual, section 3.2).

use plan::global::{Http2, Http2Side, LogErrors, Moderation};

use super::tune::number;
use crate::draft::args::Args;
use crate::draft::keyword::{Keyword, global, ineffective};
use crate::draft::row::Outcome;
use crate::draft::row::places::G;
use crate::draft::settings::GlobalSettings;

/// The maximum window (RFC 9113, 6.9.1).
const MOST_WINDOW: u32 = i32::MAX as u32;
/// Rates and counts above this mean no limit.
const MOST: u32 = i32::MAX as u32;

/// The rows.
#[rustfmt::skip]
pub static TABLE: &[Keyword] = &[
    //     name                               arguments   description                                                           setting
    global("tune.h2.be.glitches-threshold",   "<number>", "number of protocol anomalies after which a server connection is closed, 0 to disable", |g, a| number(&mut back(g).glitches, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.be.initial-window-size",  "<number>", "initial window size of streams from servers",                      |g, a| window(&mut back(g).initial_window, a)).lenient_numbers(),
    global("tune.h2.be.max-concurrent-streams", "<number>", "maximum number of concurrent streams on a server connection",    |g, a| streams(&mut back(g).max_streams, a)).lenient_numbers(),
    global("tune.h2.be.max-frames-at-once",   "<number>", "maximum number of frames processed at once on a server connection, 0 for no limit", |g, a| number(&mut back(g).max_frames_at_once, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.be.rxbuf",                "<size>",   "receive buffer size of a server connection, for all its streams",  |g, a| size(&mut back(g).rxbuf, a)),
    global("tune.h2.fe.glitches-threshold",   "<number>", "number of protocol anomalies after which a client connection is closed, 0 to disable", |g, a| number(&mut front(g).glitches, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.fe.initial-window-size",  "<number>", "initial window size of streams from clients",                      |g, a| window(&mut front(g).initial_window, a)).lenient_numbers(),
    global("tune.h2.fe.max-concurrent-streams", "<number> [rq-load { <number> | auto | ignore }] [min <number>]", "maximum number of concurrent streams on a client connection", front_streams).lenient_numbers(),
    global("tune.h2.fe.max-frames-at-once",   "<number>", "maximum number of frames processed at once on a client connection, 0 for no limit", |g, a| number(&mut front(g).max_frames_at_once, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.fe.max-rst-at-once",      "<number>", "maximum number of RST_STREAM frames processed at once on a client connection, 0 for no limit", |g, a| number(&mut front(g).max_resets_at_once, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.fe.max-total-streams",    "<number>", "maximum number of requests on a client connection, 0 for no limit", |g, a| number(&mut front(g).max_total_streams, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.fe.rxbuf",                "<size>",   "receive buffer size of a client connection, for all its streams",  |g, a| size(&mut front(g).rxbuf, a)),
    global("tune.h2.header-table-size",       "<number>", "size of the HPACK header table that peers may use",                |g, a| number(&mut h2(g).header_table, a, 0, 65_536)).lenient_numbers(),
    global("tune.h2.initial-window-size",     "<number>", "initial window size on both sides, unless set for a side",         |g, a| number(&mut h2(g).initial_window, a, 0, MOST_WINDOW)).lenient_numbers(),
    global("tune.h2.log-errors",              "{ none | connection | stream }", "which protocol errors are logged",           log_errors),
    global("tune.h2.max-concurrent-streams",  "<number>", "maximum number of concurrent streams on a connection, on both sides, unless set for a side", |g, a| number(&mut h2(g).max_streams, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.max-frame-size",          "<number>", "maximum size of frames that peers may send",                       |g, a| { h2(g).max_frame = Some(a.integer("a number", 16_384, 16_777_215)?); a.finish() }).lenient_numbers(),
    ineffective("tune.h2.zero-copy-fwd-send", G, "forwarding never copies more than necessary"),
];

fn h2<'g>(global: &'g mut GlobalSettings<'_>) -> &'g mut Http2 {
    &mut global.plan.tune.h2
}

fn front<'g>(global: &'g mut GlobalSettings<'_>) -> &'g mut Http2Side {
    &mut h2(global).front
}

fn back<'g>(global: &'g mut GlobalSettings<'_>) -> &'g mut Http2Side {
    &mut h2(global).back
}

fn window(value: &mut Option<u32>, args: &mut Args<'_, '_>) -> Outcome {
    *value = Some(args.integer("a number", 0, MOST_WINDOW)?);
    args.finish()
}

fn streams(value: &mut Option<u32>, args: &mut Args<'_, '_>) -> Outcome {
    *value = Some(args.integer("a number", 0, MOST)?);
    args.finish()
}

fn size(value: &mut Option<u64>, args: &mut Args<'_, '_>) -> Outcome {
    *value = Some(args.size(u64::from(MOST))?);
    args.finish()
}

/// The value of `rq-load auto`. HAProxy uses `tune.runqueue-depth`, which has no meaning in Weir.
const AUTO_LOAD: u32 = 100;

fn front_streams<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    let own = front(global);
    own.max_streams = Some(args.integer("a number", 0, MOST)?);
    own.moderation = None;
    let (mut load, mut least) = (None, 1);
    loop {
        if args.take("rq-load") {
            load = match () {
                () if args.take("auto") => Some(AUTO_LOAD),
                () if args.take("ignore") => None,
                () => Some(args.integer("a load, `auto` or `ignore`", 1, MOST)?),
            };
        } else if args.take("min") {
            least = args.integer("a number", 1, MOST)?;
        } else {
            break;
        }
    }
    own.moderation = load.map(|load| Moderation { load, least });
    args.finish()
}

fn log_errors<'a>(global: &mut GlobalSettings<'a>, args: &mut Args<'a, '_>) -> Outcome {
    h2(global).log_errors = args.one_of(&[
        ("none", LogErrors::None),
        ("connection", LogErrors::Connection),
        ("stream", LogErrors::Stream),
    ])?;
    args.finish()
}
