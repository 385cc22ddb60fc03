//! Prepares a stored response as the answer to a request: determines its age, evaluates conditions and runs the response rules.
//! `reply` then sends it.

use std::io::Write as _;

use cache::{Feed, FileFeed, Ranged, is_unchanged, ranged};
use http::{BodyLength, KnownName};
use runtime::timer::now_ms;
use sample::{Cause, Phase};

use crate::client::Client;
use crate::evaluate;
use crate::exchange::cache::keep;
use crate::exchange::{Exchange, Given, Stop};
use crate::fault::Fault;
use crate::flow::CachedBody;

use super::revalidate;

/// Handles the early end of a request that used a cache. If no server sent a response, a stale one may replace the error
/// (`stale-if-error`); its revalidation then begins. Wakes the requests that wait for this response.
#[cold]
pub(crate) fn instead_of(client: &mut Client, x: &mut Exchange, stop: Stop) -> Stop {
    let Some(caching) = &mut x.caching else { return stop };
    let tells_nothing = match stop {
        Stop::Fault(fault) => is_clients(fault),
        // Rules rejected the request.
        Stop::Reply | Stop::Close | Stop::Silent => x.txn.server_status == 0,
        _ => false,
    };
    match stop {
        Stop::Cached => {
            if let Some(lead) = caching.lead.take() {
                revalidate::begin(client, x, lead);
            }
            stop
        }
        _ if tells_nothing => {
            // A request that waits may proceed before this one is answered.
            caching.lead = None;
            stop
        }
        Stop::Fault(_) if !x.answered && caching.fallback.is_some() => {
            keep::pass(caching);
            caching.found = caching.fallback.take().map(Given::Kept);
            Stop::Cached
        }
        _ => {
            keep::pass(caching);
            stop
        }
    }
}

/// Whether the client caused the fault, or an operator aborted the request.
fn is_clients(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::ClientAborted
            | Fault::ClientLeft
            | Fault::ClientReset
            | Fault::ClientCut
            | Fault::ClientTimeout
            | Fault::Killed(_)
    )
}

/// Copies the stored response to the transaction.
///
/// # Errors
/// Response rules ended the exchange.
pub(crate) async fn prepare(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    let Some(mut caching) = x.caching.take() else { return Err(Fault::Internal.into()) };
    let (store, Some(given)) = (caching.store, caching.found.take()) else {
        return Err(Fault::Internal.into());
    };
    if let Some(own) = &caching.conditions {
        own.restore(&mut x.txn.request);
    }
    let ranges = store.settings.ranges;
    x.txn.cache = Some(store);
    x.txn.service = Some("<CACHE>");
    x.txn.termination.set(Cause::Local, Phase::Request);
    let times = &mut x.txn.times;
    (times.queued, times.connected, times.response) = (times.request, times.request, times.request);
    let kept = match &given {
        Given::Kept(object) => &object.head,
        Given::Coming(feed) => feed.head(),
        Given::Filed(feed) => feed.head(),
    };
    let (modified, age) = match &given {
        Given::Kept(object) => (object.modified(), object.age(now_ms())),
        Given::Coming(feed) => (feed.modified(), feed.age(now_ms())),
        Given::Filed(feed) => (feed.modified(), feed.age(now_ms())),
    };
    let unchanged = is_unchanged(&x.txn.request, kept, modified);
    let head = &mut x.txn.response;
    head.copy_from(kept);
    append_age(head, age);
    x.reply.clear();
    if unchanged {
        // A 304 must not contain content fields (RFC 9110, 15.4.5).
        head.set_status(304, None);
        for name in [KnownName::ContentLength, KnownName::ContentType, KnownName::ContentEncoding] {
            head.remove_known(name);
        }
        x.response_body.length = BodyLength::None;
    } else {
        match given {
            Given::Kept(object) => {
                let whole = object.body.len();
                let ranged = if ranges { ranged(&x.txn.request, &object.head, whole) } else { Ranged::Whole };
                x.reply.hold(object);
                if let Some(part) = give_range(&mut x.txn.response, ranged, whole) {
                    x.reply.narrow(part);
                    x.txn.response.set_content_length(x.reply.len());
                }
                x.response_body.length = BodyLength::Length(x.reply.len());
            }
            Given::Coming(feed) => x.response_body.length = give_feed(x, feed, ranges),
            Given::Filed(feed) => x.response_body.length = give_file(x, feed, ranges),
        }
    }
    x.txn.has_response = true;
    x.txn.status = x.txn.response.status();
    if client.worker.shared.plan.variables.wants_bodies() {
        show_body(client, x);
    }
    evaluate::of_cached(client, x).await?;
    x.reply.is_filtered = true;
    Ok(())
}

