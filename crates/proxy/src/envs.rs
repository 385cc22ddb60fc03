//! The view that expressions get of a connection and its request, made for a moment.

use runtime::timer::now_ms;
use sample::Env;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::sockets::Sockets;

/// Calls `look` with the view of `client` and `x`, nothing more to come.
pub(crate) fn with<R>(client: &Client, x: &Exchange, look: impl FnOnce(&Env<'_>) -> R) -> R {
    let sockets = Sockets::of(client, x);
    look(&Env {
        sockets: Some(&sockets),
        request_bytes: x.request_bytes(client),
        response_bytes: &x.response_bytes,
        ..Env::of(&client.worker.shared.process, &client.session, &x.txn, now_ms())
    })
}
