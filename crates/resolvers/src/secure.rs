//! TLS connections to name servers (`nameserver … tcp@… ssl`): the plain transport with a handshake before it.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use net::{Dial, Stream, Target};
use plan::resolvers::{NameServer, NameServerAddress};
use runtime::timer;
use tls::Keep;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Limit for connecting and the handshake.
const LIMIT: Duration = Duration::from_secs(5);

/// Adapts a TLS stream to Tokio's read and write traits.
pub(crate) struct Secured(Stream);

/// Connects to a name server.
///
/// # Errors
/// The connection or the handshake failed or timed out.
pub(crate) async fn connect(address: &NameServerAddress, server: &NameServer) -> io::Result<Secured> {
    let target = match address {
        NameServerAddress::Ip(address) => Target::Ip(*address),
        NameServerAddress::Unix(path) => Target::Unix(path.clone()),
    };
    let connected = timer::timeout(LIMIT, async {
        let mut stream = Dial::default().connect(&target).await?;
        if let Some(connector) = &server.secure {
            stream.connect_tls(connector, None, Keep::default()).map_err(io::Error::other)?;
            poll_fn(|context| stream.poll_handshake(context)).await.map_err(io::Error::other)?;
        }
        Ok(Secured(stream))
    });
    connected.await.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into()))
}

impl AsyncRead for Secured {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let room = buffer.initialize_unfilled();
        if room.is_empty() {
            return Poll::Ready(Ok(()));
        }
        let n = ready!(self.0.poll_read(context, room))?;
        buffer.advance(n);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Secured {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.0.poll_shutdown(context)
    }
}
