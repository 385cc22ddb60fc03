//! A task per certificate: waits until an order is due, drives it, and installs the result.

use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use base::clock::{WallTime, now_ms};
use httpclient::{ClientSettings, Request, Url};
use plan::Plan;
use plan::acme::AcmeOrder;
use runtime::timer;
use state::{EventTopic, Process, journal};
use tls::PrivateKey;
use tokio::task::{AbortHandle, spawn_blocking};

use crate::challenge::{ChallengeGuard, meet};
use crate::context::{LogFn, OrderContext};
use crate::engine::{Answer, Ask, Engine, Failure, Next, Wanted};
use crate::{event, save, schedule};

/// How often certificates are checked, because they may have been replaced externally.
const LOOK: Duration = Duration::from_secs(12 * 3600);
/// The maximum size of a response: a certificate with its chain, an authorization with many challenges.
const ANSWER_MAX: usize = 256 << 10;
/// The total time limit of a response.
const TOTAL: Duration = Duration::from_secs(60);

/// Starts the tasks for all orders of the plan. Called on one worker. Returns a handle that ends them, because a plan that replaces
/// this one starts its own.
pub fn start(
    plan: &Arc<Plan>,
    process: &Arc<Process>,
    mut settings: ClientSettings,
    log: LogFn,
) -> Vec<AbortHandle> {
    if plan.acme.is_empty() {
        return Vec::new();
    }
    (settings.total_timeout, settings.max_body) = (TOTAL, ANSWER_MAX);
    let (plan, process) = (plan.clone(), process.clone());
    let desk = Rc::new(OrderContext::new(plan, process, settings, log));
    let attend = |order: &Arc<AcmeOrder>| tokio::task::spawn_local(attend(desk.clone(), order.clone()));
    desk.plan.acme.iter().map(|order| attend(order).abort_handle()).collect()
}

/// Orders a certificate whenever it is due, as long as the process runs.
async fn attend(desk: Rc<OrderContext>, order: Arc<AcmeOrder>) {
    let (mut failures, mut not_before) = (0, 0);
    loop {
        let due = desk.due(&order).map(|due| due.max(not_before));
        order.state.end(due);
        let left = due.map_or(LOOK, |due| {
            let left = due.saturating_sub(WallTime::now().seconds);
            Duration::from_secs(u64::try_from(left).unwrap_or(0)).min(LOOK)
        });
        let wanted = poll_fn(|context| order.state.poll_wanted(context));
        let is_wanted = timer::timeout(left, wanted).await.is_ok();
        if desk.process.stopping.load(Relaxed) {
            return;
        }
        let is_due = || desk.due(&order).is_some_and(|due| due.max(not_before) <= WallTime::now().seconds);
        if !is_wanted && !is_due() {
            continue;
        }
        order.state.begin();
        desk.log(&order, 5, "Starting update of the certificate.");
        match fulfil(&desk, &order).await {
            Ok(()) => {
                (failures, not_before) = (0, 0);
                desk.log(&order, 5, "Successful update of the certificate.");
            }
            Err(failure) => {
                failures += 1;
                let pause = schedule::pause(failures, failure.retry_after.map(|time| time.as_secs()));
                not_before = WallTime::now().seconds + pause;
                let again = match desk.plan.global.no_acme_scheduler {
                    true => String::new(),
                    false => format!(" Next attempt in {pause} seconds."),
                };
                desk.log(&order, 3, &format!("{} Aborting.{again}", failure.text));
            }
        }
    }
}

/// Generates a key for a new certificate and its signing request, on a separate thread.
async fn new_key(desk: &OrderContext, order: &Arc<AcmeOrder>) -> Result<(PrivateKey, Vec<u8>), String> {
    let section = &order.section;
    let current = desk.plan.tls.certificate(&order.certificate).filter(|_| section.reuses_key);
    let old = current.filter(|one| !tls::keygen::is_temporary(one) && !one.key.needs_openssl());
    let (kind, order) = (section.key, order.clone());
    let made = spawn_blocking(move || {
        let key = match old {
            Some(old) => old.key.clone(),
            None => tls::keygen::key(kind)?,
        };
        let request = tls::keygen::request(&key, &order.domains, &order.addresses)?;
        Ok((key, request))
    });
    made.await.map_err(|error| error.to_string())?
}

