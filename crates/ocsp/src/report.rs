//! Log lines about updates (manual, 12.7 `ocsp-update`): one per update, and one in the HTTP log format if the exchange itself
//! failed.

use std::fmt::Write;

use base::clock::{Date, WallTime};
use httpclient::{Error, ErrorKind, Request, Response};
use tls::files::{Due, Update};

/// The syslog level of update results.
pub(crate) const NOTICE: u8 = 5;

/// The syslog level of failed exchanges.
pub(crate) const INFO: u8 = 6;

/// Returns `<OCSP-UPDATE> <certificate> <status> "<text>" <failures> <successes>`.
pub(crate) fn line(update: &Update) -> String {
    let Update { certificate, failures, successes, .. } = update;
    let (number, text) = update.outcome.facts();
    format!("<OCSP-UPDATE> {certificate} {number} \"{text}\" {failures} {successes}")
}

/// A failed exchange.
pub(crate) struct FailedExchange {
    status: u16,
    bytes: usize,
    /// The termination state, as in HTTP logs.
    ending: &'static str,
    retries: u32,
    request: String,
}

impl FailedExchange {
    /// The responder answered with an HTTP response that is not an OCSP response.
    pub(crate) fn answered(request: &Request, response: &Response) -> Self {
        let (status, bytes) = (response.status, response.body.len());
        Self { status, bytes, ending: "----", retries: 0, request: show(request) }
    }

    /// The request failed without a response.
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

    /// No request could be sent.
    pub(crate) fn refused(due: &Due, why: &str) -> Self {
        let request = format!("{} ({why})", due.uri.escape_default());
        Self { status: 400, bytes: 0, ending: "PR--", retries: 0, request }
    }

    /// Returns the log line of an exchange that began at `begin` and took `ms`.
    pub(crate) fn line(&self, begin: WallTime, ms: u64) -> String {
        let Self { status, bytes, ending, retries, request } = self;
        let mut line = "-:- [".to_owned();
        // Writing to a string cannot fail.
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
