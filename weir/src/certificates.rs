//! Certificates that have expired or expire soon: messages at start, and events while the process runs.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base::clock::{Date, WallTime};
use diag::Severity;
use proxy::Shared;
use runtime::timer;
use state::{EventTopic, journal, transition};
use tls::files::Files;
use tls::keygen;
use tokio::task::AbortHandle;

use crate::checks;
use crate::messages::MessageFormat;

/// How long before the end of its validity a certificate is reported, in seconds: a week.
const SOON: i64 = 7 * 86_400;

/// The interval of checking the certificates.
const REST: Duration = Duration::from_secs(3600);

/// The maximum number of messages at start.
const MOST: usize = 20;

/// A certificate that needs attention.
struct ExpiringCertificate {
    name: Box<str>,
    /// The end of its validity, in seconds since 1970.
    end: i64,
    has_expired: bool,
}

impl ExpiringCertificate {
    fn text(&self, now: i64) -> String {
        let mut date = String::new();
        // Writing into a String cannot fail.
        let _ = Date::utc(self.end).write_iso(None, &mut date);
        let name = &self.name;
        if self.has_expired {
            return format!(
                "Certificate '{name}' expired on {date}: clients reject it. Replace it, then reload."
            );
        }
        let days = (self.end - now) / 86_400;
        format!("Certificate '{name}' expires on {date}, in {days} days. Replace it, then reload.")
    }

    fn severity(&self) -> Severity {
        if self.has_expired { Severity::Warning } else { Severity::Notice }
    }
}

/// Returns the certificates that have expired or expire soon, in the order of their names. Placeholders for certificates that are
/// being ordered are left out.
fn expiring(files: &Files, now: i64) -> Vec<ExpiringCertificate> {
    let certificates = files.certificates().into_iter().filter_map(|name| files.certificate(&name));
    certificates
        .filter(|own| own.validity.1 < now + SOON && !keygen::is_temporary(own))
        .map(|own| {
            let end = own.validity.1;
            ExpiringCertificate { name: own.name.clone(), end, has_expired: end < now }
        })
        .collect()
}

/// Reports certificates that have expired or expire soon, for a start or a check of the configuration. These messages do not affect
/// the exit code or `zero-warning`.
pub(crate) fn report(files: &Files, messages: MessageFormat) {
    let now = WallTime::now().seconds;
    let found = expiring(files, now);
    for certificate in found.iter().take(MOST) {
        messages.say(certificate.severity(), &certificate.text(now));
    }
    if found.len() > MOST {
        let text = format!("{} more certificates have expired or expire soon.", found.len() - MOST);
        messages.say(Severity::Warning, &text);
    }
}

/// The certificates recorded as events, with the end of the validity and whether they had expired.
static RECORDED: Mutex<BTreeMap<Box<str>, (i64, bool)>> = Mutex::new(BTreeMap::new());

/// Starts the task that records an event and a log message when a certificate is about to expire, and when it has expired.
pub(crate) fn watch(shared: &Arc<Shared>) -> Option<AbortHandle> {
    shared.plan.tls.certificates().first()?;
    let shared = shared.clone();
    let task = tokio::task::spawn_local(async move {
        loop {
            let own = shared.clone();
            // There may be many certificates.
            let looked = tokio::task::spawn_blocking(move || record(&own.plan.tls)).await;
            for text in looked.unwrap_or_default() {
                checks::log_global(&shared, transition::WARNING, &text);
            }
            timer::sleep(REST).await;
        }
    });
    Some(task.abort_handle())
}

/// Records new events, and returns their texts.
fn record(files: &Files) -> Vec<String> {
    let now = WallTime::now().seconds;
    let mut recorded = RECORDED.lock().unwrap_or_else(PoisonError::into_inner);
    let before = std::mem::take(&mut *recorded);
    let mut texts = Vec::new();
    for certificate in expiring(files, now) {
        let state = (certificate.end, certificate.has_expired);
        if before.get(&certificate.name) != Some(&state) {
            let text = certificate.text(now);
            journal::record(EventTopic::Certificates, &certificate.name, &text);
            texts.push(text);
        }
        recorded.insert(certificate.name, state);
    }
    texts
}
