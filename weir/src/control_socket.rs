//! Accepts connections of a `stats socket` and passes each to the runtime API.

use std::future::poll_fn;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::Poll;
use std::time::Duration;

use control::socket::session::{ClientSlot, HandOver};
use control::{AccessLevel, SeverityOutput};
use net::{Listener, Stream};
use plan::Bind;
use tokio::net::{TcpStream, UnixStream};

use crate::hand_over::Exposed;
use crate::process_context::Common;
use crate::view;

/// Serves a runtime socket until a soft stop, or until the task of another plan takes over.
pub(crate) fn serve(
    common: Arc<Common>,
    bind: &Bind,
    listener: Listener,
    is_old: Arc<AtomicBool>,
) -> impl Future<Output = ()> + 'static {
    // The task must not keep the plan alive.
    let grants = Grants {
        level: view::level(bind.level),
        severity: view::severity(bind.severity_output),
        exposes: bind.expose_fds,
    };
    accept(common, bind.listener.clone(), grants, listener, is_old)
}

/// The settings of a runtime socket that apply to its connections.
struct Grants {
    level: AccessLevel,
    severity: SeverityOutput,
    /// `expose-fd listeners`.
    exposes: bool,
}

async fn accept(
    common: Arc<Common>,
    entry: Arc<state::Listener>,
    grants: Grants,
    mut listener: Listener,
    is_old: Arc<AtomicBool>,
) {
    // A stopping process leaves the address to its successor.
    let stopped = || {
        poll_fn(|context| {
            entry.wait(context.waker().clone());
            if common.process.closing.load(Relaxed) || is_old.load(Relaxed) {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    };
    loop {
        // Clients beyond the limit wait in the kernel's queue, as in HAProxy.
        let accepted = async {
            ClientSlot::free(&common.runtime).await;
            poll_fn(|context| listener.poll_accept(context)).await
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            () = stopped() => return,
        };
        let Ok(accepted) = accepted else {
            // The most likely cause is a shortage of descriptors: a later attempt may succeed.
            runtime::timer::sleep(Duration::from_millis(100)).await;
            continue;
        };
        let stream = Stream::from_fd(accepted.socket, accepted.peer.is_some());
        let exposed = grants.exposes.then(|| common.exposed.clone());
        // A client of another socket may have taken the slot.
        let place = tokio::select! {
            place = ClientSlot::take(common.runtime.clone()) => place,
            () = stopped() => return,
        };
        tokio::task::spawn_local(converse(stream, grants.level, grants.severity, place, exposed));
    }
}

/// Serves one connection to the runtime API. `exposed` are the sockets that it may ask for.
pub(crate) async fn converse(
    stream: Stream,
    level: AccessLevel,
    severity: SeverityOutput,
    place: ClientSlot,
    exposed: Option<Arc<Exposed>>,
) {
    let connection = stream.as_fd().try_clone_to_owned();
    let hand_over = exposed.zip(connection.ok()).map(|(exposed, connection)| -> HandOver {
        Box::new(move || {
            Box::pin(async move {
                // The successor reports what is missing; then its start fails, and this process continues.
                let _ = tokio::task::spawn_blocking(move || exposed.hand_over(connection)).await;
            })
        })
    });
    // The client may have closed the connection.
    let _ = if stream.is_tcp() {
        let Ok(stream) = TcpStream::from_std(stream.into_fd().into()) else { return };
        control::socket::session::serve(stream, level, severity, place, hand_over).await
    } else {
        let Ok(stream) = UnixStream::from_std(stream.into_fd().into()) else { return };
        control::socket::session::serve(stream, level, severity, place, hand_over).await
    };
}
