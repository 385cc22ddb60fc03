//! Periodic updates of OCSP responses (manual, 12.7 `ocsp-update`): for which certificates they are enabled, when each update is
//! due, and the last outcome. The task that does the I/O calls [`Files::due_update`], sends the request, and passes the response
//! back.
//!
//! The certificates with updates are determined again for each query, because they change at run time. Errors have HAProxy's
//! wording.

use std::collections::BTreeMap;
use std::sync::Arc;

use base::clock::WallTime;

use super::{Files, FilesInner};
use crate::ocsp::{self, Response};
use crate::store::Certificate;
use crate::x509::CertificateFields;

/// The next response is requested this many seconds before the current one expires.
const MARGIN: i64 = 60;

/// The base of the exponential backoff in seconds: the delay is twice this after the first failure, four times after the second,
/// and so on.
const AFTER_FAILURE: i64 = 60;

/// The settings of the global section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpdateSettings {
    /// `ocsp-update.mode`: the default for certificates without a setting.
    pub default: bool,
    /// `ocsp-update.disable`: disables all updates.
    pub disabled: bool,
    /// `ocsp-update.mindelay`: minimum seconds from a response to the next request.
    pub min_delay: i64,
    /// `ocsp-update.maxdelay`: maximum seconds from a response to the next request.
    pub max_delay: i64,
}

impl Default for UpdateSettings {
    fn default() -> Self {
        Self { default: false, disabled: false, min_delay: 300, max_delay: 3600 }
    }
}

/// The outcome of a request, with details if any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum UpdateOutcome {
    /// No request has been made yet.
    #[default]
    Unknown,
    /// The response is stapled.
    Updated,
    /// The responder sent no response, or an HTTP error.
    Http,
    /// The response has a different content type.
    NoHeader,
    /// The response failed validation.
    Check(String),
    /// The response cannot be stapled.
    Insertion(String),
}

impl UpdateOutcome {
    /// Returns the number and the text of the outcome (management manual, 9.3 `show ssl ocsp-updates`).
    pub fn facts(&self) -> (u8, String) {
        let more = |text: &str, why: &str| {
            if why.is_empty() { text.to_owned() } else { format!("{text} ({why})") }
        };
        match self {
            Self::Unknown => (0, "Unknown".to_owned()),
            Self::Updated => (1, "Update successful".to_owned()),
            Self::Http => (2, "HTTP error".to_owned()),
            Self::NoHeader => (3, "Missing \"ocsp-response\" header".to_owned()),
            Self::Check(why) => (4, more("OCSP response check failure", why)),
            Self::Insertion(why) => (5, more("Error during insertion", why)),
        }
    }
}

/// A certificate with updates.
#[derive(Clone, Debug, Default)]
pub struct Update {
    /// The certificate's identifier in OCSP requests and responses, in hexadecimal digits.
    pub id: String,
    /// The name of the first certificate with that identifier.
    pub certificate: Box<str>,
    /// When the next request is due, in seconds since 1970.
    pub next: i64,
    /// When a response was last stapled.
    pub last: Option<i64>,
    /// The number of stapled responses.
    pub successes: u32,
    /// The number of failed requests.
    pub failures: u32,
    /// The outcome of the last request.
    pub outcome: UpdateOutcome,
}

/// A request that is due.
#[derive(Clone, Debug)]
pub struct Due {
    /// The identifier of the certificate.
    pub id: String,
    /// The name of the certificate.
    pub certificate: Box<str>,
    /// The responder's URI.
    pub uri: String,
    /// The OCSP request, as DER.
    pub request: Vec<u8>,
}

/// Called after a change that may make a request due earlier.
pub type Wake = Arc<dyn Fn() + Send + Sync>;

