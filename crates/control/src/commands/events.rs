//! `show events`: event sinks, the contents of rings (management manual, 9.3), and the events of the process.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use state::Ring;
use state::ring::RingReader;

use crate::access::AccessLevel;
use crate::commands::journal;
use crate::invocation::{Call, CommandReply, Follow, denied, error, warning};
use crate::sinks::{STANDARD, lost};

pub(crate) fn show_events(call: &mut Call<'_>) -> CommandReply {
    let view = call.runtime.view();
    let Some(name) = call.args.first() else { return warning(sinks(&view.rings)) };
    // Anyone may list the sinks, but their contents may include the requests of any client.
    if call.settings.level < AccessLevel::Operator {
        return denied();
    }
    let Some(ring) = view.rings.iter().find(|ring| *ring.name == **name) else {
        // If a sink has the name of a topic, the sink takes precedence.
        if journal::is_topic(name) {
            return journal::show(call);
        }
        return error(match name.as_str() {
            "stdout" | "stderr" => "Nothing to report for this sink",
            _ => "No such event sink",
        });
    };
    let (mut wait, mut newest, mut end) = (false, false, b'\n');
    for option in &call.args[1..] {
        match option.as_str() {
            "-w" => wait = true,
            "-n" => newest = true,
            "-wn" | "-nw" => (wait, newest) = (true, true),
            "-0" => end = 0,
            _ => return error("unknown option"),
        }
    }
    let reader = if newest { RingReader::newest(ring) } else { RingReader::oldest(ring) };
    CommandReply::Follow(Follow::new(reader, end), wait)
}

fn sinks(rings: &[Arc<Ring>]) -> String {
    let mut out =
        "Supported events sinks are listed below. Add -0(zero), -w(wait), -n(new). Any key to stop.\n"
            .to_owned();
    for (name, number, what) in STANDARD {
        let dropped = lost(number).load(Relaxed);
        let _ = writeln!(out, "    {name:<10} : type=fd, {dropped} dropped, {what} (fd#{number})");
    }
    for ring in rings {
        let (dropped, description) = (ring.dropped(), &ring.description);
        let _ = writeln!(out, "    {:<10} : type=buffer, {dropped} dropped, {description}", ring.name);
    }
    out
}
