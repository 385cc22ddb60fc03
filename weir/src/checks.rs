//! Starts health checks, and reports changes of servers to the logs of their backend and to standard error.

use std::cell::RefCell;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};

use arc_swap::ArcSwapOption;
use base::raw::bytes_of;
use diag::Severity;
use health::IdleRequest;
use net::Stream;
use plan::Logger;
use proxy::log::{LogLine, Outbox};
use proxy::{Shared, check_bridge, check_pool};
use state::transition;

use crate::emails::Emails;
use crate::messages::{MessageFormat, without_numbers};

thread_local! {
    /// The calling thread's outbox for these messages.
    static OUTBOX: RefCell<Option<Outbox>> = const { RefCell::new(None) };
}

/// Reports changes of servers. Created before the plan is known; [`Notifier::bind`] sets the plan.
#[derive(Clone, Default)]
pub(crate) struct Notifier(Arc<ArcSwapOption<PlanFacts>>);

/// The facts about the plan in use that the notifier needs.
struct PlanFacts {
    shared: Weak<Shared>,
    emails: Emails,
}

impl Notifier {
    /// Sets the plan, which contains the loggers, and the sender of e-mails.
    pub(crate) fn bind(&self, shared: &Arc<Shared>, emails: Emails) {
        self.0.store(Some(Arc::new(PlanFacts { shared: Arc::downgrade(shared), emails })));
    }

    /// Returns the function that health checks and the runtime socket call.
    pub(crate) fn notify(&self, messages: MessageFormat) -> health::Notify {
        let notifier = self.clone();
        Arc::new(move |proxy, level, text| {
            if level == 0 {
                // On standard error the proxy's name is quoted.
                let quoted = format!(" '{}' ", proxy.name);
                messages.say(Severity::Alert, &text.replacen(&format!(" {} ", proxy.name), &quoted, 1));
            } else {
                messages.say(Severity::Warning, text);
            }
            let Some(bound) = notifier.0.load_full() else { return };
            let Some(shared) = bound.shared.upgrade() else { return };
            log(&shared, proxy, level, text);
            let alert = planned(&shared, proxy).and_then(|plan| plan.email_alert.as_deref());
            if let Some(alert) = alert {
                bound.emails.send(alert, level, text);
            }
        })
    }

    /// Returns the function that reports events of the process from threads that are not workers.
    pub(crate) fn notify_process(&self, messages: MessageFormat) -> telemetry::NotifyExport {
        let notifier = self.clone();
        Arc::new(move |level, text| {
            let severity = if level <= transition::WARNING { Severity::Warning } else { Severity::Notice };
            messages.say(severity, text);
            let Some(shared) = notifier.0.load_full().and_then(|bound| bound.shared.upgrade()) else {
                return;
            };
            let text = text.to_owned();
            // Loggers have counters that only workers write.
            runtime::worker::post(0, move || log_global(&shared, level, &text));
        })
    }
}

/// Writes a message to the loggers of a proxy and to standard error.
pub(crate) fn notify(shared: &Shared, messages: MessageFormat, proxy: &state::Proxy, level: u8, text: &str) {
    messages.say(Severity::Warning, text);
    log(shared, proxy, level, text);
}

/// Writes a message to the loggers of a proxy.
pub(crate) fn log(shared: &Shared, proxy: &state::Proxy, level: u8, text: &str) {
    if let Some(plan) = planned(shared, proxy) {
        log_to(shared, &plan.loggers, &LogLine::own(level, &plan.log_tag, &bytes_of(text)));
    }
}

fn planned<'a>(shared: &'a Shared, proxy: &state::Proxy) -> Option<&'a Arc<plan::Proxy>> {
    shared.plan.proxies.iter().find(|plan| plan.state.id == proxy.id)
}

/// Returns the handler of rejected e-mails: it writes a warning to standard error and the log.
pub(crate) fn refused_emails(shared: &Arc<Shared>, messages: MessageFormat) -> mail::MailFailed {
    let shared = Arc::downgrade(shared);
    Arc::new(move |mailer: &str, why: &str| {
        let text = format!("Can't send email alert to {mailer}: {}.", without_numbers(why));
        messages.say(Severity::Warning, &text);
        if let Some(shared) = shared.upgrade() {
            log_global(&shared, transition::WARNING, &text);
        }
    })
}

/// Writes a message to the process's loggers.
pub(crate) fn log_global(shared: &Shared, level: u8, text: &str) {
    let global = &shared.plan.global;
    let tag = global.log_tag.as_deref().unwrap_or(b"haproxy");
    log_to(shared, &global.loggers, &LogLine::own(level, tag, &bytes_of(text)));
}

fn log_to(shared: &Shared, loggers: &[Logger], line: &LogLine<'_>) {
    if loggers.is_empty() {
        return;
    }
    OUTBOX.with_borrow_mut(|outbox| {
        let outbox = outbox.get_or_insert_with(|| Outbox::new(shared));
        outbox.send_all(shared, loggers, line);
    });
}

/// The connections of the workers.
struct Pools;

impl health::Idle for Pools {
    fn take<'a>(&'a self, wanted: IdleRequest<'a>) -> health::Taking<'a> {
        Box::pin(async move {
            let lent = check_pool::take(wanted.backend, wanted.server, wanted.name).await?;
            Some(Box::new(OnLoan(lent)) as Box<dyn health::Lent>)
        })
    }

    fn reach<'a>(&'a self, wanted: IdleRequest<'a>) -> health::Reaching<'a> {
        Box::pin(check_bridge::reach(wanted.backend, wanted.server, wanted.name))
    }

    fn connect_quic<'a>(
        &'a self,
        wanted: IdleRequest<'a>,
        address: SocketAddr,
        tls: (Option<&'a str>, tls::Keep),
        is_http: bool,
    ) -> health::Connecting<'a> {
        use check_bridge::QuicUnreached as Why;
        Box::pin(async move {
            match check_bridge::connect_quic(wanted.backend, (wanted.server, address), tls, is_http).await {
                Ok(check_bridge::QuicReached { stream, ends, tls }) => {
                    Ok(health::QuicReached { stream, ends, tls })
                }
                Err(Why::Unknown(text)) => Err(health::QuicUnreached::Unknown(text)),
                Err(Why::Socket(error)) => Err(health::QuicUnreached::Socket(error)),
                Err(Why::Silent) => Err(health::QuicUnreached::Silent),
                Err(Why::Tls(text)) => Err(health::QuicUnreached::Tls(text)),
            }
        })
    }

    fn speak_qmux<'a>(&'a self, wanted: IdleRequest<'a>, stream: Stream) -> health::Speaking<'a> {
        Box::pin(check_bridge::speak_qmux(wanted.backend, wanted.server, stream))
    }

    fn keep(&self, wanted: IdleRequest<'_>, stream: Stream, moves: u32) {
        check_pool::keep(wanted.backend, wanted.server, wanted.name, stream, moves);
    }
}

struct OnLoan(check_pool::Lent);

impl health::Lent for OnLoan {
    fn stream(&mut self) -> &mut Stream {
        self.0.stream()
    }

    fn give_back(self: Box<Self>) {
        self.0.give_back();
    }
}

/// Collects the plan's checks; every worker starts its share of them.
pub(crate) fn gather(shared: &Shared, notifier: &Notifier, messages: MessageFormat) -> health::Checks {
    health::Checks::new(
        &shared.plan,
        shared.process.clone(),
        notifier.notify(messages),
        Some(Arc::new(Pools)),
    )
}
