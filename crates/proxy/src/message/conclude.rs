//! Decides about both connections after a complete response: they can be kept for the next request or closed, and the server's
//! can be reserved for this client.
//!
//! Called by `exchange` at its end, and before that by `fields`, which announces the decision to both sides.

use std::rc::Rc;

use http::{Head, KnownName};
use plan::Proxy;
use plan::proxy::Reuse;
use runtime::timer::now_us;
use sample::{ConnectionOutcome, Ending, Phase, StreamEnd};

use crate::client::Client;
use crate::exchange::Exchange;
use crate::exchange::Next;
use crate::exchange::sockets;
use crate::routing::assign::Lease;
use crate::server::Upstream;
use crate::server::h1::Connection;

/// Keeps or closes the two connections after a complete response.
// Inlined because this is on the hot path of a request, and the other callers are rare.
#[inline(always)]
pub(crate) fn after_response(
    client: &mut Client,
    x: &mut Exchange,
    backend: &Proxy,
    upstream: Upstream,
    lease: Lease,
) -> Next {
    x.phase = Phase::None;
    let uploaded = x.upload.is_finished();
    if !x.keep_alive && uploaded {
        // Closed immediately, because the client may be waiting for that.
        client.side.finish();
    }
    sockets::leave(client, x);
    if x.txn.times.closed == 0 {
        x.txn.times.closed = now_us();
    }
    let kept = keep_upstream(client, x, backend, upstream);
    x.txn.ending = ending(x, kept);
    drop(lease);
    if x.keep_alive && uploaded { Next::KeepAlive } else { Next::Close }
}

/// Keeps or closes only the server connection, after a response without a body that is sent to no client.
#[cold]
pub(crate) fn early(client: &Client, x: &mut Exchange, backend: &Proxy, upstream: Upstream, lease: Lease) {
    sockets::leave(client, x);
    x.server_closes = !x.txn.response.keep_alive();
    keep_upstream(client, x, backend, upstream);
    drop(lease);
}

/// Keeps the server's connection, for all requests or only for this client, or closes it. Returns whether it was kept.
// Inlined because this is on the hot path of a request, and the other callers are rare.
#[inline(always)]
fn keep_upstream(client: &Client, x: &Exchange, backend: &Proxy, upstream: Upstream) -> bool {
    let mut connection = match upstream {
        Upstream::Socket(connection) => connection,
        // The stream has ended. The connection is shared and managed elsewhere.
        Upstream::Stream(_) => {
            if backend.options.prefer_last_server {
                client.last_server.replace(Rc::downgrade(upstream.server()));
            }
            return true;
        }
    };
    let head = &x.txn.response;
    let uploaded = x.upload.is_finished();
    let lasts = uploaded && head.keep_alive() && !x.server_closes && !x.closes_server;
    let reusable = lasts
        && !connection.private
        && x.download.is_received()
        && client.keeps_server(backend)
        && connection.socket.is_drained();
    if reusable {
        connection.socket.input = None;
        note_last(client, backend, &connection);
        if backend.reuse == Reuse::Never || is_bound_to_client(head) {
            connection.private = is_bound_to_client(head);
            keep_private(client, connection);
        } else {
            client.worker.pools.put(connection);
        }
        return true;
    }
    if connection.private && lasts {
        note_last(client, backend, &connection);
        keep_private(client, connection);
        return true;
    }
    if uploaded && x.download.is_received() {
        connection.discard();
    }
    false
}

/// Returns how the connection ended, as its layers saw it (`term_events`).
fn ending(x: &Exchange, kept: bool) -> Ending {
    if kept {
        return Ending { end: StreamEnd::Whole, server: ConnectionOutcome::Kept, client_closed: false };
    }
    // If only the close marks the end of the response, the close was seen.
    let until_close = x.response_body.length == http::BodyLength::UntilClose;
    let end = if until_close { StreamEnd::ServerEnd } else { StreamEnd::Whole };
    Ending { end, server: ConnectionOutcome::Closed, client_closed: false }
}

/// Records the server of the connection's last request, because the next request may prefer it (`option prefer-last-server`).
fn note_last(client: &Client, backend: &Proxy, connection: &Connection) {
    if backend.options.prefer_last_server {
        client.last_server.replace(Rc::downgrade(&connection.open.server));
    }
}

fn keep_private(client: &Client, mut connection: Box<Connection>) {
    connection.socket.input = None;
    if connection.socket.stream.watch().is_err() {
        return;
    }
    let most = client.frontend.max_private_connections();
    client.private.borrow_mut().get_or_insert_default().keep(connection, most);
}

/// Whether the response uses connection-based authentication (NTLM, Negotiate), which binds the connection to its client.
fn is_bound_to_client(head: &Head) -> bool {
    let name = match head.status() {
        401 => KnownName::WwwAuthenticate,
        407 => KnownName::ProxyAuthenticate,
        _ => return false,
    };
    let schemes = [&b"Negotiate"[..], b"NTLM"];
    head.get_all(&name.into()).any(|value| schemes.iter().any(|own| http::begins_ignore_case(value, own)))
}
