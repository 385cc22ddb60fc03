//! Accepting connections of a `stats socket` and handing each to the runtime API.

use std::future::poll_fn;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::task::Poll;
use std::time::Duration;

use control::Runtime;
use net::{Listener, Stream};
use proxy::Shared;

use crate::view;

/// Serves runtime socket number `number` of the plan, until a soft stop.
pub(crate) async fn serve(runtime: Arc<Runtime>, shared: Arc<Shared>, listener: Listener, number: usize) {
    let bind = &shared.plan.global.stats_sockets[number];
    let (level, severity) = (view::level(bind.level), view::severity(bind.severity_output));
    loop {
        let accepted = poll_fn(|context| {
            if shared.process.closing.load(Relaxed) {
                return Poll::Ready(None);
            }
            bind.listener.wait(context.waker().clone());
            listener.poll_accept(context).map(Some)
        });
        // A process that stops leaves the address to its successor.
        let Some(accepted) = accepted.await else { return };
        let Ok(accepted) = accepted else {
            // Descriptors ran out, most likely: the next attempt may find some.
            runtime::timer::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let Ok(stream) = Stream::from_fd(accepted.socket, accepted.peer.is_some()) else { continue };
        let runtime = runtime.clone();
        tokio::task::spawn_local(async move {
            // A client that went away is nobody to tell.
            let _ = match stream {
                Stream::Tcp(stream) => control::session::serve(stream, level, severity, runtime).await,
                Stream::Unix(stream) => control::session::serve(stream, level, severity, runtime).await,
            };
        });
    }
}
