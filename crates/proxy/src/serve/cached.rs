//! What a cache has, made the answer to a request: its head with its age, the answer to a condition,
//! the rules on responses. `reply` sends it.

use std::io::Write as _;

use cache::is_unchanged;
use http::{BodyLength, KnownName};
use runtime::timer::now_ms;
use sample::{Cause, Phase};

use crate::client::Client;
use crate::evaluate;
use crate::exchange::{Exchange, Stop};
use crate::message::compression;

/// Makes what was found the response of the transaction.
///
/// # Errors
/// Rules on responses say otherwise.
pub(crate) async fn prepare(client: &mut Client, x: &mut Exchange) -> Result<(), Stop> {
    let Some((store, object)) = x.caching.take().and_then(|caching| Some((caching.store, caching.found?)))
    else {
        return Err(crate::fault::Fault::Internal.into());
    };
    x.txn.cache = Some(store);
    x.txn.service = Some("<CACHE>");
    x.txn.termination.set(Cause::Local, Phase::Request);
    let times = &mut x.txn.times;
    (times.queued, times.connected, times.response) = (times.request, times.request, times.request);
    let unchanged = is_unchanged(&x.txn.request, &object);
    let head = &mut x.txn.response;
    head.copy_from(&object.head);
    append_age(head, object.age(now_ms()));
    x.reply.clear();
    if unchanged {
        // What the client has is described by what it has (RFC 9110, 15.4.5).
        head.set_status(304, None);
        for name in [KnownName::ContentLength, KnownName::ContentType, KnownName::ContentEncoding] {
            head.remove_known(name);
        }
        x.response_body.length = BodyLength::None;
    } else {
        x.response_body.length = BodyLength::Length(object.body.len() as u64);
        x.reply.hold(object);
    }
    x.txn.has_response = true;
    x.txn.status = x.txn.response.status();
    if client.worker.shared.plan.variables.wants_bodies() {
        show_body(client, x);
    }
    evaluate::of_cached(client, x).await?;
    let backend = x.backend.clone().unwrap_or_else(|| client.frontend.clone());
    compression::of_request(client, x, &backend);
    Ok(())
}

/// What rules see of the body: as much as of any other.
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
    // Twenty bytes hold any number.
    let _ = write!(cursor, "{age}");
    let length = cursor.position() as usize;
    head.push_known(KnownName::Age, &text[..length], false);
}