/// The update settings of certificates, and those with updates.
#[derive(Default)]
pub(super) struct Updates {
    pub(super) settings: UpdateSettings,
    /// The explicit `on` or `off` settings of certificates by name. For other certificates, records that they are used without a
    /// setting.
    modes: BTreeMap<Box<str>, UpdateMode>,
    entries: BTreeMap<String, UpdateEntry>,
    wake: Option<Wake>,
}

impl std::fmt::Debug for Updates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Updates").field("entries", &self.entries).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug)]
struct UpdateMode {
    explicit: Option<bool>,
    /// Whether a `crt-store` made the setting, which then applies to uses without their own setting.
    of_store: bool,
}

#[derive(Debug, Default)]
struct UpdateEntry {
    update: Update,
    /// The number of failed requests since the last stapled response.
    in_vain: u32,
    /// Whether the update exists for a single request (`update ssl ocsp-response`).
    is_once: bool,
    /// Whether a request is in progress.
    is_asked: bool,
}

fn word(mode: bool) -> &'static str {
    if mode { "on" } else { "off" }
}

impl Updates {
    /// Returns the rest of the message about contradictory settings of a certificate.
    fn conflict(&self, before: UpdateMode, explicit: Option<bool>) -> String {
        let shown = |explicit: Option<bool>| match explicit {
            Some(mode) => format!("'{}'", word(mode)),
            None => format!("'default' (ocsp-update.mode {})", word(self.settings.default)),
        };
        format!(
            "different parameter 'ocsp-update' : previously {} vs {}",
            shown(before.explicit),
            shown(explicit)
        )
    }

    /// Whether a certificate has updates, by its own setting or by the default.
    pub(super) fn is_on(&self, name: &str) -> bool {
        let explicit = self.modes.get(name).and_then(|mode| mode.explicit);
        !self.settings.disabled && explicit.unwrap_or(self.settings.default)
    }

    /// Returns when the next request is due after a response.
    fn after(&self, response: &Response, now: i64) -> i64 {
        let end = response.next_update.map_or(i64::MAX, |next| next.saturating_sub(MARGIN));
        let (min, max) = (self.settings.min_delay, self.settings.max_delay);
        end.clamp(now.saturating_add(min), now.saturating_add(max.max(min)))
    }
}

/// Returns a certificate's identifier, responder URI, and OCSP request.
fn question(certificate: &Certificate) -> Option<(String, String, Vec<u8>)> {
    let (own, issuer) = (certificate.chain.first()?, certificate.issuer_der()?);
    let uri = CertificateFields::parse(own).ok()?.ocsp_uri()?.to_owned();
    let id = ocsp::certificate_id(own, issuer)?.iter().map(|byte| format!("{byte:02x}")).collect();
    Some((id, uri, ocsp::request(own, issuer)?))
}

impl FilesInner {
    /// Records the setting of a certificate where it is used, or with `of_store` where it is loaded.
    pub(super) fn note_mode(
        &mut self,
        name: &str,
        explicit: Option<bool>,
        of_store: bool,
    ) -> Result<(), String> {
        let updates = &mut self.updates;
        let Some(before) = updates.modes.get(name).copied() else {
            updates.modes.insert(name.into(), UpdateMode { explicit, of_store });
            return Ok(());
        };
        let effective = |explicit: Option<bool>| explicit.unwrap_or(updates.settings.default);
        if effective(before.explicit) == effective(explicit) || before.of_store && explicit.is_none() {
            return Ok(());
        }
        Err(updates.conflict(before, explicit))
    }

    /// Whether updates are enabled for a certificate.
    pub(super) fn asks_about(&self, name: &str, certificate: &Certificate) -> bool {
        let updates = &self.updates;
        updates.modes.contains_key(name) && updates.is_on(name) && question(certificate).is_some()
    }

    pub(super) fn wake(&self) {
        if let Some(wake) = &self.updates.wake {
            wake();
        }
    }

    /// Forgets a removed certificate.
    pub(super) fn forget_mode(&mut self, name: &str) {
        self.updates.modes.remove(name);
    }

