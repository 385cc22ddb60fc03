//! Sends a generated response: its head, and the available part of its body. Called by `reply`, and by `lua::service`, which
//! produces the body in a script.

use std::task::{Context, Poll};
use std::time::Duration;

use http::BodyLength;
use runtime::timer;

use crate::client::{Client, Watch};
use crate::exchange::{Exchange, filters, trace};
use crate::fault::Fault;
use crate::flow::{Coding, Filters, FlowError, Path, Source};
use crate::message::{compression, lua};

/// Returns how the end of the body of a service's response is marked.
pub(super) fn length(x: &Exchange) -> BodyLength {
    let service = x.scripting.as_ref().and_then(|scripting| scripting.service.as_ref());
    let bodiless = x.head_only || matches!(x.txn.response.status(), 100..=199 | 204 | 304);
    let known_length = match &x.reply.feed {
        Some(feed) => feed.1,
        None => service.and_then(|service| service.left),
    };
    match known_length {
        _ if bodiless => BodyLength::None,
        Some(length) => BodyLength::Length(length),
        None => BodyLength::Chunked,
    }
}

/// Returns how the end of the body of any generated response is marked, before filters see it.
pub(super) fn reply_length(x: &Exchange) -> BodyLength {
    let bodiless = x.head_only || matches!(x.txn.response.status(), 100..=199 | 204 | 304);
    match x.reply.pieces {
        Some(_) => BodyLength::Chunked,
        None if x.reply.is_open() => length(x),
        None if bodiless => BodyLength::None,
        None if let Some(framing) = x.reply.framing() => framing,
        None => BodyLength::Length(x.reply.len()),
    }
}

/// Prepares the head for sending, and the coding of the body.
pub(super) fn begin_reply(client: &mut Client, x: &mut Exchange) {
    let bodiless = x.head_only || matches!(x.txn.response.status(), 100..=199 | 204 | 304);
    let length = reply_length(x);
    match x.reply.is_filtered {
        true => begin_filtered(client, x, length, bodiless),
        false => {
            let path = path(client, x, length);
            x.download.start(if bodiless { BodyLength::None } else { length }, path);
        }
    }
    trace::events::answer(client, x);
    x.txn.bytes_out += client.side.send_head(&x.txn.response, &mut x.download);
    if x.reply.is_filtered {
        filters::install(client, x, false);
    }
    x.download.ends = !x.keep_alive;
}

/// Sets the response's framing for a body of this length. Returns the path on which the body is sent.
fn path(client: &Client, x: &mut Exchange, length: BodyLength) -> Path {
    match crate::message::fields::frame_for_client(client, x, length, true) {
        // The pieces do not have chunked framing yet.
        Path::Verbatim if length == BodyLength::Chunked => Path::Payload(Coding::Chunked),
        path => path,
    }
}

/// Starts a response that passes through filters.
#[cold]
fn begin_filtered(client: &mut Client, x: &mut Exchange, length: BodyLength, bodiless: bool) {
    let coding = compression::of_reply(client, x);
    let mut shown = if coding.is_some() { BodyLength::Chunked } else { length };
    let is_scripted = x.filtering.is_some() && lua::body::sees_response(x);
    if is_scripted {
        shown = lua::body::frame(x, true, length, coding.is_some());
    }
    let mut path = path(client, x, shown);
    let filters = if is_scripted {
        path = lua::body::path(shown, path);
        lua::body::filters(x, true, shown, coding)
    } else {
        Filters::of(coding)
    };
    match filters {
        Some(filters) => x.download.start_filtered(length, path, filters),
        None => x.download.start(if bodiless { BodyLength::None } else { length }, path),
    }
}

/// Sends the available part of the body.
///
/// # Errors
/// The client does not accept it.
pub(super) async fn pump(
    client: &mut Client,
    x: &mut Exchange,
    allowed: Option<Duration>,
) -> Result<(), Fault> {
    client.timer.set_after(timer::now_ms(), allowed);
    let watch = Watch { leaving: false, late: Fault::ClientTimeout };
    let send = |client: &mut Client, context: &mut Context<'_>| {
        x.download.moved = false;
        let mut pumped = poll_reply(client, x, context);
        let flow = &x.download;
        if x.reply.is_open()
            && x.reply.bytes.is_empty()
            && !flow.is_blocked()
            && !flow.is_held()
            && pumped.is_pending()
        {
            // Everything available was sent. The producer adds more later.
            pumped = Poll::Ready(Ok(()));
        }
        if flow.moved {
            client.timer.set_after(timer::now_ms(), allowed);
        }
        pumped
    };
    match client.wait(watch, send).await? {
        Ok(()) => Ok(()),
        Err(FlowError::Filter) => {
            // The client must not treat the body as complete.
            client.side.reset();
            Err(Fault::BadResponseBody)
        }
        Err(_) => Err(Fault::ClientAborted),
    }
}

/// Moves the available part of the body through script filters to the client.
fn poll_reply(
    client: &mut Client,
    x: &mut Exchange,
    context: &mut Context<'_>,
) -> Poll<Result<(), FlowError>> {
    loop {
        let from = Source::Stored(&mut x.reply);
        let pumped = x.download.poll_pump(context, from, &mut client.side.sink());
        if pumped.is_ready() || x.filtering.is_none() || !lua::pump::run(client, x, true, context)? {
            return pumped;
        }
    }
}

/// Called when the body was sent, or failed.
pub(super) fn end_reply(client: &mut Client, x: &mut Exchange, sent: Result<(), Fault>) -> Result<(), Fault> {
    x.txn.bytes_out += x.download.sent;
    if sent.is_ok() && !x.keep_alive {
        client.side.finish();
    }
    sent
}
