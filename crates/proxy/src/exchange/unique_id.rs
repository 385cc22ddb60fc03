//! `unique-id-format`: the identifier of the request, for the server and for logs.

use crate::client::Client;
use crate::exchange::{Exchange, view};

/// Generates the unique ID, unless the request already has one.
pub(crate) fn make(client: &Client, x: &mut Exchange) {
    let Some(format) = &client.frontend.unique_id_format else { return };
    if x.txn.unique_id.is_none() {
        // A rule may already have used the ID.
        let id = x.txn.early_id.take().map_or_else(
            || {
                let mut id = Vec::new();
                view::with(client, x, |env| format.render(env, &mut id));
                id
            },
            Vec::from,
        );
        x.txn.unique_id = x.txn.keep(&id);
    }
}
