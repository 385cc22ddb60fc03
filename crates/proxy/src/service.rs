//! Answers made by other rooms: the statistics page and the services that rules name. Their bodies come in pieces, so that
//! a page of tens of thousands of servers neither stalls its worker nor fills its memory.

use std::time::{Duration, Instant};

use config::plan::Proxy;
use http::BodyLength;
use runtime::timer;
use sample::transaction::TimeoutSlot;
use sample::{Cause, Phase};

use crate::connection::Connection;
use crate::envs;
use crate::exchange::{Exchange, Stop};
use crate::fault::Fault;
use crate::flow::Recoding;
use crate::route::holds;
use crate::worker::{ServiceReply, ServiceRequest};
use crate::{respond, rules_step, upload};

/// A body in pieces, each made when it is asked for.
pub(crate) type Pieces = Box<dyn Iterator<Item = Vec<u8>>>;

/// So many bytes are gathered before they are sent; a body that is not longer is sent whole.
const PORTION: usize = 16 * 1024;

/// How long pieces are made without a pause.
const TURN: Duration = Duration::from_micros(200);

/// `stats uri`: the page, after its own rules.
pub(crate) async fn statistics(client: &mut Connection, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    let Some(page) = proxy.stats.clone() else { return Ok(()) };
    let method = x.txn.request.method_id();
    if !matches!(method, http::Method::Get | http::Method::Head | http::Method::Post)
        || !x.txn.request.target().starts_with(page.uri.as_bytes())
    {
        return Ok(());
    }
    let accepted = rules_step::run(client, x, proxy, &page.rules, None).await?;
    if !accepted && !page.users.is_empty() && !is_user(x, &page.users) {
        respond::error(client, x, 401);
        rules::challenge(401, &page.realm, &mut x.txn.response);
        x.txn.termination.set(Cause::Local, Phase::Request);
        return Err(Stop::Reply);
    }
    if method == http::Method::Post {
        rules_step::hold_body(client, x, proxy, usize::MAX, None).await?;
    }
    let admin = envs::with(client, x, |env| page.admin.iter().any(|condition| holds(Some(condition), env)));
    let request = ServiceRequest {
        method: x.txn.request.method(),
        target: x.txn.request.target(),
        body: &x.body,
        admin,
    };
    let reply = (client.worker.shared.services.statistics)(proxy, &page, &request);
    Err(answer(x, reply, "<STATS>").await)
}

/// `http-request use-service`.
pub(crate) async fn run(client: &Connection, x: &mut Exchange, service: rules::Service) -> Stop {
    let request = ServiceRequest {
        method: x.txn.request.method(),
        target: x.txn.request.target(),
        body: &x.body,
        admin: false,
    };
    let (reply, name) = match service {
        rules::Service::PrometheusExporter => ((client.worker.shared.services.metrics)(&request), "<PROMEX>"),
    };
    answer(x, reply, name).await
}

/// Makes the reply the answer to the request, as if a server of that name had been reached at once.
async fn answer(x: &mut Exchange, reply: ServiceReply, name: &'static str) -> Stop {
    x.txn.service = Some(name);
    let times = &mut x.txn.times;
    (times.queued, times.connected, times.response) = (times.request, times.request, times.request);
    let ServiceReply { status, headers, mut body } = reply;
    let head = &mut x.txn.response;
    head.clear();
    head.start_response(status, None);
    for (name, value) in &headers {
        head.append(name.as_bytes(), value.as_bytes());
    }
    x.reply_body.clear();
    if gather(&mut body, &mut x.reply_body).await {
        x.pieces = Some(body);
        x.txn.response.append(b"transfer-encoding", b"chunked");
    } else if x.txn.request.method_id() != http::Method::Head || status != 200 {
        // How long a page would be is known only once it is made, which HEAD spares.
        x.txn.response.set_content_length(x.reply_body.len() as u64);
    }
    x.txn.termination.set(Cause::Local, Phase::Request);
    Stop::Reply
}

/// Takes pieces until there is a portion; says whether there may be more. Pieces may be empty and take their time all the
/// same, so that others have their turn after a while.
async fn gather(pieces: &mut Pieces, portion: &mut Vec<u8>) -> bool {
    let mut since = Instant::now();
    while portion.len() < PORTION {
        match pieces.next() {
            Some(mut piece) => portion.append(&mut piece),
            None => return false,
        }
        if since.elapsed() >= TURN {
            tokio::task::yield_now().await;
            since = Instant::now();
        }
    }
    true
}

/// Sends the head and a body in pieces whose first portion lies in `reply_body`. Other connections of the worker have
/// their turn between portions.
pub(crate) async fn stream(
    client: &mut Connection,
    x: &mut Exchange,
    mut pieces: Pieces,
) -> Result<(), Fault> {
    let recoding = crate::fields::adapt_connection(client, x, BodyLength::Chunked, true);
    let chunked = recoding == Recoding::None;
    let mut out = std::mem::take(&mut x.body);
    out.clear();
    x.txn.response.write_to(&mut out);
    let allowed = x.timeout(TimeoutSlot::Client, client.frontend.timeouts.client);
    let mut more = !x.head_only;
    if x.head_only {
        x.reply_body.clear();
    }
    loop {
        let portion = &mut x.reply_body;
        if chunked && !portion.is_empty() {
            out.extend_from_slice(format!("{:x}\r\n", portion.len()).as_bytes());
        }
        out.extend_from_slice(portion);
        if chunked && !portion.is_empty() {
            out.extend_from_slice(b"\r\n");
        }
        if chunked && !more && !x.head_only {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        portion.clear();
        client.timer.set_after(timer::now_ms(), allowed);
        let sent = upload::write_all(client, &out).await;
        x.txn.bytes_out += out.len() as u64;
        out.clear();
        if sent.is_err() || !more {
            x.body = out;
            return sent;
        }
        tokio::task::yield_now().await;
        more = gather(&mut pieces, &mut x.reply_body).await;
    }
}

/// Whether the request has the name and password of one of `users` (`stats auth`).
fn is_user(x: &Exchange, users: &[(Box<str>, Box<str>)]) -> bool {
    let header = x.txn.request.get_known(http::KnownName::Authorization);
    header.and_then(sample::auth::basic).is_some_and(|(name, password)| {
        users.iter().any(|(user, secret)| **user == *name && secret.as_bytes() == password)
    })
}
