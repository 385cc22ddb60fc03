//! `show events` with a topic: the latest events of the process that matter to operators. HAProxy does not have this form.

use std::fmt::Write;
use std::time::Duration;

use base::clock::{Date, WallTime};
use base::units::{DefaultUnit, parse_duration};
use state::journal::{self, EventTopic, JournalEntry};

use crate::invocation::{Call, CommandReply, error};

/// The word that selects all topics.
const ALL: &str = "all";

const USAGE: &str = "Usage: show events {all|servers|reloads|certificates|limits} [<object>] [since <time>]\n  \
    <object>  only events of this object: 'backend/server', a proxy, a file, or '-' for the process\n  \
    <time>    a period before now with a unit ('10m', '2h'), seconds since 1970, or '2026-01-31T12:00:00Z'\n";

/// Whether `word` selects events instead of a sink.
pub(super) fn is_topic(word: &str) -> bool {
    word == ALL || EventTopic::ALL.iter().any(|topic| topic.name() == word)
}

/// Shows the events selected by the arguments, of which the first is a topic.
pub(super) fn show(call: &Call<'_>) -> CommandReply {
    let topic = EventTopic::ALL.into_iter().find(|topic| topic.name() == call.arg(0));
    let (object, since) = match &call.args[1..] {
        [] => (None, None),
        [object] if object != "since" => (Some(object), None),
        [word, time] if word == "since" => (None, Some(time)),
        [object, word, time] if word == "since" => (Some(object), Some(time)),
        _ => return error(USAGE),
    };
    let now = WallTime::now();
    let Some(since) = since.map_or(Some(WallTime::default()), |word| moment(word, now)) else {
        return error(USAGE);
    };
    let key = |at: WallTime| (at.seconds, at.nanos);
    let wanted = |entry: &JournalEntry| {
        topic.is_none_or(|topic| entry.topic == topic)
            && object.is_none_or(|object| *entry.object == **object)
            && key(entry.at) >= key(since)
    };
    let mut out = "# time topic object count previous_s text\n".to_owned();
    for entry in journal::entries(wanted) {
        line(&mut out, &entry);
    }
    CommandReply::Text(out)
}

fn line(out: &mut String, entry: &JournalEntry) {
    // Writing into a String cannot fail.
    let _ = Date::utc(entry.at.seconds).write_iso(Some(entry.at.micros()), out);
    let _ = write!(out, " {} {} {} ", entry.topic.name(), entry.object, entry.count);
    let _ = match entry.previous {
        Some(previous) => write!(out, "{}", previous.as_secs()),
        None => write!(out, "-"),
    };
    let _ = writeln!(out, " {}", entry.text);
}

/// Parses a period before `now`, or a time.
fn moment(word: &str, now: WallTime) -> Option<WallTime> {
    if let Ok(seconds) = word.parse() {
        return Some(WallTime { seconds, nanos: 0 });
    }
    if word.contains('T') {
        return base::clock::parse_iso_date(word).map(|seconds| WallTime { seconds, nanos: 0 });
    }
    let period = parse_duration(word, DefaultUnit::Seconds).ok()?;
    Some(now.minus(period.max(Duration::from_millis(1))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_periods_seconds_or_dates() {
        let now = WallTime { seconds: 1_000_000, nanos: 5 };
        let seconds = |word: &str| moment(word, now).map(|at| at.seconds);
        assert_eq!(seconds("10m"), Some(1_000_000 - 600));
        assert_eq!(seconds("999000"), Some(999_000));
        assert_eq!(seconds("1970-01-02T00:00:00Z"), Some(86_400));
        assert_eq!(seconds("1970-01-02T01:00:00+01:00"), Some(86_400));
        assert_eq!((seconds("soon"), seconds("1970-13-02T00:00:00Z"), seconds("")), (None, None, None));
    }
}
