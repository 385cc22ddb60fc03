//! Updates of OCSP answers (manual, 12.7 `ocsp-update`): one task for the process that asks the
//! responders of certificates when it is time, and has what they answer stapled.
//!
//! Which certificates, when, and whether an answer is to be believed is `tls::files`; how bytes come
//! and go is `client`. What takes longer than a worker's turn (reading certificates, checking
//! signatures) runs on a thread of its own. Called by the binary.

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
use state::Process;
use tls::files::{Due, Files, UpdateOutcome};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use report::FailedExchange;

/// The longest URL of a question by GET (RFC 5019, 5); longer ones are asked by POST.
const URL_MAX: usize = 255;

/// The longest answer: one about one certificate, with the certificates of who signed it.
const ANSWER_MAX: usize = 128 << 10;

/// How long a responder may say nothing.
const IDLE: Duration = Duration::from_secs(10);

/// How long an answer may take in all: others wait for it.
const TOTAL: Duration = Duration::from_secs(60);

/// Takes a line for the logs of the process, with its syslog level.
pub type LogFn = Rc<dyn Fn(u8, &str)>;

/// What asking needs.
pub struct Asking {
    /// The certificates.
    pub files: Arc<Files>,
    /// The process, which asks nobody once it is stopping.
    pub process: Arc<Process>,
    /// How requests are made.
    pub settings: ClientSettings,
    /// Who is told what came of it.
    pub tell: LogFn,
}

/// Asks for as long as the process runs. A local task of one worker.
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
                    // Less than the second that it is about would be too early.
                    let pause = Duration::from_secs(seconds);
                    let _ = timer::timeout(pause, changed.notified()).await;
                }
            }
        }
    }
}

/// Does something with the certificates on a thread of its own.
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

/// Asks about one certificate, and tells what came of it.
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
        (asking.tell)(report::NOTICE, &report::line(&update));
    }
    if let Some(exchange) = failed {
        let took = now_ms().saturating_sub(begin_ms);
        (asking.tell)(report::INFO, &exchange.line(begin, took));
    }
}

/// What a responder answers; what the log says of the exchange if that failed.
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
    (taken.unwrap_or_else(|| UpdateOutcome::Insertion("the thread ended".to_owned())), None)
}

/// Whether a type is that of answers (RFC 6960, appendix A.2), whatever its parameters.
fn is_answer(content_type: &str) -> bool {
    let kind = content_type.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/ocsp-response")
}

/// The question as a request (RFC 6960, appendix A.1).
///
/// # Errors
/// The certificate names no responder that can be asked.
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
    fn short_questions_are_part_of_the_url_and_long_ones_a_body() {
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
    fn a_responder_that_cannot_be_asked_is_an_error() {
        for uri in ["ldap://a.test/", "", "http://", "http://a.test/\r\nx: y"] {
            assert!(request(&due(uri, vec![1])).is_err(), "{uri}");
        }
    }

    #[test]
    fn types_of_answers_are_known_in_any_case_with_parameters() {
        assert!(is_answer("Application/OCSP-response; charset=x"));
        assert!(!is_answer("text/html") && !is_answer(""));
    }
}
