//! Receives the head of a request, and records the values that later steps need before any rule runs.

use std::future::poll_fn;
use std::io;
use std::task::{Context, Poll};

use base::clock::WallTime;
use base::event_counter;
use base::event_counter::EventCounter;
use http::Method;
use runtime::timer::{self, now_us};
use sample::track::{self, CountedEvent, Trackers};

use crate::client::Client;
use crate::exchange::Arrival;
use crate::exchange::{Exchange, Stop, trace};
use crate::fault::Fault;
use crate::flow::Path;
use crate::message::websocket;
use crate::violation;

pub(crate) static LET_PASS: EventCounter =
    event_counter!(Glitch, "note_glitch()", "malformed request accepted because of an option");

/// Receives the head of the next request into the transaction.
pub(crate) async fn receive(client: &mut Client, x: &mut Exchange, arrival: Arrival) -> Result<(), Stop> {
    let received = receive_head(client, x, arrival).await;
    if let Err(stop) = received {
        // A partial head must not be inspected.
        x.txn.request.clear();
        if stop != Stop::Silent {
            // A malformed request is still counted.
            let counters = client.frontend.state.frontend.mine();
            counters.requests_total.add(1);
            counters.request_rate.tick(timer::now_ms());
            x.note(client, CountedEvent::Request);
            if matches!(stop, Stop::Fault(Fault::BadRequest(_) | Fault::RequestTimeout)) {
                x.note(client, CountedEvent::Error);
            }
        }
    }
    received
}

async fn receive_head(client: &mut Client, x: &mut Exchange, arrival: Arrival) -> Result<(), Stop> {
    let mut begun = false;
    if matches!(arrival, Arrival::Received) {
        begin(client, x);
        x.txn.bytes_in += x.txn.request.written_len() as u64;
        x.txn.client_stream = client.side.stream_facts();
        if let Some(breach) = x.txn.request.violation() {
            note_glitch(client, &breach)?;
        }
        return complete(client, x, x.txn.times.started);
    }
    if !client.side.is_drained() {
        begin(client, x);
        begun = true;
        let now = x.txn.times.started;
        if let Arrival::Begun { since, .. } = arrival {
            let times = &mut x.txn.times;
            times.started_wall = times.started_wall.saturating_sub(now.saturating_sub(since));
            times.started = since;
        }
        if parse(client, x)? {
            return complete(client, x, now);
        }
        if matches!(arrival, Arrival::Begun { late: true, .. }) {
            return Err(Fault::RequestTimeout.into());
        }
        limit(client, x)?;
    }
    if matches!(arrival, Arrival::Expired) {
        begin(client, x);
        return Err(empty(client, x, Fault::RequestTimeout));
    }
    loop {
        let read = poll_fn(|context: &mut Context<'_>| {
            if let Poll::Ready(killed) = client.poll_killed(context) {
                return Poll::Ready(Err(killed));
            }
            let read = if begun { client.poll_rest(context) } else { client.poll_fill(context) };
            if let Poll::Ready(read) = read {
                return Poll::Ready(Ok(read));
            }
            client.timer.poll_expired(context).map(|()| Ok(Err(io::ErrorKind::TimedOut.into())))
        })
        .await?;
        let mut broken = false;
        let n = match read {
            Ok(n) => n,
            Err(error) if error.kind() == io::ErrorKind::TimedOut && begun => {
                return Err(Fault::RequestTimeout.into());
            }
            Err(_) => {
                broken = true;
                0
            }
        };
        let at_once = !begun;
        if at_once {
            begin(client, x);
            begun = true;
        }
        if n == 0 {
            let silent = client.side.is_drained();
            return Err(match (silent, broken) {
                (true, true) => empty(client, x, Fault::RequestAborted),
                (true, false) => empty(client, x, Fault::RequestCut),
                (false, true) => Fault::RequestAborted.into(),
                (false, false) => Fault::RequestCut.into(),
            });
        }
        if parse(client, x)? {
            // For a head that arrived in one piece, the clock is read only once.
            let now = if at_once { x.txn.times.started } else { now_us() };
            return complete(client, x, now);
        }
        limit(client, x)?;
    }
}

/// Sets the deadline. The whole head must arrive within `timeout http-request`, regardless of the number of pieces. If that is
/// not set, each piece must arrive within `timeout client`.
fn limit(client: &Client, x: &Exchange) -> Result<(), Fault> {
    let timeouts = &client.frontend.timeouts;
    match timeouts.http_request {
        Some(allowed) => client.timer.set_after(x.txn.times.started / 1000, Some(allowed)),
        None => client.timer.set_after(timer::now_ms(), timeouts.client),
    }
    if client.timer.deadline() <= timer::now_ms() { Err(Fault::RequestTimeout) } else { Ok(()) }
}

/// Handles a connection that ended or expired before its first byte. This is an error only if it was waiting for its first
/// request and `option http-ignore-probes` is not set. It is logged unless `option dontlognull` is set.
fn empty(client: &Client, x: &mut Exchange, fault: Fault) -> Stop {
    let options = &client.frontend.options;
    if client.session.requests.get() > 0 || options.http_ignore_probes {
        return Stop::Silent;
    }
    if options.dontlognull {
        x.txn.log_level = Some(None);
    }
    // There was no first byte.
    x.txn.times.started = client.session.accepted_us;
    x.txn.times.started_wall = client.session.accepted_wall_us;
    Stop::Fault(fault)
}

