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
    global("tune.h2.be.glitches-threshold",   "<number>", "how many odd frames end a server's connection, 0 for none",        |g, a| number(&mut back(g).glitches, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.be.initial-window-size",  "<number>", "how much a server may send on a stream before it hears from us",   |g, a| window(&mut back(g).initial_window, a)).lenient_numbers(),
    global("tune.h2.be.max-concurrent-streams", "<number>", "how many requests a server's connection carries at once",        |g, a| streams(&mut back(g).max_streams, a)).lenient_numbers(),
    global("tune.h2.be.max-frames-at-once",   "<number>", "how many frames of a server are dealt with at once, 0 for any number", |g, a| number(&mut back(g).max_frames_at_once, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.be.rxbuf",                "<size>",   "how much the streams of a server's connection hold together",      |g, a| size(&mut back(g).rxbuf, a)),
    global("tune.h2.fe.glitches-threshold",   "<number>", "how many odd frames end a client's connection, 0 for none",        |g, a| number(&mut front(g).glitches, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.fe.initial-window-size",  "<number>", "how much a client may send on a stream before it hears from us",   |g, a| window(&mut front(g).initial_window, a)).lenient_numbers(),
    global("tune.h2.fe.max-concurrent-streams", "<number> [rq-load { <number> | auto | ignore }] [min <number>]", "how many requests a client's connection carries at once", front_streams).lenient_numbers(),
    global("tune.h2.fe.max-frames-at-once",   "<number>", "how many frames of a client are dealt with at once, 0 for any number", |g, a| number(&mut front(g).max_frames_at_once, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.fe.max-rst-at-once",      "<number>", "how many resets of a client are dealt with at once, 0 for any number", |g, a| number(&mut front(g).max_resets_at_once, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.fe.max-total-streams",    "<number>", "after how many requests a client's connection ends, 0 for never",  |g, a| number(&mut front(g).max_total_streams, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.fe.rxbuf",                "<size>",   "how much the streams of a client's connection hold together",      |g, a| size(&mut front(g).rxbuf, a)),
    global("tune.h2.header-table-size",       "<number>", "the size of the table of HPACK that peers may use",                |g, a| number(&mut h2(g).header_table, a, 0, 65_536)).lenient_numbers(),
    global("tune.h2.initial-window-size",     "<number>", "the same for both sides, unless they say another",                 |g, a| number(&mut h2(g).initial_window, a, 0, MOST_WINDOW)).lenient_numbers(),
    global("tune.h2.log-errors",              "{ none | connection | stream }", "which breaches of the protocol are logged", log_errors),
    global("tune.h2.max-concurrent-streams",  "<number>", "how many requests a connection carries at once, on both sides unless they say another", |g, a| number(&mut h2(g).max_streams, a, 0, MOST)).lenient_numbers(),
    global("tune.h2.max-frame-size",          "<number>", "the largest frame that peers may send",                            |g, a| { h2(g).max_frame = Some(a.integer("a number", 16_384, 16_777_215)?); a.finish() }).lenient_numbers(),
    ineffective("tune.h2.zero-copy-fwd-send", G, "forwarding never copies more than it must here"),
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

/// The value of `rq-load auto`: HAProxy uses `tune.runqueue-depth`, which has no meaning here.
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
