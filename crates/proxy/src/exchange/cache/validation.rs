//! Stale responses: revalidating them at the server (`revalidation`), and delivering them instead of an error (`stale-if-error`).

use base::clock::WallTime;
use cache::Now;
use http::Method;
use runtime::timer::now_ms;

use super::keep;
use super::state::Given;
use crate::exchange::Exchange;

/// Makes a request to a server conditional on the stale response (`revalidation`; RFC 9111, 4.3.1).
#[cold]
pub(crate) fn ask(x: &mut Exchange) {
    let Some(caching) = &mut x.caching else { return };
    caching.stale = caching.stale.take().filter(|_| {
        caching.request.may_store
            && x.txn.request.method_id() == Method::Get
            && cache::may_validate(&x.txn.request)
    });
    if let Some(stale) = &caching.stale {
        caching.conditions = Some(cache::ask_whether(&mut x.txn.request, stale));
    }
}

/// The result of validating a stale response.
pub(crate) enum Validated {
    /// Nothing to validate, or the server sent a new response.
    Nothing,
    /// The stale response was confirmed as fresh and answers the request.
    Fresh,
    /// The 304 is about a different response, so the request is repeated without the condition.
    Other,
}

/// Uses the server's response to validate the stale response (RFC 9111, 4.3.3).
#[cold]
pub(crate) fn validate(x: &mut Exchange) -> Validated {
    let Some(caching) = &mut x.caching else { return Validated::Nothing };
    let Some(stale) = caching.stale.take() else { return Validated::Nothing };
    if x.txn.response.status() != 304 {
        return Validated::Nothing;
    }
    if !cache::is_about(&x.txn.response, &stale) {
        caching.store.remove_object(&stale);
        return Validated::Other;
    }
    let now = Now { ms: now_ms(), wall: WallTime::now().seconds };
    let (fresh, is_kept) = caching.store.freshen(&stale, &x.txn.response, now);
    match caching.lead.take() {
        Some(lead) if is_kept => lead.keep(),
        Some(lead) => lead.pass(now.ms),
        None => {}
    }
    if caching.revalidates {
        // The exchange has no client.
        return Validated::Nothing;
    }
    caching.found = Some(Given::Kept(fresh));
    Validated::Fresh
}

/// Whether to deliver a stale response instead of an error from the server (`stale-if-error`).
pub(crate) fn helps(x: &mut Exchange) -> bool {
    let Some(caching) = &mut x.caching else { return false };
    if matches!(x.txn.response.status(), 500 | 502..=504) {
        caching.found = caching.fallback.take().map(Given::Kept);
    }
    let helps = caching.found.is_some();
    if helps {
        keep::pass(caching);
    }
    helps
}
