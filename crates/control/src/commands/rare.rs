//! `debug counters` (management manual, 9.3): rare events, by code location. The binary registers the counters
//! ([`crate::Runtime::count_rare`]).

use base::event_counter::{self, EventCounter, EventKind};

use crate::invocation::{Call, CommandReply};

const USAGE: &str = "Usage: debug counters {reset|show|on|off|all|bug|cnt|chk|glt|?}*\n\
  bug     only BUG: program errors\n\
  chk     only CHK: unexpected conditions that were handled\n\
  cnt     only CNT: rare events\n\
  glt     only GLT: protocol anomalies of peers\n\
  all     include counters that are 0\n\
  off     stop counting CNT\n\
  on      resume counting CNT\n\
  reset   reset the selected counters\n\
  show    show the selected counters (the default)\n";

const TITLE: &str = "Count     Type Location function(): description\n";

/// The action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Reset,
    Show,
    Switch(bool),
}

pub(crate) fn counters(call: &mut Call<'_>) -> CommandReply {
    let (mut kinds, mut deeds, mut all) = (Vec::new(), Vec::new(), false);
    for word in call.args {
        match word.as_str() {
            "bug" => kinds.push(EventKind::Bug),
            "chk" => kinds.push(EventKind::Check),
            "cnt" => kinds.push(EventKind::Count),
            "glt" => kinds.push(EventKind::Glitch),
            "all" => all = true,
            "reset" => deeds.push(Deed::Reset),
            "show" => deeds.push(Deed::Show),
            "on" => deeds.push(Deed::Switch(true)),
            "off" => deeds.push(Deed::Switch(false)),
            _ => return CommandReply::Text(USAGE.to_owned()),
        }
    }
    if deeds.is_empty() {
        deeds.push(Deed::Show);
    }
    let known = call.runtime.rare();
    let chosen = || known.iter().copied().filter(|own| kinds.is_empty() || kinds.contains(&own.kind()));
    let mut out = String::new();
    for deed in deeds {
        match deed {
            Deed::Reset => chosen().for_each(EventCounter::reset),
            Deed::Switch(on) => event_counter::switch(on),
            Deed::Show => {
                let shown = chosen().filter(|own| all || own.count() > 0);
                let lines: String = shown.map(|own| format!("{own}\n")).collect();
                if !lines.is_empty() {
                    out.push_str(TITLE);
                    out.push_str(&lines);
                }
            }
        }
    }
    if out.is_empty() { CommandReply::Done } else { CommandReply::Text(out) }
}