/// Processes one order from beginning to end.
async fn fulfil(desk: &Rc<OrderContext>, order: &Arc<AcmeOrder>) -> Result<(), Failure> {
    let failed = |text: String| Failure { text, retry_after: None };
    let section = &order.section;
    let account = desk.account(order).map_err(failed)?;
    let (key, csr) = new_key(desk, order).await.map_err(failed)?;
    let wanted = Wanted {
        directory: section.directory.to_string(),
        contact: section.contact.as_deref().map(str::to_owned),
        eab: section.eab.clone(),
        profile: section.profile.as_deref().map(str::to_owned),
        challenge: section.challenge,
        domains: order.domains.iter().map(|name| name.to_string()).collect(),
        addresses: order.addresses.clone(),
        csr,
    };
    let mut engine = Engine::new(wanted, account.clone());
    // Challenges stay set up until the order has ended.
    let mut _met = ChallengeGuard::default();
    loop {
        if desk.process.stopping.load(Relaxed) {
            // The successor process starts a new order.
            engine.give_up("The process is stopping.");
        }
        match engine.next(now_ms()) {
            Next::Ask(ask) => {
                match send(desk, &ask).await {
                    Ok(answer) => engine.answered(answer, now_ms()),
                    Err(cause) => engine.unanswered(&cause, now_ms()),
                }
                if let Some(note) = engine.take_note() {
                    desk.log(order, 4, &note);
                }
            }
            Next::Wait(until) => timer::sleep(Duration::from_millis(until.saturating_sub(now_ms()))).await,
            Next::Meet => {
                let all: Vec<_> = engine.to_meet().cloned().collect();
                let own = engine.account().unwrap_or_default().to_owned();
                match meet(desk, order, &account, &own, &all).await {
                    Ok(met) => {
                        _met = met;
                        engine.challenges_ready();
                    }
                    Err(text) => engine.give_up(&text),
                }
            }
            Next::Issued(chain) => return install(desk, order, chain, key).await.map_err(failed),
            Next::Failed(failure) => return Err(failure),
        }
    }
}

/// Sends a request.
async fn send(desk: &OrderContext, ask: &Ask) -> Result<Answer, String> {
    let url = Url::parse(&ask.url).map_err(|error| format!("{}: {error}", ask.url))?;
    let mut request = Request::new(ask.method, url);
    if ask.method == "POST" {
        request = request.body("application/jose+json", ask.body.clone());
    }
    // The semaphore is never closed.
    let _turn = desk.requests.acquire().await;
    let response = httpclient::send(&desk.settings, &request).await.map_err(|error| error.to_string())?;
    let header = |name: &str| response.header(name).map(str::to_owned);
    Ok(Answer {
        status: response.status,
        nonce: header("Replay-Nonce"),
        location: header("Location"),
        retry_after: response.header("Retry-After").and_then(pause_of),
        body: response.body,
    })
}

/// Parses `Retry-After`, in seconds or as a date (RFC 9110, 10.2.3).
pub(crate) fn pause_of(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = base::clock::parse_http_date(text)?;
    u64::try_from(date - WallTime::now().seconds).ok().map(Duration::from_secs)
}

/// Installs a certificate everywhere and writes it to its file.
async fn install(
    desk: &Rc<OrderContext>,
    order: &Arc<AcmeOrder>,
    chain: Vec<u8>,
    key: PrivateKey,
) -> Result<(), String> {
    let (plan, own) = (desk.plan.clone(), order.clone());
    let installed = spawn_blocking(move || {
        let contents = plan.tls.install(&own.certificate, &chain, &key)?;
        if let Ok(certificate) = sample::keys::Certificate::from_pem(&contents.to_pem(), None) {
            plan.certificates.put(&own.certificate, certificate);
        }
        Ok::<_, String>(save::keep(&contents, &own.file, own.key_file.as_deref()))
    });
    let kept = installed.await.map_err(|error| error.to_string())??;
    if let Err(error) = kept {
        let text = format!("{error}. The certificate is in use, but the next startup will order it again.");
        desk.log(order, 3, &text);
    }
    desk.write(&event::new_certificate(order));
    journal::record(EventTopic::Certificates, &order.certificate, "Replaced by ACME.");
    state::events::ordered(&order.certificate, || None);
    Ok(())
}
