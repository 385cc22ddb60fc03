//! Compares the results of two programs for the same case, line by line.

use std::collections::BTreeSet;

use crate::exchanges::case::{Case, Step};
use crate::exchanges::proxy::{FIELDS, Outcome, TIMES, TOLERANCE};

/// A difference: its place, and the text of each program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Difference {
    /// For example `log ST`, `client`, `server`, `counter be eresp`.
    pub(crate) place: String,
    pub(crate) weir: String,
    pub(crate) haproxy: String,
}

impl Difference {
    /// Returns the common form of differences with the same cause, without numbers.
    pub(crate) fn shape(&self) -> String {
        let text = format!("{}: {} | {}", self.place, self.weir, self.haproxy);
        if self.place.starts_with("client") || self.place.starts_with("server") {
            let first =
                |text: &str| text.lines().next().unwrap_or_default().chars().take(60).collect::<String>();
            return format!("{}: {} | {}", self.place, first(&self.weir), first(&self.haproxy));
        }
        text.chars()
            .map(|c| if c.is_ascii_digit() && self.place.starts_with("counter") { '#' } else { c })
            .collect()
    }
}

/// Returns the lines of `ours` and `theirs` from the first to the last that differs.
fn middle(ours: &[String], theirs: &[String]) -> (String, String) {
    let start = ours.iter().zip(theirs).take_while(|(one, other)| one == other).count();
    let (one, other) = (&ours[start..], &theirs[start..]);
    let end = one.iter().rev().zip(other.iter().rev()).take_while(|(one, other)| one == other).count();
    (one[..one.len() - end].join("\n"), other[..other.len() - end].join("\n"))
}

/// Returns whether the connections carried the same lines overall.
fn has_same_lines(ours: &[Vec<String>], theirs: &[Vec<String>]) -> bool {
    let lines = |all: &[Vec<String>]| {
        let mut lines = all.concat();
        // Which connection is open at the end also depends on chance.
        lines.retain(|line| line != "(open)" && line != "(over)");
        lines.sort();
        lines
    };
    lines(ours) == lines(theirs)
}

/// Times of this length or longer are ended by a client's timeout.
const ENDLESS: i64 = 3300;

/// The additional time until the kernel accepts data for a peer that does not read, because it probes for room after 200 ms (RFC
/// 9293 section 3.8.6.1).
const PROBE: i64 = 250;

/// Returns the tolerance for times of a case. If a peer does not read for a while, a timeout starts with the last byte that the
/// kernel accepted for that peer.
fn tolerance(case: &Case) -> i64 {
    let is_idle = |step: &Step| matches!(step, Step::Idle(_));
    let mut servers = case.servers.iter().flat_map(|server| &server.answers).flat_map(|one| &one.steps);
    let waits = case.clients.iter().flatten().any(is_idle) || servers.any(is_idle);
    TOLERANCE + if waits { PROBE } else { 0 }
}

fn times_agree(ours: i64, theirs: i64, tolerance: i64) -> bool {
    ours == theirs
        || ours >= 0 && theirs >= 0 && (ours - theirs).abs() <= tolerance
        || ours >= ENDLESS && theirs >= ENDLESS
}

/// Returns whether a counter is a time, which is compared with the tolerance.
fn is_time(name: &str) -> bool {
    name.ends_with("time_max")
}

pub(crate) fn differences(case: &Case, weir: &Outcome, haproxy: &Outcome) -> Vec<Difference> {
    let tolerance = tolerance(case);
    let mut all = Vec::new();
    let mut note =
        |place: String, weir: String, haproxy: String| all.push(Difference { place, weir, haproxy });
    for number in 0..case.clients.len() {
        let empty = Vec::new();
        let of = |outcome: &Outcome| outcome.received.clients.get(number).unwrap_or(&empty).clone();
        let (ours, theirs) = middle(&of(weir), &of(haproxy));
        if ours != theirs {
            note("client".into(), ours, theirs);
        }
    }
    for number in 0..case.servers.len() {
        // Which of two connections comes first depends on chance, and so does which of two idle ones is reused.
        let of = |outcome: &Outcome| {
            let mut all = outcome.received.servers.get(number).cloned().unwrap_or_default();
            all.sort();
            all
        };
        let (mut ours, mut theirs) = (of(weir), of(haproxy));
        if ours.len() == theirs.len() && ours.len() > 1 && has_same_lines(&ours, &theirs) {
            (ours, theirs) = Default::default();
        }
        if ours.len() != theirs.len() {
            note("server connections".into(), ours.len().to_string(), theirs.len().to_string());
        }
        for (ours, theirs) in ours.iter().zip(&theirs) {
            let (ours, theirs) = middle(ours, theirs);
            if ours != theirs {
                note("server".into(), ours, theirs);
            }
        }
    }
    if weir.logs.len() != haproxy.logs.len() {
        let lines = |outcome: &Outcome| {
            let lines: Vec<String> =
                outcome.logs.iter().map(|log| format!("{:?} {}", log.times, log.fields.join("|"))).collect();
            format!("{} lines\n{}", lines.len(), lines.join("\n"))
        };
        note("log lines".into(), lines(weir), lines(haproxy));
    } else {
        for (ours, theirs) in weir.logs.iter().zip(&haproxy.logs) {
            for (place, name) in FIELDS.iter().enumerate() {
                let of = |fields: &[String]| fields.get(place).cloned().unwrap_or_default();
                if of(&ours.fields) != of(&theirs.fields) {
                    note(format!("log {name}"), of(&ours.fields), of(&theirs.fields));
                }
            }
            for (place, name) in TIMES.iter().enumerate() {
                let of = |times: &[i64]| times.get(place).copied().unwrap_or(i64::MIN);
                if !times_agree(of(&ours.times), of(&theirs.times), tolerance) {
                    let shown =
                        |times: &[i64]| times.iter().map(i64::to_string).collect::<Vec<_>>().join("/");
                    note(format!("log {name}"), shown(&ours.times), shown(&theirs.times));
                }
            }
        }
    }
    let keys: BTreeSet<_> = weir.counters.keys().chain(haproxy.counters.keys()).collect();
    for key in keys {
        let of = |outcome: &Outcome| outcome.counters.get(key).cloned().unwrap_or_default();
        let (ours, theirs) = (of(weir), of(haproxy));
        let number = |text: &str| text.parse().unwrap_or(-1);
        if ours != theirs && !(is_time(&key.1) && times_agree(number(&ours), number(&theirs), tolerance)) {
            note(format!("counter {} {}", key.0, key.1), ours, theirs);
        }
    }
    all
}
