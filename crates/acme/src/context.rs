//! What all orders of a process share.

use std::cell::RefCell;
use std::collections::HashMap;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;

use httpclient::ClientSettings;
use plan::Plan;
use plan::acme::AcmeOrder;
use runtime::trace::{self, Keys, TraceLevel, TraceSource};
use state::Process;
use tls::x509::CertificateFields;
use tokio::sync::Semaphore;

use crate::jws::AccountKey;
use crate::schedule;

/// Takes a line for the logs of the process, with its syslog level.
pub type LogFn = Rc<dyn Fn(u8, &str)>;

/// How many requests are on their way at a time.
const REQUESTS: usize = 4;

/// What ordering needs.
pub(crate) struct OrderContext {
    /// What is ordered, and where certificates go.
    pub(crate) plan: Arc<Plan>,
    /// The process, which orders nothing once it is stopping.
    pub(crate) process: Arc<Process>,
    /// How requests are made.
    pub(crate) settings: ClientSettings,
    /// Who is told what came of it.
    tell: LogFn,
    /// Turns to send a request.
    pub(crate) requests: Semaphore,
    /// Keys of accounts by their files.
    accounts: RefCell<HashMap<PathBuf, Rc<AccountKey>>>,
}

impl OrderContext {
    pub(crate) fn new(plan: Arc<Plan>, process: Arc<Process>, settings: ClientSettings, tell: LogFn) -> Self {
        Self {
            plan,
            process,
            settings,
            tell,
            requests: Semaphore::new(REQUESTS),
            accounts: RefCell::default(),
        }
    }

    /// Tells the logs.
    #[track_caller]
    pub(crate) fn say(&self, order: &AcmeOrder, level: u8, text: &str) {
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
        (self.tell)(level, &format!("acme: {}: {text}", order.certificate));
    }

    /// Writes an event for tools.
    pub(crate) fn write(&self, event: &str) {
        if let Some(ring) = self.plan.rings.iter().find(|ring| *ring.name == *state::acme::EVENTS) {
            // A ring that is full counts what it refuses.
            let _ = ring.write(event.as_bytes());
        }
    }

    /// When the certificate is to be renewed; `None` where nobody does that.
    pub(crate) fn due(&self, order: &AcmeOrder) -> Option<i64> {
        if self.plan.global.no_acme_scheduler {
            return None;
        }
        let current = self.plan.tls.certificate(&order.certificate)?;
        let facts = CertificateFields::parse(current.chain.first()?).ok()?;
        Some(schedule::due(facts.validity()))
    }

    /// The account's key, read once.
    pub(crate) fn account(&self, order: &AcmeOrder) -> Result<Rc<AccountKey>, String> {
        let own = &order.section.account_key;
        if let Some(known) = self.accounts.borrow().get(&own.file) {
            return Ok(known.clone());
        }
        let failed = |error| format!("the account's key {} is {error}.", own.file.display());
        let key = Rc::new(AccountKey::from_pkcs8(&own.pkcs8).map_err(failed)?);
        self.accounts.borrow_mut().insert(own.file.clone(), key.clone());
        Ok(key)
    }
}
