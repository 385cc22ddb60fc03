//! `http-request mirror`: sends a copy of the request to another backend, which has separate rules, balancing, queues and pools.
//! The response is read and discarded, and the request never waits for its copies. The hooks, in the order in which a request
//! reaches them:
//!
//! | point | function |
//! | --- | --- |
//! | rules | the driver of rule sets adds backends to [`Mirrors`](crate::exchange::Mirrors) |
//! | request head | [`begin`] sends the copies |
//! | body | `message::upload` adds the [`taps`](crate::exchange::Mirrors::taps) to the flow |
//!
//! A copy has the head after the rules changed it. If the body has arrived as a whole, the copy gets it directly; otherwise, the
//! body is copied while it is sent to the request's own server ([`Tapped`]). If a backend reads too slowly for the bounded
//! buffer, its copy is lost. The number of concurrent copies is limited; copies beyond the limit are counted but not sent.

use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;

use http::BodyLength;
use runtime::Boxed;
use runtime::timer::now_us;
use sample::Phase;

use super::internal_request::{self, InternalBody, InternalRequest};
use super::obtain::obtain_response;
use crate::client::Client;
use crate::evaluate;
use crate::exchange::{Exchange, Stop, sockets};
use crate::fault::Fault;
use crate::flow::{Coding, Path, Tap, Tapped, tap};
use crate::message::{conclude, download, fastcgi, fields, upload};
use crate::routing::{route, stick};
use crate::server::per_worker::LocalProxy;

/// The maximum number of concurrent copies per worker.
const MOST: usize = 128;

thread_local! {
    /// The number of copies running on the calling worker.
    static RUNNING: Cell<usize> = const { Cell::new(0) };
}

/// Sends copies of the request of `x` to the backends named by rules.
#[cold]
pub(super) fn begin(client: &Client, x: &mut Exchange) {
    let Some(mut mirrors) = x.mirrors.take() else { return };
    upload::look(client, x);
    for index in std::mem::take(&mut mirrors.targets) {
        let backend = client.worker.local(index);
        let counters = backend.state.keep_mirror().counters.mine();
        let running = InternalRequest::begin(&RUNNING, MOST);
        let (body, tap) = body(x);
        let coming = match &body {
            InternalBody::Coming(tapped, _) => Some(tapped.clone()),
            InternalBody::Whole(_) => None,
        };
        let made = running.and_then(|running| Some((running, internal_request::client(client, body).ok()?)));
        let Some((running, aside)) = made else {
            counters.dropped.add(1);
            continue;
        };
        counters.begun.add(1);
        mirrors.taps.extend(tap);
        let mut copy = Exchange::take();
        take_request(&mut copy, x);
        tokio::task::spawn_local(async move {
            let _running = running;
            run(aside, copy, backend, coming).await;
        });
    }
    if !mirrors.taps.is_empty() {
        x.mirrors = Some(mirrors);
    }
}

/// Returns the body of a copy, and the tap that fills it if the request's body is still arriving.
fn body(x: &Exchange) -> (InternalBody, Option<Rc<Tap>>) {
    if !x.has_body() || x.request_body.is_complete {
        let seen = if x.has_body() { x.request_body.seen.clone() } else { Vec::new() };
        return (InternalBody::Whole(seen), None);
    }
    let (tap, tapped) = tap();
    let coding = match x.request_body.length {
        BodyLength::Length(_) => Coding::Bare,
        _ => Coding::Chunked,
    };
    (InternalBody::Coming(Rc::new(tapped), coding), Some(Rc::new(tap)))
}

/// Copies the request of `x` to `copy`.
fn take_request(copy: &mut Exchange, x: &Exchange) {
    copy.txn.request = x.txn.request.clone();
    copy.txn.is_http = true;
    copy.txn.source = x.txn.source;
    copy.txn.destination = x.txn.destination;
    copy.head_only = x.head_only;
    if x.has_body() && !x.request_body.is_complete {
        copy.request_body.length = x.request_body.length;
        if !matches!(x.request_body.length, BodyLength::Length(_)) {
            copy.request_body.length = BodyLength::Chunked;
            copy.txn.request.set_chunked();
        }
    } else if x.has_body() {
        copy.request_body.seen.extend_from_slice(&x.request_body.seen);
        // The body of the copy is complete, regardless of its original framing.
        let length = copy.request_body.seen.len() as u64;
        copy.request_body.length = BodyLength::Length(length);
        copy.txn.request.set_content_length(length);
    }
    // The client has already sent the body, so no 100 is needed.
    copy.txn.request.remove_known(http::KnownName::Expect);
}

/// Serves a copy until its end, and counts the outcome. `coming` is the body, if it is still arriving.
async fn run(
    mut client: Boxed<Client>,
    mut copy: Box<Exchange>,
    backend: Rc<LocalProxy>,
    coming: Option<Rc<Tapped>>,
) {
    let traffic = || &backend.state.backend.mine().traffic;
    traffic().sessions.up();
    traffic().sessions_total.add(1);
    backend.state.backend.mine().requests_total.add(1);
    let outcome = match &coming {
        None => serve(&mut client, &mut copy, &backend).await,
        Some(body) => {
            let mut serving = pin!(serve(&mut client, &mut copy, &backend));
            // After the copy is lost, a server that does not read would otherwise keep the task alive.
            poll_fn(|context| match serving.as_mut().poll(context) {
                Poll::Pending => body.poll_cut(context).map(|()| Err(Fault::ClientCut.into())),
                served => served,
            })
            .await
        }
    };
    traffic().sessions.down();
    sockets::forget(&client, &mut copy);
    let counters = backend.state.keep_mirror().counters.mine();
    if copy.txn.server_status > 0 {
        counters.answered.add(1)
    } else if coming.is_some_and(|body| body.is_cut()) {
        counters.cut.add(1)
    } else {
        counters.failed.add(1)
    }
    if outcome.is_ok() {
        traffic().responses.add(copy.txn.status);
    }
    copy.give();
}

async fn serve(client: &mut Client, copy: &mut Exchange, backend: &Rc<LocalProxy>) -> Result<(), Stop> {
    copy.phase = Phase::Request;
    let now = now_us();
    (copy.txn.times.idle_from, copy.txn.times.started, copy.txn.times.request) = (now, now, now);
    copy.txn.id = client.worker.stream_id();
    copy.txn.request.watch_framing();
    client.entry.set_backend(&backend.held);
    copy.txn.backend = Some(backend.held.clone());
    copy.backend = Some(backend.clone());
    copy.upload.start(client.side.framing(copy.request_body.length), Path::Verbatim);
    evaluate::spoe::join(client, copy, backend);
    evaluate::of_backend(client, copy, backend).await?;
    upload::prepare(client, copy, backend).await?;
    fields::of_request(client, copy, backend)?;
    if let Some(app) = &backend.fcgi {
        upload::hold_for_application(client, copy, backend).await?;
        fastcgi::of_request(client, copy, app);
    }
    route::bind_server(client, copy, backend);
    stick::of_request(client, copy, backend);
    copy.choice.hash = route::hash(client, copy, backend);
    let (mut upstream, lease) = obtain_response::<true>(client, copy, backend).await?;
    fields::of_response(client, copy)?;
    if copy.is_tunnel {
        // The response is not needed.
        upstream.reset();
        return Ok(());
    }
    download::forward::<true>(client, copy, backend, &mut upstream).await?;
    let _ = conclude::after_response(client, copy, backend, upstream, lease);
    Ok(())
}
