//! Sending an answer made here: its head, and what there is of its body. Called by `reply`, and by
//! `script`, whose body is made meanwhile.

use std::task::{Context, Poll};
use std::time::Duration;

use http::BodyLength;
use runtime::timer;

use crate::client::{Client, Watch};
use crate::exchange::{Exchange, filters};
use crate::fault::Fault;
use crate::flow::{Coding, Filters, Path, Source};
use crate::message::compression;
use crate::observe;

/// How the body of its response ends.
pub(super) fn length(x: &Exchange) -> BodyLength {
    let service = x.scripting.as_ref().and_then(|scripting| scripting.service.as_ref());
    let bodiless = x.head_only || matches!(x.txn.response.status(), 100..=199 | 204 | 304);
    let told = match &x.reply.feed {
        Some(feed) => feed.1,
        None => service.and_then(|service| service.left),
    };
    match told {
        _ if bodiless => BodyLength::None,
        Some(length) => BodyLength::Length(length),
        None => BodyLength::Chunked,
    }
}

/// Leaves the head to be sent, and says how the body is.
pub(super) fn begin_reply(client: &mut Client, x: &mut Exchange) {
    let bodiless = x.head_only || matches!(x.txn.response.status(), 100..=199 | 204 | 304);
    let length = match x.reply.pieces {
        Some(_) => BodyLength::Chunked,
        None if x.reply.is_open() => length(x),
        None if bodiless => BodyLength::None,
        None => BodyLength::Length(x.reply.len()),
    };
    let filter = match x.reply.object {
        Some(_) => compression::of_response(client, x),
        None if x.reply.is_open() => compression::of_response(client, x),
        None => None,
    };
    let length = if filter.is_some() { BodyLength::Chunked } else { length };
    let path = match crate::message::fields::frame_for_client(client, x, length, true) {
        // Pieces are no chunks yet.
        Path::Verbatim if length == BodyLength::Chunked => Path::Payload(Coding::Chunked),
        path => path,
    };
    match Filters::of(None, false, filter) {
        Some(filters) => x.download.start_filtered(length, path, filters),
        None => x.download.start(if bodiless { BodyLength::None } else { length }, path),
    }
    observe::answer(client, x);
    x.txn.bytes_out += client.side.send_head(&x.txn.response, &mut x.download);
    if x.reply.object.is_some() || x.reply.feed.is_some() {
        filters::install(x, false);
    }
    x.download.ends = !x.keep_alive;
}

/// Moves what there is of the body.
///
/// # Errors
/// The client does not take it.
pub(super) async fn pump(
    client: &mut Client,
    x: &mut Exchange,
    allowed: Option<Duration>,
) -> Result<(), Fault> {
    client.timer.set_after(timer::now_ms(), allowed);
    let watch = Watch { leaving: false, late: Fault::ClientTimeout };
    let (reply, flow) = (&mut x.reply, &mut x.download);
    let send = |client: &mut Client, context: &mut Context<'_>| {
        flow.moved = false;
        let mut pumped = flow.poll_pump(context, Source::Stored(reply), &mut client.side.sink());
        if reply.is_open() && reply.bytes.is_empty() && !flow.is_blocked() && pumped.is_pending() {
            // All that there is has left; more comes when its maker puts it in.
            pumped = Poll::Ready(Ok(()));
        }
        if flow.moved {
            client.timer.set_after(timer::now_ms(), allowed);
        }
        pumped
    };
    match client.wait(watch, send).await {
        Ok(sent) => sent.map_err(|_| Fault::ClientAborted),
        Err(fault) => Err(fault),
    }
}

/// The body has left, or will not.
pub(super) fn end_reply(client: &mut Client, x: &mut Exchange, sent: Result<(), Fault>) -> Result<(), Fault> {
    x.txn.bytes_out += x.download.sent;
    if sent.is_ok() && !x.keep_alive {
        client.side.finish();
    }
    sent
}
