//! The view that expressions get of a connection and its request, made for a moment.

use std::cell::Cell;

use runtime::timer::now_ms;
use sample::Env;

use crate::connection::Connection;
use crate::exchange::Exchange;

/// Calls `look` with the view of `client` and `x`, nothing more to come.
pub(crate) fn with<R>(client: &Connection, x: &Exchange, look: impl FnOnce(&Env<'_>) -> R) -> R {
    let request_bytes = x.request_bytes(client);
    look(&Env {
        process: &client.worker.shared.process,
        session: Some(&client.session),
        transaction: Some(&x.txn),
        request_bytes,
        response_bytes: &x.response_bytes,
        complete: true,
        may_change: Cell::new(false),
        now_ms: now_ms(),
    })
}
