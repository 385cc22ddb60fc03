//! Requests of the proxy's own beside those of clients: each has a client that sends what is given to
//! it and takes nothing. Called by `revalidate` and `mirror`.

use std::cell::Cell;
use std::io;
use std::os::unix::net::UnixStream;
use std::thread::LocalKey;

use runtime::Boxed;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::client::Client;

/// One that is on its way. Nobody waits for it, so that no limit of connections bounds how many there
/// are.
pub(super) struct Running(&'static LocalKey<Cell<usize>>);

impl Running {
    /// One more of those that `running` counts on the calling worker, unless there are `most`.
    pub(super) fn begin(running: &'static LocalKey<Cell<usize>>, most: usize) -> Option<Self> {
        (running.get() < most).then(|| {
            running.set(running.get() + 1);
            Self(running)
        })
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// A client like `client` that sends `body` and takes nothing.
///
/// # Errors
/// There is no descriptor to spare.
pub(super) fn client(client: &Client, body: Vec<u8>) -> io::Result<Boxed<Client>> {
    let (own, other) = UnixStream::pair()?;
    own.set_nonblocking(true)?;
    other.set_nonblocking(true)?;
    let other = tokio::net::UnixStream::from_std(other)?;
    tokio::task::spawn_local(feed(other, body));
    Ok(client.aside(own))
}

/// Sends the body, and takes what nobody wants, to its end.
async fn feed(mut stream: tokio::net::UnixStream, body: Vec<u8>) {
    if stream.write_all(&body).await.is_err() {
        return;
    }
    let mut bytes = vec![0; 16 * 1024];
    while matches!(stream.read(&mut bytes).await, Ok(read) if read > 0) {}
}