/// Returns the requested part of the body and sets its fields in the head (RFC 9110, 15.3.7 and 15.5.17). Returns `None` for the
/// whole body.
fn give_range(head: &mut http::Head, ranged: Ranged, whole: usize) -> Option<std::ops::Range<usize>> {
    match ranged {
        Ranged::Whole => None,
        Ranged::Part(part) => {
            let range = format!("bytes {}-{}/{whole}", part.start, part.end.saturating_sub(1));
            head.set_status(206, None);
            head.set(&KnownName::ContentRange.into(), range.as_bytes());
            Some(part)
        }
        Ranged::Outside => {
            head.set_status(416, None);
            head.set(&KnownName::ContentRange.into(), format!("bytes */{whole}").as_bytes());
            head.remove_known(KnownName::ContentType);
            Some(0..0)
        }
    }
}

/// Uses `feed` as the source of the body. Returns how the end of the body is marked.
fn give_feed(x: &mut Exchange, mut feed: Feed, ranges: bool) -> BodyLength {
    let head = &mut x.txn.response;
    let whole = feed.length();
    let mut length = whole;
    if let Some(whole) = whole.and_then(|whole| usize::try_from(whole).ok()).filter(|_| ranges) {
        let ranged = ranged(&x.txn.request, feed.head(), whole);
        if let Some(part) = give_range(head, ranged, whole) {
            length = Some(part.len() as u64);
            feed.narrow(part.start as u64..part.end as u64);
        }
    }
    match length {
        Some(length) => head.set_content_length(length),
        None => _ = head.append(b"transfer-encoding", b"chunked"),
    }
    x.reply.come(CachedBody::Coming(feed), length);
    length.map_or(BodyLength::Chunked, BodyLength::Length)
}

/// Uses the file as the source of the body. Returns how the end of the body is marked.
fn give_file(x: &mut Exchange, mut feed: FileFeed, ranges: bool) -> BodyLength {
    let whole = usize::try_from(feed.length()).unwrap_or(usize::MAX);
    let ranged = if ranges { ranged(&x.txn.request, feed.head(), whole) } else { Ranged::Whole };
    let mut length = feed.length();
    if let Some(part) = give_range(&mut x.txn.response, ranged, whole) {
        length = part.len() as u64;
        feed.narrow(part.start as u64..part.end as u64);
        x.txn.response.set_content_length(length);
    }
    x.reply.come(CachedBody::Filed(feed), Some(length));
    BodyLength::Length(length)
}

/// Makes the body visible to rules, as much of it as for any other response.
#[cold]
fn show_body(client: &Client, x: &mut Exchange) {
    let body = x.reply.rest();
    let most = client.worker.shared.plan.global.tune.bufsize.min(body.len());
    x.response_body.seen.clear();
    x.response_body.seen.extend_from_slice(&body[..most]);
}

fn append_age(head: &mut http::Head, age: u64) {
    let mut text = [0u8; 20];
    let mut cursor = std::io::Cursor::new(&mut text[..]);
    // Twenty bytes are enough for any number.
    let _ = write!(cursor, "{age}");
    let length = cursor.position() as usize;
    head.push_known(KnownName::Age, &text[..length], false);
}
