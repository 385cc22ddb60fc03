//! The request on its way to the server: its head as it is sent, its body as far as it must be held first
//! (`option http-buffer-request`, rules that look at it, retries), and sending it once more.

use std::future::poll_fn;
use std::task::{Context, Poll};

use config::plan::{Proxy, ServerSettings};
use http::{BodyLength, ChunkDecoder, ChunkEvent, KnownName, Method};
use runtime::Buffer;
use runtime::timer;

use crate::connection::Connection;
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;
use crate::flow::Recoding;
use crate::gate;

/// Holds the request back until its body is there, where the configuration asks for it.
pub(crate) async fn prepare(client: &mut Connection, x: &mut Exchange, backend: &Proxy) -> Result<(), Stop> {
    let buffered = client.frontend.options.http_buffer_request || backend.options.http_buffer_request;
    let by_parameter = matches!(
        backend.balance.algorithm,
        balance::Algorithm::UrlParam { check_post: true, .. } if x.txn.request.method_id() == Method::Post
    );
    let retry = &backend.retry_on;
    let replays = retry.empty_response
        || retry.junk_response
        || retry.response_timeout
        || retry.zero_rtt_rejected
        || !retry.statuses.is_empty();
    if !(buffered || by_parameter || replays) || !has_body(x) {
        return Ok(());
    }
    let timeouts = &client.frontend.timeouts;
    let allowed = timeouts.http_request.or(backend.timeouts.http_request).or(timeouts.client);
    Box::pin(hold(client, x, usize::MAX, allowed)).await?;
    if replays && x.body_complete {
        let input = client.input.as_ref().map_or(&[][..], |input| input.filled());
        let taken = body_bytes(x, input);
        x.replay.extend_from_slice(&input[..taken]);
    }
    Ok(())
}

/// Whether the request has a body.
pub(crate) fn has_body(x: &Exchange) -> bool {
    !x.upload.is_received() || x.upload.is_blocked()
}

/// How many bytes at the start of `input` are the body of the request.
fn body_bytes(x: &Exchange, input: &[u8]) -> usize {
    match x.request_length {
        BodyLength::None | BodyLength::UntilClose => 0,
        BodyLength::Length(n) => (n as usize).min(input.len()),
        BodyLength::Chunked => ChunkDecoder::new().track(input).unwrap_or(0),
    }
}

/// Waits until `wanted` bytes of the body, or all of it, or a whole buffer, are there, and decodes them for
/// rules to look at. What was held is still sent as it came.
pub(crate) async fn hold(
    client: &mut Connection,
    x: &mut Exchange,
    wanted: usize,
    allowed: Option<std::time::Duration>,
) -> Result<(), Stop> {
    if !has_body(x) || x.cut_short {
        x.body_complete |= !x.cut_short;
        return Ok(());
    }
    client.timer.set_after(timer::now_ms(), allowed);
    if x.expects_continue && client.input.as_ref().is_none_or(Buffer::is_empty) {
        send_continue(client).await?;
        x.expects_continue = false;
        // The client has its answer, and the body is on its way: nobody is asked twice.
        x.txn.request.remove_known(KnownName::Expect);
    }
    let held = hold_within(client, x, wanted).await;
    if held.is_err() {
        // What was waited for is part of the request, which was never complete.
        x.txn.times.request = 0;
    }
    held
}

/// Likewise, until the timer expires.
async fn hold_within(client: &mut Connection, x: &mut Exchange, wanted: usize) -> Result<(), Stop> {
    loop {
        let room = {
            decode(client, x)?;
            if x.body_complete || x.body.len() >= wanted {
                return Ok(());
            }
            let input = client.input();
            input.compact();
            input.room_len()
        };
        if room == 0 {
            return Ok(());
        }
        let read = poll_fn(|context: &mut Context<'_>| {
            if let Poll::Ready(read) = client.poll_fill(context) {
                return Poll::Ready(read.map_err(|_| Fault::RequestAborted));
            }
            client.timer.poll_expired(context).map(|()| Err(Fault::RequestTimeout))
        });
        if read.await? == 0 {
            // Rules still see what came; the request ends where it would leave for a server.
            x.cut_short = true;
            return Ok(());
        }
    }
}

/// Has rules see what of the body is there, without waiting for more. What is wrong with it shows when it is sent on.
pub(crate) fn look(client: &Connection, x: &mut Exchange) {
    if !x.body_complete && has_body(x) {
        let _ = decode(client, x);
    }
}

