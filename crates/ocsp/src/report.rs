//! The lines that tell of updates (manual, 12.7 `ocsp-update`): one for each, and one in the format
//! of HTTP's logs where the exchange itself failed.

use std::fmt::Write;

use base::clock::{Date, WallTime};
use httpclient::{Error, ErrorKind, Request, Response};
use tls::files::{Due, Update};

/// The syslog level of what came of an update.
pub(crate) const NOTICE: u8 = 5;

/// The syslog level of exchanges that failed.
pub(crate) const INFO: u8 = 6;

/// `<OCSP-UPDATE> <certificate> <status> "<text>" <failures> <successes>`
pub(crate) fn line(update: &Update) -> String {
    let Update { certificate, failures, successes, .. } = update;
    let (number, text) = update.outcome.facts();
    format!("<OCSP-UPDATE> {certificate} {number} \"{text}\" {failures} {successes}")
}

/// An exchange that came to nothing.
pub(crate) struct FailedExchange {
    status: u16,
    bytes: usize,
    /// How it ended, in the letters of HTTP's logs.
    ending: &'static str,
    retries: u32,
    request: String,
}

impl FailedExchange {
    /// The responder answered with a status of HTTP that is no answer.
    pub(crate) fn answered(request: &Request, response: &Response) -> Self {
        let (status, bytes) = (response.status, response.body.len());
        Self { status, bytes, ending: "----", retries: 0, request: show(request) }
    }

    /// There was no response.
    pub(crate) fn failed(request: &Request, error: &Error, retries: u32) -> Self {
        let (status, ending, retries) = match error.kind {
            ErrorKind::Name => (503, "SC--", 0),
            ErrorKind::Connect => (503, "SC--", retries),
            ErrorKind::Tls => (503, "SC--", 0),
            ErrorKind::Timeout => (504, "sH--", 0),
            ErrorKind::Broken => (502, "SH--", 0),
            ErrorKind::Protocol | ErrorKind::TooLarge => (502, "PH--", 0),
            ErrorKind::Request => (400, "PR--", 0),
        };
        Self { status, bytes: 0, ending, retries, request: show(request) }
    }

    /// Nobody could be asked.
    pub(crate) fn refused(due: &Due, why: &str) -> Self {
        let request = format!("{} ({why})", due.uri.escape_default());
        Self { status: 400, bytes: 0, ending: "PR--", retries: 0, request }
    }

    /// The line, of an exchange that began at `begin` and took `ms`.
    pub(crate) fn line(&self, begin: WallTime, ms: u64) -> String {
        let Self { status, bytes, ending, retries, request } = self;
        let mut line = "-:- [".to_owned();
        // Writing to a string does not fail.
        let _ = Date::local(begin.seconds).write_log(begin.millis(), &mut line);
        let _ = write!(
            line,
            "] <OCSP-UPDATE> -/- 0/0/-1/-1/{ms} {status} {bytes} - - {ending} 0/0/0/0/{retries} 0/0 {{}} \
             \"{request}\""
        );
        line
    }
}

fn show(request: &Request) -> String {
    format!("{} {} HTTP/1.1", request.method, request.url)
}
