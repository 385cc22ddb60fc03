//! One certificate order, without sockets or clock (RFC 8555, chapter 7): decides which request is due, and processes the
//! responses.
//!
//! [`Engine::next`] returns the next action; [`Engine::answered`] and [`Engine::unanswered`] process the outcome of a request.
//! Between the authorizations and their validation the caller sets up the challenges and then calls [`Engine::challenges_ready`].
//! Times are milliseconds of the caller's clock. Called by `task`.

mod answering;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::rc::Rc;
use std::time::Duration;

use plan::acme::{Challenge, Eab};
use serde_json::{Value, json};

use crate::answers::AcmeDirectory;
use crate::jws::{AccountKey, base64url};

/// The number of attempts for a request that gets no usable response.
const TRIES: u32 = 5;
/// The number of consecutive rejected nonces that are tolerated.
const NONCES: u32 = 10;
/// The maximum number of polls for one object.
const POLLS: u32 = 60;
/// The first and the longest polling interval, unless the authority specifies one.
const POLL_MIN: Duration = Duration::from_millis(500);
const POLL_MAX: Duration = Duration::from_secs(10);
/// The longest pause that an authority may request within an order.
const PAUSE_MAX: Duration = Duration::from_secs(300);

/// The parameters of an order.
pub(crate) struct Wanted {
    pub(crate) directory: String,
    pub(crate) contact: Option<String>,
    pub(crate) eab: Option<Eab>,
    pub(crate) profile: Option<String>,
    pub(crate) challenge: Challenge,
    pub(crate) domains: Vec<String>,
    pub(crate) addresses: Vec<IpAddr>,
    /// The certificate signing request (PKCS #10) in DER.
    pub(crate) csr: Vec<u8>,
}

/// A request to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ask {
    /// `GET`, `HEAD` or `POST`.
    pub(crate) method: &'static str,
    pub(crate) url: String,
    /// The body of a `POST`, a signed request.
    pub(crate) body: Vec<u8>,
}

/// A response.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    /// `Replay-Nonce`.
    pub(crate) nonce: Option<String>,
    /// `Location`.
    pub(crate) location: Option<String>,
    /// The time from `Retry-After`, relative to now.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Vec<u8>,
}

/// A challenge to set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToMeet {
    /// The name without `*.`, or the address.
    pub(crate) name: String,
    pub(crate) is_address: bool,
    /// The token; empty if the challenge type has none.
    pub(crate) token: String,
    /// The token with the key's thumbprint.
    pub(crate) authorization: String,
    /// `issuer-domain-names`.
    pub(crate) issuers: Vec<String>,
    /// The authorization as received from the authority, for tools.
    pub(crate) body: Vec<u8>,
}

/// The next action.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Next {
    /// A request.
    Ask(Ask),
    /// Wait until this time.
    Wait(u64),
    /// Set up the challenges.
    Meet,
    /// The certificate and its chain in PEM.
    Issued(Vec<u8>),
    /// The order has failed.
    Failed(Failure),
}

/// The failure of an order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) text: String,
    /// The pause requested by the authority.
    pub(crate) retry_after: Option<Duration>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Directory,
    FindAccount,
    MakeAccount,
    NewOrder,
    Authorize(usize),
    Meet,
    Submit(usize),
    Validate(usize),
    /// Polls until the order is ready, and again until it is valid.
    Order,
    Finalize,
    Download,
    Issued(Vec<u8>),
    Failed(Failure),
}

impl Step {
    /// The purpose of the step's request.
    fn purpose(&self) -> &'static str {
        match self {
            Self::Directory => "getting the directory",
            Self::FindAccount => "looking for the account",
            Self::MakeAccount => "creating the account",
            Self::NewOrder => "placing the order",
            Self::Authorize(_) => "getting an authorization",
            Self::Submit(_) => "submitting a challenge",
            Self::Validate(_) => "checking a challenge",
            Self::Order => "checking the order",
            Self::Finalize => "finalizing the order",
            Self::Download => "getting the certificate",
            Self::Meet | Self::Issued(_) | Self::Failed(_) => "nothing",
        }
    }
}

/// An authorization of the order that is not valid yet.
struct Open {
    url: String,
    challenge: String,
    meet: ToMeet,
}

/// An order.
pub(crate) struct Engine {
    wanted: Wanted,
    key: Rc<AccountKey>,
    step: Step,
    directory: Option<AcmeDirectory>,
    /// An unused nonce.
    nonce: Option<String>,
    /// Whether the last request was for a nonce.
    asks_nonce: bool,
    account: Option<String>,
    order: String,
    finalize: String,
    certificate: String,
    authorizations: Vec<String>,
    open: Vec<Open>,
    tries: u32,
    /// The number of nonces rejected since the last accepted request.
    nonces: u32,
    polls: u32,
    not_before: u64,
    /// The reason for a failed attempt that is retried, for the log.
    note: Option<String>,
}

impl Engine {
    pub(crate) fn new(wanted: Wanted, key: Rc<AccountKey>) -> Self {
        Self {
            wanted,
            key,
            step: Step::Directory,
            directory: None,
            nonce: None,
            asks_nonce: false,
            account: None,
            order: String::new(),
            finalize: String::new(),
            certificate: String::new(),
            authorizations: Vec::new(),
            open: Vec::new(),
            tries: 0,
            nonces: 0,
            polls: 0,
            not_before: 0,
            note: None,
        }
    }

