//! The view of a connection and its request for expressions. Created briefly for each evaluation.

use runtime::timer::now_ms;
use sample::{Condition, Env, Test};

use crate::client::Client;
use crate::exchange::Exchange;
use crate::exchange::sockets::StreamSockets;

/// Calls `look` with a view of `client` and `x` to which no more data will be added.
pub(crate) fn with<R>(client: &Client, x: &Exchange, look: impl FnOnce(&Env<'_>) -> R) -> R {
    let sockets = StreamSockets::of(client, &x.server_socket);
    look(&Env {
        sockets: Some(&sockets),
        request_bytes: x.request_bytes(client),
        response_bytes: &x.response_body.seen,
        ..Env::of(&client.worker.shared.process, &client.session, &x.txn, now_ms())
    })
}

/// Whether a condition is currently true. Without a condition, returns true.
pub(crate) fn holds(condition: Option<&Condition>, env: &Env<'_>) -> bool {
    condition.is_none_or(|condition| condition.eval(env) == Test::Yes)
}
