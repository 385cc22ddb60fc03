//! Updates of OCSP responses (manual, 12.7 `ocsp-update`): one task per process queries the certificates' responders when updates
//! are due, and passes the responses on for stapling.
//!
//! `tls::files` decides which certificates are due and when, and validates the responses; `httpclient` transfers the bytes. Work
//! that would take longer than a worker's turn (reading certificates, checking signatures) runs on a separate thread. Called by the
//! binary.

#![forbid(unsafe_code)]

mod report;

use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::clock::{WallTime, now_ms};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use httpclient::{ClientSettings, Request, Url};
use runtime::timer;
use state::{EventTopic, Process, journal};
use tls::files::{Due, Files, UpdateOutcome};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use report::FailedExchange;

/// The maximum length of the URL of a GET request (RFC 5019, 5). For longer ones, POST is used.
const URL_MAX: usize = 255;

/// Maximum size of a response: about one certificate, with the certificates of its signer.
const ANSWER_MAX: usize = 128 << 10;

/// Idle timeout of a responder.
const IDLE: Duration = Duration::from_secs(10);

/// The time limit for a request as a whole, because other certificates wait for it.
const TOTAL: Duration = Duration::from_secs(60);

/// Writes a line to the process log, with its syslog level.
pub type LogFn = Rc<dyn Fn(u8, &str)>;

/// The dependencies of the task.
pub struct Asking {
    /// The certificates.
    pub files: Arc<Files>,
    /// The process. Once it is stopping, no more requests are sent.
    pub process: Arc<Process>,
    /// Settings of the requests.
    pub settings: ClientSettings,
    /// Receives the result of each update.
    pub log: LogFn,
}

/// Runs updates as long as the process exists. A local task of one worker.
pub async fn run(mut asking: Asking) {
    let ClientSettings { idle_timeout, total_timeout, max_body, .. } = &mut asking.settings;
    (*idle_timeout, *total_timeout, *max_body) = (IDLE, TOTAL, ANSWER_MAX);
    let changed = Arc::new(Notify::new());
    let wake = changed.clone();
    asking.files.on_change(Arc::new(move || wake.notify_one()));
    if !asking.files.has_updates() {
        changed.notified().await;
    }
    while !asking.process.stopping.load(Relaxed) {
        while let Some(due) = due(&asking.files).await {
            ask(&asking, due).await;
            if asking.process.stopping.load(Relaxed) {
                return;
            }
        }
        match aside(&asking.files, Files::next_update).await.flatten() {
            None => changed.notified().await,
            Some(next) => {
                let seconds = u64::try_from(next - WallTime::now().seconds).unwrap_or(0);
                if seconds > 0 {
                    // A pause shorter than a second would end too early.
                    let pause = Duration::from_secs(seconds);
                    let _ = timer::timeout(pause, changed.notified()).await;
                }
            }
        }
    }
}

/// Runs a function on the certificates in a separate thread.
async fn aside<R: Send + 'static>(
    files: &Arc<Files>,
    act: impl FnOnce(&Files) -> R + Send + 'static,
) -> Option<R> {
    let files = files.clone();
    spawn_blocking(move || act(&files)).await.ok()
}

async fn due(files: &Arc<Files>) -> Option<Due> {
    let due = |files: &Files| {
        files.next_update()?;
        files.due_update(WallTime::now().seconds)
    };
    aside(files, due).await.flatten()
}

/// Updates one certificate and reports the result.
async fn ask(asking: &Asking, due: Due) {
    let begin = WallTime::now();
    let begin_ms = now_ms();
    let (outcome, failed) = match request(&due) {
        Ok(request) => answer(asking, &due, request).await,
        Err(why) => (UpdateOutcome::Http, Some(FailedExchange::refused(&due, &why))),
    };
    let now = WallTime::now().seconds;
    let (id, ended) = (due.id.clone(), outcome);
    let update = aside(&asking.files, move |files| files.end_update(&id, ended, now)).await.flatten();
    if let Some(update) = update {
        let text = format!("OCSP response: {}.", update.outcome.facts().1);
        journal::record(EventTopic::Certificates, &update.certificate, &text);
        (asking.log)(report::NOTICE, &report::line(&update));
    }
    if let Some(exchange) = failed {
        let took = now_ms().saturating_sub(begin_ms);
        (asking.log)(report::INFO, &exchange.line(begin, took));
    }
}