    /// The next action at time `now`.
    pub(crate) fn next(&mut self, now: u64) -> Next {
        match &self.step {
            Step::Issued(chain) => return Next::Issued(chain.clone()),
            Step::Failed(failure) => return Next::Failed(failure.clone()),
            Step::Meet => return Next::Meet,
            _ if now < self.not_before => return Next::Wait(self.not_before),
            _ => {}
        }
        match self.ask() {
            Ok(ask) => Next::Ask(ask),
            Err(text) => {
                self.fail(text, None);
                self.next(now)
            }
        }
    }

    /// The challenges to set up.
    pub(crate) fn to_meet(&self) -> impl Iterator<Item = &ToMeet> {
        self.open.iter().map(|open| &open.meet)
    }

    /// The account's URL, once it is known.
    pub(crate) fn account(&self) -> Option<&str> {
        self.account.as_deref()
    }

    /// The reason for the last failed attempt, if it is retried; reported once.
    pub(crate) fn take_note(&mut self) -> Option<String> {
        self.note.take()
    }

    /// The challenges are ready.
    pub(crate) fn challenges_ready(&mut self) {
        if self.step == Step::Meet {
            self.go(if self.open.is_empty() { Step::Order } else { Step::Submit(0) });
        }
    }

    /// Aborts the order.
    pub(crate) fn give_up(&mut self, text: &str) {
        self.fail(text.to_owned(), None);
    }

    fn fail(&mut self, text: String, retry_after: Option<Duration>) {
        self.step = Step::Failed(Failure { text, retry_after });
    }

    fn go(&mut self, step: Step) {
        (self.step, self.tries, self.polls, self.not_before) = (step, 0, 0, 0);
    }

    /// Builds the request of this step.
    fn ask(&mut self) -> Result<Ask, String> {
        self.asks_nonce = false;
        if self.step == Step::Directory {
            return Ok(Ask { method: "GET", url: self.wanted.directory.clone(), body: Vec::new() });
        }
        let directory = self.directory.clone().ok_or("the directory has not been fetched")?;
        if self.nonce.is_none() {
            self.asks_nonce = true;
            return Ok(Ask { method: "HEAD", url: directory.new_nonce, body: Vec::new() });
        }
        let (url, payload) = self.request(&directory);
        let nonce = self.nonce.take().unwrap_or_default();
        let account = match self.step {
            Step::FindAccount | Step::MakeAccount => None,
            _ => self.account.as_deref(),
        };
        let body = self.key.sign(&url, &nonce, account, &payload)?;
        Ok(Ask { method: "POST", url, body })
    }

    /// The URL and the payload of this step's request.
    fn request(&self, directory: &AcmeDirectory) -> (String, String) {
        let nothing = String::new();
        match &self.step {
            Step::FindAccount => {
                (directory.new_account.clone(), json!({"onlyReturnExisting": true}).to_string())
            }
            Step::MakeAccount => (directory.new_account.clone(), self.new_account(directory).to_string()),
            Step::NewOrder => (directory.new_order.clone(), self.new_order().to_string()),
            Step::Authorize(at) => (self.authorizations.get(*at).cloned().unwrap_or_default(), nothing),
            Step::Submit(at) => {
                (self.open.get(*at).map_or_else(String::new, |one| one.challenge.clone()), "{}".into())
            }
            Step::Validate(at) => {
                (self.open.get(*at).map_or_else(String::new, |one| one.url.clone()), nothing)
            }
            Step::Order => (self.order.clone(), nothing),
            Step::Finalize => {
                (self.finalize.clone(), json!({"csr": base64url(&self.wanted.csr)}).to_string())
            }
            Step::Download => (self.certificate.clone(), nothing),
            Step::Directory | Step::Meet | Step::Issued(_) | Step::Failed(_) => (String::new(), nothing),
        }
    }

    fn new_account(&self, directory: &AcmeDirectory) -> Value {
        let mut account = json!({"termsOfServiceAgreed": true});
        if let Some(contact) = &self.wanted.contact {
            account["contact"] = json!([format!("mailto:{contact}")]);
        }
        if let Some(eab) = &self.wanted.eab {
            account["externalAccountBinding"] = self.key.bind(&directory.new_account, eab);
        }
        account
    }

    fn new_order(&self) -> Value {
        let names = self.wanted.domains.iter().map(|name| json!({"type": "dns", "value": name}));
        let addresses =
            self.wanted.addresses.iter().map(|one| json!({"type": "ip", "value": one.to_string()}));
        let mut order = json!({"identifiers": names.chain(addresses).collect::<Vec<_>>()});
        if let Some(profile) = &self.wanted.profile {
            order["profile"] = json!(profile);
        }
        order
    }

    fn purpose(&self) -> &'static str {
        if self.asks_nonce { "getting a nonce" } else { self.step.purpose() }
    }

    /// Processes a request without a response.
    pub(crate) fn unanswered(&mut self, cause: &str, now: u64) {
        let text = format!("{cause} when {}", self.purpose());
        self.try_again(text, None, now);
    }

    fn try_again(&mut self, text: String, after: Option<Duration>, now: u64) {
        self.tries += 1;
        if self.tries >= TRIES {
            return self.fail(text, after);
        }
        let pause = after.unwrap_or(Duration::from_secs(3) * (1 << (self.tries - 1))).min(PAUSE_MAX);
        self.note =
            Some(format!("{text}, retrying in {}s ({}/{TRIES} retries)", pause.as_secs(), self.tries));
        self.not_before = now + millis(pause);
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
