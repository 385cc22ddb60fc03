//! Requests made by Weir itself. Each has an internal client that sends a given body and discards the response. Called by
//! `cache::revalidate` and `mirror`.

use std::cell::Cell;
use std::future::poll_fn;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::thread::LocalKey;

use runtime::Boxed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::Client;
use crate::flow::{Coding, Tapped};

/// A running internal request. Connection limits do not apply to these requests, so this type counts them.
pub(super) struct InternalRequest(&'static LocalKey<Cell<usize>>);

impl InternalRequest {
    /// Counts one more request in `running` on the calling worker, unless there are already `most`.
    pub(super) fn begin(running: &'static LocalKey<Cell<usize>>, most: usize) -> Option<Self> {
        (running.get() < most).then(|| {
            running.set(running.get() + 1);
            Self(running)
        })
    }
}

impl Drop for InternalRequest {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The body of an internal request.
pub(super) enum InternalBody {
    /// A complete body.
    Whole(Vec<u8>),
    /// The body of another request, copied while it arrives.
    Coming(Rc<Tapped>, Coding),
}

/// The size of the socket buffer for a body that is still arriving.
const IN_SOCKET: usize = 64 * 1024;

/// Creates a client like `client` that sends `body` and discards the response.
///
/// # Errors
/// No descriptor is available.
pub(super) fn client(client: &Client, body: InternalBody) -> io::Result<Boxed<Client>> {
    let (own, other) = UnixStream::pair()?;
    own.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    if let InternalBody::Coming(..) = body {
        rustix::net::sockopt::set_socket_send_buffer_size(&other, IN_SOCKET)?;
    }
    let other = tokio::net::UnixStream::from_std(other)?;
    tokio::task::spawn_local(feed(other, body));
    Ok(client.aside(own))
}

/// Sends the body, and discards the response until its end. If the body is cut off, closes the connection.
async fn feed(mut stream: tokio::net::UnixStream, body: InternalBody) {
    let sent = match body {
        InternalBody::Whole(bytes) => stream.write_all(&bytes).await.is_ok(),
        InternalBody::Coming(body, coding) => pass(&mut stream, &body, coding).await.is_ok(),
    };
    if !sent {
        return;
    }
    let mut bytes = vec![0; 16 * 1024];
    while matches!(stream.read(&mut bytes).await, Ok(read) if read > 0) {}
}

/// Sends a body while it arrives.
///
/// # Errors
/// The body was cut off, or its reader has closed.
async fn pass(stream: &mut tokio::net::UnixStream, body: &Tapped, coding: Coding) -> io::Result<()> {
    let (mut piece, mut coded) = (Vec::new(), Vec::new());
    while poll_fn(|context| body.poll_take(context, &mut piece)).await {
        coded.clear();
        coding.write(&piece, &mut coded);
        stream.write_all(&coded).await?;
    }
    if body.is_cut() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    coded.clear();
    coding.finish(&mut None, &mut coded);
    stream.write_all(&coded).await
}
