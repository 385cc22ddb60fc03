//! Answers made by other crates: the statistics page and the services that rules name. Their bodies come in pieces, so that
//! a page of tens of thousands of servers neither stalls its worker nor fills its memory.

use std::future::poll_fn;

use plan::Proxy;
use sample::{Cause, Phase};

use crate::client::Client;
use crate::envs;
use crate::exchange::{Exchange, Stop};
use crate::route::holds;
use crate::worker::{ServiceReply, ServiceRequest};
use crate::{evaluate, respond};

/// `stats uri`: the page, after its own rules.
pub(crate) async fn statistics(client: &mut Client, x: &mut Exchange, proxy: &Proxy) -> Result<(), Stop> {
    let Some(page) = proxy.stats.clone() else { return Ok(()) };
    let method = x.txn.request.method_id();
    if !matches!(method, http::Method::Get | http::Method::Head | http::Method::Post)
        || !x.txn.request.target().starts_with(page.uri.as_bytes())
    {
        return Ok(());
    }
    let accepted = evaluate::of_http(client, x, proxy, &page.rules).await?;
    if !accepted && !page.users.is_empty() && !is_user(x, &page.users) {
        respond::error(client, x, 401);
        rules::challenge(401, &page.realm, &mut x.txn.response);
        x.txn.termination.set(Cause::Local, Phase::Request);
        return Err(Stop::Reply);
    }
    if method == http::Method::Post {
        evaluate::hold_body(client, x, proxy, usize::MAX, None).await?;
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
pub(crate) async fn run(client: &Client, x: &mut Exchange, service: rules::Service) -> Stop {
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
    let ServiceReply { status, headers, body } = reply;
    let head = &mut x.txn.response;
    head.clear();
    head.start_response(status, None);
    for (name, value) in &headers {
        head.append(name.as_bytes(), value.as_bytes());
    }
    x.reply.clear();
    x.reply.pieces = Some(body);
    poll_fn(|context| x.reply.poll_gather(context)).await;
    if x.reply.pieces.is_some() {
        x.txn.response.append(b"transfer-encoding", b"chunked");
    } else if x.txn.request.method_id() != http::Method::Head || status != 200 {
        // How long a page would be is known only once it is made, which HEAD spares.
        x.txn.response.set_content_length(x.reply.bytes.len() as u64);
    }
    x.txn.termination.set(Cause::Local, Phase::Request);
    Stop::Reply
}

/// Whether the request has the name and password of one of `users` (`stats auth`).
fn is_user(x: &Exchange, users: &[(Box<str>, Box<str>)]) -> bool {
    let header = x.txn.request.get_known(http::KnownName::Authorization);
    header.and_then(sample::auth::basic).is_some_and(|(name, password)| {
        users.iter().any(|(user, secret)| **user == *name && secret.as_bytes() == password)
    })
}
