//! Answers made by other crates: the statistics page and the services that rules name. Their bodies
//! come in pieces, so that a page of tens of thousands of servers neither stalls its worker nor
//! fills its memory.

use std::future::poll_fn;

use sample::{Cause, Phase};

use crate::client::Client;
use crate::exchange::{Exchange, Stop};
use crate::shared::{ServiceReply, ServiceRequest};

/// `http-request use-service prometheus-exporter`.
pub(crate) async fn metrics(client: &Client, x: &mut Exchange) -> Stop {
    let request = ServiceRequest {
        method: x.txn.request.method(),
        target: x.txn.request.plain_target(),
        body: &x.request_body.seen,
        admin: false,
    };
    let reply = (client.worker.shared.services.metrics)(&request);
    answer(x, reply, "<PROMEX>").await
}

/// Makes the reply the answer to the request, as if a server of that name had been reached at once.
pub(crate) async fn answer(x: &mut Exchange, reply: ServiceReply, name: &'static str) -> Stop {
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
    x.reply.is_filtered = true;
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
