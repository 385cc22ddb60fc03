//! Stale responses: asking the server whether one still holds (`revalidation`), and delivering one
//! instead of an error (`stale-if-error`).

use base::clock::WallTime;
use cache::Now;
use http::Method;
use runtime::timer::now_ms;

use super::keep;
use super::state::Given;
use crate::exchange::Exchange;

/// Has a request that goes to a server ask whether what is stale is still what it was
/// (`revalidation`; RFC 9111, 4.3.1).
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

/// What the server's response says of what is stale.
pub(crate) enum Validated {
    /// Nothing.
    Nothing,
    /// It is what it was: it answers the request.
    Fresh,
    /// The server speaks of something else: it is to be asked for the whole.
    Other,
}

/// Takes what the response says of what is stale (RFC 9111, 4.3.3).
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
        // Nobody takes it.
        return Validated::Nothing;
    }
    caching.found = Some(Given::Kept(fresh));
    Validated::Fresh
}

/// Whether a stale response is delivered instead of that of the server, which is an error
/// (`stale-if-error`).
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
