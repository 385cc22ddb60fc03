//! Trace points (`trace check` on the runtime socket): the start and end of checks.
//!
//! A disabled trace point costs one comparison. Called by [`Subject::check`](crate::Subject).

use std::fmt::Write;

use runtime::trace::{self, Keys, TraceLevel, TraceSource, check};

use crate::Subject;
use crate::outcome::{CheckOutcome, CheckVerdict};

fn keys(subject: &Subject) -> Keys {
    let number = |of: *const ()| of as usize as u64;
    Keys {
        backend: number(std::sync::Arc::as_ptr(&subject.backend().state).cast()),
        server: number(std::sync::Arc::as_ptr(subject.server()).cast()),
        ..Keys::default()
    }
}

fn write_server(subject: &Subject, out: &mut String) {
    // Writing to a string cannot fail.
    let _ = write!(out, "server={}/{}", subject.backend().state.name, subject.server().name);
}

/// Reports that a check begins.
#[inline]
#[track_caller]
pub(crate) fn begins(subject: &Subject) {
    if trace::is_on(TraceSource::Check) {
        let (events, level) = (check::START, TraceLevel::State);
        trace::report(TraceSource::Check, events, level, &keys(subject), "check started", &|_, out| {
            write_server(subject, out);
        });
    }
}

/// A check is over.
#[inline]
#[track_caller]
pub(crate) fn ends(subject: &Subject, outcome: &CheckOutcome) {
    if trace::is_on(TraceSource::Check) {
        report(subject, outcome);
    }
}

#[cold]
#[track_caller]
fn report(subject: &Subject, outcome: &CheckOutcome) {
    let (events, level, message) = match outcome.verdict {
        CheckVerdict::Failed => (check::END | check::ERROR, TraceLevel::Error, "check failed"),
        CheckVerdict::Passed | CheckVerdict::Conditional => {
            (check::END | check::SUCCESS, TraceLevel::User, "check passed")
        }
    };
    trace::report(TraceSource::Check, events, level, &keys(subject), message, &|verbosity, out| {
        write_server(subject, out);
        let _ = write!(out, " status={} ms={}", outcome.status, outcome.duration.as_millis());
        if let Some(code) = outcome.code {
            let _ = write!(out, " code={code}");
        }
        if verbosity.shows_fields() && !outcome.info.is_empty() {
            let _ = write!(out, " info={:?}", outcome.info);
        }
    });
}