/// Records the beginning of a request.
fn begin(client: &mut Client, x: &mut Exchange) {
    let now = now_us();
    let times = &mut x.txn.times;
    times.started = now;
    if client.prepared().logs {
        times.started_wall = WallTime::now().since_1970_us();
    }
    if times.idle_from > now || client.session.requests.get() > 0 && times.idle_from == 0 {
        times.idle_from = now;
    }
}

/// Parses the received bytes. Returns whether the head is complete.
fn parse(client: &mut Client, x: &mut Exchange) -> Result<bool, Stop> {
    let options = &client.link.prepared().request_options;
    match client.side.read_head(&mut x.txn.request, options) {
        Ok(None) => Ok(false),
        Ok(Some(length)) => {
            x.txn.bytes_in += length as u64;
            if let Some(breach) = x.txn.request.violation() {
                note_glitch(client, &breach)?;
            }
            client.side.consume_head(length);
            Ok(true)
        }
        Err(error) => {
            capture_error(client, &error);
            x.note(client, CountedEvent::Glitches(1));
            Err(Fault::BadRequest(error.kind).into())
        }
    }
}

/// Records a tolerated protocol violation for `show errors`. Too many violations end the connection.
#[cold]
fn note_glitch(client: &mut Client, breach: &http::ParseError) -> Result<(), Stop> {
    LET_PASS.note();
    capture_error(client, breach);
    client.session.glitches.set(client.session.glitches.get() + 1);
    track::note(&client.session, &Trackers::default(), CountedEvent::Glitches(1), timer::now_ms());
    let most = client.worker.shared.plan.global.tune.glitches;
    if violation::is_enough(client.session.glitches.get(), most.client, most.cpu_usage) {
        return Err(Stop::Silent);
    }
    Ok(())
}

/// Keeps a malformed request for `show errors`.
fn capture_error(client: &mut Client, error: &http::ParseError) {
    let input = client.side.received();
    crate::exchange::finish::note_malformed(client, None, input, error);
}

/// Counts the request, which is complete at `now`, and records values of the original request that logs and later steps need.
fn complete(client: &mut Client, x: &mut Exchange, now: u64) -> Result<(), Stop> {
    let length = client.side.body_length(&x.txn.request).map_err(|error| {
        capture_error(client, &error);
        Fault::BadRequest(error.kind)
    })?;
    x.request_body.length = length;
    x.request_body.is_bare = client.side.is_bare();
    if x.request_body.is_bare {
        websocket::give_key(x);
    }
    x.txn.times.request = now;
    client.session.requests.set(client.session.requests.get() + 1);
    x.txn.id = client.worker.stream_id();
    let counters = client.frontend.state.frontend.mine();
    counters.requests_total.add(1);
    counters.request_rate.tick(now / 1000);
    client.worker.shared.process.counters.mine().requests.add(1);
    let head = &mut x.txn.request;
    x.keep_alive = client.side.clean_request(head);
    head.watch_framing();
    x.head_only = head.method_id() == Method::Head;
    if client.session.glitches.get() > 0 {
        let most = client.worker.shared.plan.global.tune.glitches;
        x.keep_alive &=
            !violation::is_nearly_enough(client.session.glitches.get(), most.client, most.cpu_usage);
    }
    if client.frontend.options.http_use_proxy_header {
        x.txn.to_proxy = !matches!(head.target().first(), None | Some(b'/' | b'*'));
    }
    x.request_body.expects_continue = head.expects_continue() && head.version().is_11_or_above();
    x.upload.start(client.side.framing(length), Path::Verbatim);
    let wanted = client.worker.shared.plan.variables.wants_request_line();
    if wanted || client.prepared().logs || client.frontend.unique_id_format.is_some() {
        note_request_line(client, x);
    }
    // The response needs its empty slots too, because logs show one field per slot for responses of any origin.
    x.txn.response_captures.resize(client.frontend.response_captures.len(), None);
    if !client.frontend.request_captures.is_empty() {
        capture(client, x);
    }
    trace::events::request(client, x);
    Ok(())
}

fn note_request_line(client: &Client, x: &mut Exchange) {
    let longest = client.worker.shared.plan.global.tune.log_uri_length;
    let mut line = std::mem::take(&mut x.reply.bytes);
    x.txn.request.write_start_line(&mut line);
    line.truncate(line.len().saturating_sub(2).min(longest.saturating_sub(1)));
    x.txn.request_line = x.txn.keep(&line);
    client.entry.note_request_line(&line);
    line.clear();
    x.reply.bytes = line;
}

/// `capture request header`.
fn capture(client: &Client, x: &mut Exchange) {
    let frontend = &client.frontend;
    x.txn.request_captures.resize(frontend.request_captures.len(), None);
    for (index, capture) in frontend.request_captures.iter().enumerate() {
        let Some(name) = &capture.header else { continue };
        if let Some(value) = x.txn.request.nth_line(name, -1) {
            let value = value[..value.len().min(capture.length)].to_vec();
            x.txn.request_captures[index] = x.txn.keep(&value);
        }
    }
}

/// Receives the bytes of a TCP stream that have already arrived, for rules that inspect them. Most clients that send first have
/// sent something by this time.
pub(crate) async fn look(client: &mut Client) {
    let mut is_first = true;
    poll_fn(|context: &mut Context<'_>| {
        // An error will occur again when the stream continues.
        if !client.side.is_drained() || client.poll_fill(context).is_ready() {
            return Poll::Ready(());
        }
        if std::mem::take(&mut is_first) {
            // Gives the reactor a chance to run once.
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        client.side.release();
        Poll::Ready(())
    })
    .await;
}