/// Decodes what is held from its beginning: bodies held are small, and seldom.
fn decode(client: &Connection, x: &mut Exchange) -> Result<(), Fault> {
    let input = client.input.as_ref().map_or(&[][..], |input| input.filled());
    let length = match x.request_length {
        BodyLength::UntilClose => BodyLength::None,
        length => length,
    };
    x.body_complete = decode_body(length, input, &mut x.body).map_err(|_| Fault::BadRequestBody)?;
    Ok(())
}

/// Decodes as much of a body as lies in `input`; says whether that is all of it.
pub(crate) fn decode_body(length: BodyLength, input: &[u8], out: &mut Vec<u8>) -> Result<bool, Fault> {
    out.clear();
    match length {
        BodyLength::None => Ok(true),
        BodyLength::UntilClose => {
            out.extend_from_slice(input);
            Ok(false)
        }
        BodyLength::Length(n) => {
            let n = usize::try_from(n).unwrap_or(usize::MAX);
            out.extend_from_slice(&input[..n.min(input.len())]);
            Ok(input.len() >= n)
        }
        BodyLength::Chunked => {
            let mut decoder = ChunkDecoder::new();
            let mut at = 0;
            loop {
                match decoder.decode(input, at).map_err(|_| Fault::BadResponseBody)? {
                    ChunkEvent::Data { range } => {
                        at = range.end;
                        out.extend_from_slice(&input[range]);
                    }
                    ChunkEvent::More => return Ok(false),
                    ChunkEvent::Done { .. } => return Ok(true),
                }
            }
        }
    }
}

async fn send_continue(client: &mut Connection) -> Result<(), Fault> {
    write_all(client, b"HTTP/1.1 100 Continue\r\n\r\n").await
}

/// Writes all of `bytes` to the client, within the timer's deadline.
pub(crate) async fn write_all(client: &mut Connection, mut bytes: &[u8]) -> Result<(), Fault> {
    while !bytes.is_empty() {
        let written = poll_fn(|context: &mut Context<'_>| {
            if let Poll::Ready(written) = client.stream.poll_write(context, bytes) {
                return Poll::Ready(written.map_err(|_| Fault::ClientAborted));
            }
            client.timer.poll_expired(context).map(|()| Err(Fault::ClientTimeout))
        });
        bytes = &bytes[written.await?..];
    }
    Ok(())
}

/// Makes the head ready to be sent to `server`, before the body.
pub(crate) fn start(client: &mut Connection, x: &mut Exchange, backend: &Proxy, server: &ServerSettings) {
    let length = x.request_length;
    let recoding = match length {
        _ if x.drops_body => Recoding::Discard,
        BodyLength::Chunked if backend.options.http_drop_request_trailers => Recoding::DropTrailers,
        _ => Recoding::None,
    };
    x.upload.start(length, recoding);
    let staged = &mut x.upload.staged;
    staged.append(&mut x.preamble);
    if let Some(name) = &backend.send_name_header {
        x.txn.request.set(&http::Name::new(name.as_bytes()), server.state.name.as_bytes());
    }
    let adjust = &client.worker.shared.plan.global.h1_case_adjust;
    if backend.options.h1_case_adjust_bogus_server && !adjust.is_empty() {
        x.txn.request.write_adjusted(staged, |name| crate::fields::adjusted(adjust, name));
    } else {
        x.txn.request.write_to(staged);
    }
    gate::install(x, &client.frontend, true);
    if let Some(input) = &mut client.input {
        // Broken coding shows when the body is pumped: the head goes out first, as it would have anyway.
        let _ = x.upload.admit(input);
    }
    x.upload_pipe = None;
    if !x.upload.is_received() {
        let wanted = |options: &config::plan::Options| options.splice_request || options.splice_auto;
        x.upload_pipe = crate::response::splice_pipe(client, backend, &x.upload, wanted);
    }
}

/// Whether the request can be sent from its beginning again: the client's buffer still has its body from the first byte,
/// or the whole body was kept.
pub(crate) fn can_rewind(x: &Exchange) -> bool {
    x.upload.consumed() == 0 || !x.replay.is_empty()
}

/// Puts back what an attempt took of the body, so that the client's buffer begins with the whole of it again and
/// nothing counts as taken. Only where [`can_rewind`] says so; an attempt that took nothing changes nothing.
pub(crate) fn rewind(client: &mut Connection, x: &mut Exchange) {
    if x.upload.consumed() > 0 {
        // What is left of the body in the buffer is part of what was kept.
        let rest = client.input.take();
        let rest = rest.as_ref().map_or(&[][..], |input| &input.filled()[x.upload.ready()..]);
        let mut again = Buffer::holding(x.replay.len() + rest.len());
        again.push(&x.replay);
        again.push(rest);
        client.input = Some(again);
    }
    x.upload.start(x.request_length, Recoding::None);
}