/// Queries a responder. Returns the outcome, and a log entry for the exchange if it failed.
async fn answer(asking: &Asking, due: &Due, request: Request) -> (UpdateOutcome, Option<FailedExchange>) {
    let response = match httpclient::send(&asking.settings, &request).await {
        Ok(response) => response,
        Err(error) => {
            let exchange = FailedExchange::failed(&request, &error, asking.settings.retries);
            return (UpdateOutcome::Http, Some(exchange));
        }
    };
    if response.status != 200 {
        return (UpdateOutcome::Http, Some(FailedExchange::answered(&request, &response)));
    }
    if !is_answer(response.header("Content-Type").unwrap_or_default()) {
        return (UpdateOutcome::NoHeader, None);
    }
    let due = due.clone();
    let taken = aside(&asking.files, move |files| files.take_update(&due, &response.body)).await;
    (taken.unwrap_or_else(|| UpdateOutcome::Insertion("the thread terminated".to_owned())), None)
}

/// Returns whether a content type is that of OCSP responses (RFC 6960, appendix A.2), ignoring its parameters.
fn is_answer(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/ocsp-response")
}

/// Builds the HTTP request (RFC 6960, appendix A.1).
///
/// # Errors
/// The certificate's responder URL cannot be used.
fn request(due: &Due) -> Result<Request, String> {
    let refused = |error: httpclient::UrlError| format!("{}: {error}", due.uri);
    let encoded: String = STANDARD
        .encode(&due.request)
        .chars()
        .map(|one| match one {
            '+' => "%2B".to_owned(),
            '/' => "%2F".to_owned(),
            '=' => "%3D".to_owned(),
            one => one.to_string(),
        })
        .collect();
    let by_get = format!("{}/{encoded}", due.uri.trim_end_matches('/'));
    if by_get.len() <= URL_MAX {
        return Ok(Request::new("GET", Url::parse(&by_get).map_err(refused)?));
    }
    let url = Url::parse(&due.uri).map_err(refused)?;
    Ok(Request::new("POST", url).body("application/ocsp-request", due.request.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(uri: &str, request: Vec<u8>) -> Due {
        Due { id: String::new(), certificate: "c".into(), uri: uri.to_owned(), request }
    }

    #[test]
    fn short_requests_use_get_and_long_ones_post() {
        let short = request(&due("http://a.test/ocsp/", vec![0xfb, 0xff, 0xfe, 1])).expect("a URL");
        assert_eq!(
            (&*short.method, short.url.to_string()),
            ("GET", "http://a.test/ocsp/%2B%2F%2FB%2FAQ%3D%3D".replace("%2B%2F%2FB%2F", "%2B%2F%2F%2B"))
        );
        let long = request(&due("http://a.test/ocsp/", vec![7; 200])).expect("a URL");
        assert_eq!((&*long.method, long.url.to_string()), ("POST", "http://a.test/ocsp/".to_owned()));
        assert_eq!((long.body.len(), long.headers.len()), (200, 1));
    }

    #[test]
    fn unusable_responder_url_is_an_error() {
        for uri in ["ldap://a.test/", "", "http://", "http://a.test/\r\nx: y"] {
            assert!(request(&due(uri, vec![1])).is_err(), "{uri}");
        }
    }

    #[test]
    fn content_type_ignores_case_and_parameters() {
        assert!(is_answer("Application/OCSP-response; charset=x"));
        assert!(!is_answer("text/html") && !is_answer(""));
    }
}
