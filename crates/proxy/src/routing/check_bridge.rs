//! An HTTP/1 health check over a connection that a client has provided (`rhttp@`): the check gets one end of a socket pair, and the
//! requests at the other end are converted to HTTP/2 on that connection.
//!
//! Each bridge carries one request and its response. Called by the binary, for `health`, on the worker that runs the check.

use std::future::poll_fn;
use std::io;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http::{Head, ParseOptions, ParseStatus};
use net::Stream;
use plan::{Proxy, ServerSettings};
use runtime::timer;

use crate::routing::check_pool;
use crate::routing::takeover::{has_idle_elsewhere, take_over};
use crate::server::h2::BoxedRequest;
use crate::server::pool::PoolQuery;
use crate::server::{SharedRequest, Upstream};

/// Maximum size of a check's request, in bytes.
const MOST: usize = 1 << 17;

/// Upper bound for the duration of a check. The check's own limits end it long before.
const PATIENCE: Duration = Duration::from_secs(3600);

/// Returns a stream to `server` over a connection that has room for a request with the connection name `name`; `None` if clients
/// have provided no connection.
pub async fn reach(backend: &Proxy, server: &Arc<ServerSettings>, name: &str) -> Option<Stream> {
    let (worker, local) = check_pool::find(backend, server)?;
    let key = check_pool::key(name);
    let ask = PoolQuery { key: &key, reuse: backend.reuse, first: false };
    let mut request = worker.carriers.share(&local, ask);
    if request.is_none() && has_idle_elsewhere(&worker, &local, ask) {
        request = match take_over(&worker, &local, ask, true).await {
            Some(Upstream::Stream(SharedRequest::H2(request))) => Some(request),
            Some(Upstream::Stream(SharedRequest::Fcgi(_)) | Upstream::Socket(_)) | None => None,
        };
    }
    let request = request?;
    let (ours, theirs) = UnixStream::pair().ok()?;
    ours.set_nonblocking(true).and_then(|()| theirs.set_nonblocking(true)).ok()?;
    let bridge = serve(request, Stream::from_fd(theirs.into(), false));
    tokio::task::spawn_local(async move {
        // The check notices the end of the bridge, and needs no reason.
        let _ = timer::timeout(PATIENCE, bridge).await;
    });
    Some(Stream::from_fd(ours.into(), false))
}

/// Forwards the request, and its response back.
async fn serve(mut request: BoxedRequest, mut check: Stream) -> io::Result<()> {
    let (mut head, body) = receive(&mut check).await?;
    head.clean_connection();
    request.send_head(&head, body.is_empty());
    let mut rest = &body[..];
    while !rest.is_empty() {
        rest = &rest[poll_fn(|context| send(&mut request, context, rest)).await?..];
    }
    let mut response = Head::new();
    loop {
        let came = poll_fn(|context| {
            // The check may have ended early.
            match gone(&mut check, context) {
                true => Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
                false => request
                    .poll_head(context, &mut response)
                    .map_err(|_| io::ErrorKind::ConnectionReset.into()),
            }
        });
        came.await.map_err(|error: io::Error| error)?;
        if response.status() >= 200 || response.status() == 101 {
            break;
        }
        response.clear();
    }
    let mut out = Vec::new();
    write_head(&response, &mut out);
    loop {
        write(&mut check, &out).await?;
        out.clear();
        let n = poll_fn(|context| request.poll_fill(context)).await?;
        if n == 0 {
            break;
        }
        out.extend_from_slice(request.received());
        request.drain();
    }
    check.close();
    Ok(())
}

/// Whether the check has closed its end. It sends nothing after its request.
fn gone(check: &mut Stream, context: &mut Context<'_>) -> bool {
    matches!(check.poll_read(context, &mut [0; 16]), Poll::Ready(Ok(0) | Err(_)))
}

/// Receives a check's whole request.
async fn receive(check: &mut Stream) -> io::Result<(Head, Vec<u8>)> {
    let (mut head, mut input) = (Head::new(), Vec::new());
    let options = ParseOptions { max_bytes: MOST, ..ParseOptions::default() };
    loop {
        if let Ok(ParseStatus::Complete { len }) = http::parse_request(&input, &mut head, &options) {
            let due = head.content_length().unwrap_or(0);
            if (input.len() - len) as u64 >= due {
                return Ok((head, input.split_off(len)));
            }
        }
        head.clear();
        let mut room = [0; 4096];
        let n = poll_fn(|context| check.poll_read(context, &mut room)).await?;
        if n == 0 || input.len() > MOST {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        input.extend_from_slice(&room[..n]);
    }
}

fn send(request: &mut BoxedRequest, context: &mut Context<'_>, rest: &[u8]) -> Poll<io::Result<usize>> {
    match ready!(request.poll_send(context, rest)) {
        Ok(0) => Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
        sent => Poll::Ready(sent),
    }
}

/// Writes the head in HTTP/1. The body's end is marked by its length or by the close.
fn write_head(head: &Head, out: &mut Vec<u8>) {
    head.write_start_line(out);
    for (name, value) in head.fields() {
        out.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
    }
    out.extend_from_slice(b"connection: close\r\n\r\n");
}

async fn write(check: &mut Stream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match poll_fn(|context| check.poll_write(context, bytes)).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            n => bytes = &bytes[n..],
        }
    }
    Ok(())
}
