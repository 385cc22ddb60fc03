//! State shared by all orders of a process.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use httpclient::ClientSettings;
use plan::Plan;
use plan::acme::AcmeOrder;
use runtime::trace::{self, Keys, TraceLevel, TraceSource};
use state::{EventTopic, Process, journal};
use tls::x509::CertificateFields;
use tokio::sync::Semaphore;

use crate::jws::AccountKey;
use crate::schedule;

/// Writes a line to the logs of the process, with its syslog level.
pub type LogFn = Rc<dyn Fn(u8, &str)>;

/// The maximum number of concurrent requests.
const REQUESTS: usize = 4;

/// Everything needed for orders.
pub(crate) struct OrderContext {
    /// The plan, with the orders and the certificates' users.
    pub(crate) plan: Arc<Plan>,
    /// The process. While it is stopping, nothing is ordered.
    pub(crate) process: Arc<Process>,
    /// The settings of requests.
    pub(crate) settings: ClientSettings,
    /// Receives log messages.
    log: LogFn,
    /// Permits to send a request.
    pub(crate) requests: Semaphore,
    /// Account keys by file.
    accounts: RefCell<HashMap<PathBuf, Rc<AccountKey>>>,
}

impl OrderContext {
    pub(crate) fn new(plan: Arc<Plan>, process: Arc<Process>, settings: ClientSettings, log: LogFn) -> Self {
        Self {
            plan,
            process,
            settings,
            log,
            requests: Semaphore::new(REQUESTS),
            accounts: RefCell::default(),
        }
    }

    /// Writes a log message.
    #[track_caller]
    pub(crate) fn log(&self, order: &AcmeOrder, level: u8, text: &str) {
        if trace::is_on(TraceSource::Acme) {
            let own = std::ptr::from_ref(order) as u64;
            let keys = Keys { own, ..Keys::default() };
            let (events, matters) = match level {
                0..=3 => (trace::acme::TASK, TraceLevel::Error),
                _ => (trace::acme::TASK, TraceLevel::User),
            };
            trace::report(TraceSource::Acme, events, matters, &keys, text, &|_, out| {
                out.push_str("certificate=");
                out.push_str(&order.certificate);
            });
        }
        if level < 5 {
            journal::record(EventTopic::Certificates, &order.certificate, &format!("ACME: {text}"));
        }
        (self.log)(level, &format!("acme: {}: {text}", order.certificate));
    }

    /// Writes an event for tools.
    pub(crate) fn write(&self, event: &str) {
        if let Some(ring) = self.plan.rings.iter().find(|ring| *ring.name == *state::acme::EVENTS) {
            // If the ring is full, it counts the rejected messages itself.
            let _ = ring.write(event.as_bytes());
        }
    }

    /// When to renew the certificate; `None` if renewal is turned off.
    pub(crate) fn due(&self, order: &AcmeOrder) -> Option<i64> {
        if self.plan.global.no_acme_scheduler {
            return None;
        }
        let current = self.plan.tls.certificate(&order.certificate)?;
        let facts = CertificateFields::parse(current.chain.first()?).ok()?;
        Some(schedule::due(facts.validity()))
    }

    /// The account's key, read on first use.
    pub(crate) fn account(&self, order: &AcmeOrder) -> Result<Rc<AccountKey>, String> {
        let own = &order.section.account_key;
        if let Some(known) = self.accounts.borrow().get(&own.file) {
            return Ok(known.clone());
        }
        let failed = |error| format!("the account key {} is {error}.", own.file.display());
        let key = Rc::new(AccountKey::from_pkcs8(&own.pkcs8).map_err(failed)?);
        self.accounts.borrow_mut().insert(own.file.clone(), key.clone());
        Ok(key)
    }
}
