//! A peer's connection (configuration manual, 11.2). After the accept and the TLS handshake, the `peers` section serves it. This
//! module counts, lists and kills it like any other connection, and logs its end.

use std::future::poll_fn;
use std::task::Poll;

use state::sessions::Activity;

use crate::client::ClientConnection;

/// Serves a connection to its end.
pub(super) async fn serve(mut client: ClientConnection) {
    if client.side.is_early() && !Box::pin(client.settle()).await {
        return;
    }
    let socket = client.socket();
    let early = socket.input.as_ref().map_or_else(Vec::new, |input| input.filled().to_vec());
    let Ok(stream) = socket.stream.take() else { return client.side.reset() };
    client.side.release();
    client.session.requests.set(1);
    client.entry.requests.set(1);
    client.entry.activity.set(Activity::Request);
    let place = client.frontend.index;
    let mut served = (client.worker.shared.services.serve_peer)(place, stream, early);
    poll_fn(|context| {
        // A long-lived connection must not keep an outdated plan alive.
        client.follow_plan();
        match served.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(()),
            Poll::Pending => client.poll_killed(context).map(|_| ()),
        }
    })
    .await;
}