    /// Returns the listeners' certificates with updates enabled, by name.
    fn wanted(&self) -> BTreeMap<Box<str>, Arc<Certificate>> {
        let mut wanted = BTreeMap::new();
        if self.updates.settings.disabled {
            return wanted;
        }
        for line in &self.users.lines {
            for (_, entry) in line.acceptor.entries() {
                let certificate = &entry.certificate;
                if self.updates.is_on(&certificate.name) && !wanted.contains_key(&certificate.name) {
                    wanted.insert(certificate.name.clone(), certificate.clone());
                }
            }
        }
        wanted
    }

    /// Determines the certificates with updates.
    fn gather(&mut self, now: i64) {
        let mut found = BTreeMap::new();
        for (name, certificate) in self.wanted() {
            if let Some((id, ..)) = question(&certificate) {
                found.entry(id).or_insert((name, certificate));
            }
        }
        self.updates.entries.retain(|id, entry| entry.is_once || entry.is_asked || found.contains_key(id));
        for (id, (name, certificate)) in found {
            if let Some(known) = self.updates.entries.get_mut(&id) {
                known.is_once = false;
                continue;
            }
            let next = certificate.ocsp.as_ref().map_or(now, |response| self.updates.after(response, now));
            let update = Update { id: id.clone(), certificate: name, next, ..Update::default() };
            self.updates.entries.insert(id, UpdateEntry { update, ..UpdateEntry::default() });
        }
    }
}

impl Files {
    /// Stores the settings of the global section.
    pub fn set_update_settings(&self, settings: UpdateSettings) {
        self.inner().updates.settings = settings;
    }

    /// Sets the callback for changes of certificates.
    pub fn on_change(&self, wake: Wake) {
        self.inner().updates.wake = Some(wake);
    }

    /// Records a line's setting for a certificate: `ocsp-update on` or `off`, or none.
    ///
    /// # Errors
    /// The setting contradicts other uses. The text is the end of the message.
    pub fn note_update_mode(&self, name: &str, explicit: Option<bool>, of_store: bool) -> Result<(), String> {
        self.inner().note_mode(name, explicit, of_store)
    }

    /// Whether updates may be enabled for any certificate.
    pub fn has_updates(&self) -> bool {
        let updates = &self.inner().updates;
        let explicit = updates.modes.values().any(|mode| mode.explicit == Some(true));
        !updates.settings.disabled && (updates.settings.default || explicit)
    }

    /// Returns when the next request is due, in seconds since 1970.
    pub fn next_update(&self) -> Option<i64> {
        let mut inner = self.inner();
        inner.gather(WallTime::now().seconds);
        let entries = inner.updates.entries.values().filter(|entry| !entry.is_asked);
        entries.map(|entry| entry.update.next).min()
    }

    /// Returns the longest overdue request at `now`, and marks it as in progress until [`Files::end_update`].
    pub fn due_update(&self, now: i64) -> Option<Due> {
        let mut inner = self.inner();
        let entries = inner.updates.entries.values_mut();
        let due = entries.filter(|entry| !entry.is_asked && entry.update.next <= now);
        let entry = due.min_by_key(|entry| entry.update.next)?;
        entry.is_asked = true;
        let (id, name) = (entry.update.id.clone(), entry.update.certificate.clone());
        let certificate = inner.certificates.get(&name).and_then(|stored| stored.certificate.clone());
        // A certificate that was replaced has a new identifier.
        let known = certificate.as_deref().and_then(question).filter(|(own, ..)| *own == id);
        let Some((_, uri, request)) = known else {
            inner.updates.entries.remove(&id);
            return None;
        };
        Some(Due { id, certificate: name, uri, request })
    }

