//! Error pages and rule replies, rendered into the transaction; `serve::reply` sends them.

use std::sync::Arc;

use rules::Reply;

use crate::client::Client;
use crate::exchange::{Exchange, view};

/// Renders the error response for `status`: the backend's page, the frontend's page, or the built-in one.
pub(crate) fn error(client: &Client, x: &mut Exchange, status: u16) {
    x.txn.response.clear();
    x.reply.clear();
    x.error_status = status;
    let custom = find_error(client, x, status);
    match custom {
        Some(reply) if reply.bare_status().is_none() => render(client, x, &reply),
        _ => {
            let message = http::status::error_message(status)
                .or_else(|| http::status::error_message(if status >= 500 { 500 } else { 400 }));
            if let Some(message) = message {
                message.response(&mut x.txn.response, &mut x.reply.bytes);
            }
        }
    }
}

/// Returns the configured page for `status`.
pub(crate) fn find_error(client: &Client, x: &Exchange, status: u16) -> Option<Arc<Reply>> {
    let of = |proxy: &plan::Proxy| {
        proxy.errors.iter().find(|(code, _)| *code == status).map(|(_, reply)| reply.clone())
    };
    x.backend.as_ref().and_then(|backend| of(backend)).or_else(|| of(&client.frontend))
}

/// Renders a rule's reply into the transaction's response and `reply_body`.
pub(crate) fn render(client: &Client, x: &mut Exchange, reply: &Reply) {
    let mut head = std::mem::take(&mut x.txn.response);
    let mut body = std::mem::take(&mut x.reply.bytes);
    head.clear();
    body.clear();
    x.reply.clear();
    // The reply's formats can refer to the status.
    x.txn.status = if x.error_status > 0 { x.error_status } else { reply.status };
    view::with(client, x, |env| reply.render(env, &mut head, &mut body));
    x.txn.response = head;
    x.reply.bytes = body;
}