    /// Validates the response to a request and, if it is valid, staples it everywhere. This checks signatures and rebuilds engine
    /// configurations, so it must not run on a worker.
    pub fn take_update(&self, due: &Due, answer: &[u8]) -> UpdateOutcome {
        let now = WallTime::now().seconds;
        let Some(certificate) = self.certificate(&due.certificate) else {
            return UpdateOutcome::Insertion("the certificate was removed".to_owned());
        };
        let check = || {
            let response = Response::parse(answer)?;
            let own = certificate.chain.first().ok_or("no certificate")?;
            let issuer = certificate.issuer_der().ok_or("OCSP issuer not found")?;
            if !response.is_about(own, issuer) {
                return Err("OCSP single response: Certificate ID does not match certificate and issuer");
            }
            response.verify(issuer, now)
        };
        if let Err(why) = check() {
            return UpdateOutcome::Check(why.to_owned());
        }
        match self.set_response(answer) {
            Ok(()) => UpdateOutcome::Updated,
            Err(why) => UpdateOutcome::Insertion(why),
        }
    }

    /// Records the outcome of a request. Returns the update to report.
    pub fn end_update(&self, id: &str, outcome: UpdateOutcome, now: i64) -> Option<Update> {
        let mut inner = self.inner();
        let name = inner.updates.entries.get(id)?.update.certificate.clone();
        let stored = inner.certificates.get(&name).and_then(|stored| stored.certificate.as_ref());
        let next =
            stored.and_then(|own| own.ocsp.as_ref()).map(|response| inner.updates.after(response, now));
        let max_delay = inner.updates.settings.max_delay;
        let entry = inner.updates.entries.get_mut(id)?;
        let update = &mut entry.update;
        if outcome == UpdateOutcome::Updated {
            update.successes = update.successes.saturating_add(1);
            (entry.in_vain, update.last) = (0, Some(now));
            update.next = next.unwrap_or(now + max_delay);
        } else {
            update.failures = update.failures.saturating_add(1);
            entry.in_vain = entry.in_vain.saturating_add(1);
            let pause = if entry.in_vain < 32 { AFTER_FAILURE << entry.in_vain } else { max_delay };
            update.next = now + pause.min(max_delay);
        }
        update.outcome = outcome;
        let copy = update.clone();
        entry.is_asked = false;
        if entry.is_once {
            inner.updates.entries.remove(id);
        }
        Some(copy)
    }

    /// `update ssl ocsp-response`: requests a response for a certificate now, even if updates are disabled.
    ///
    /// # Errors
    /// The reason why no request can be made, as lines.
    pub fn update_now(&self, name: &str) -> Result<(), String> {
        let mut inner = self.inner();
        let refused = |why: &str| format!("{why}Can't send ocsp request for {name}!\n");
        let stored = inner.certificates.get(name).ok_or_else(|| {
            refused(
                "Unknown certificate! 'update ssl ocsp-response' expects an already known certificate file name.\n",
            )
        })?;
        let certificate = stored.certificate.clone();
        let asked = certificate.as_deref().and_then(question);
        let (id, ..) = asked.ok_or_else(|| {
            refused("'update ssl ocsp-response' only works on certificates that already have a known OCSP response.\n")
        })?;
        let fresh = || {
            let update = Update { id: id.clone(), certificate: name.into(), ..Update::default() };
            UpdateEntry { update, is_once: true, ..UpdateEntry::default() }
        };
        let entry = inner.updates.entries.entry(id.clone()).or_insert_with(fresh);
        entry.update.next = WallTime::now().seconds;
        entry.update.outcome = UpdateOutcome::Unknown;
        inner.wake();
        Ok(())
    }

    /// Returns all certificates with updates, in order of their next request.
    pub fn updates(&self) -> Vec<Update> {
        let mut inner = self.inner();
        inner.gather(WallTime::now().seconds);
        let mut all: Vec<_> = inner.updates.entries.values().map(|entry| entry.update.clone()).collect();
        all.sort_by(|one, other| (one.next, &one.id).cmp(&(other.next, &other.id)));
        all
    }
}
