//! Waiting on behalf of a client. A wait ends when its condition is met, the stream is killed, its timeout expires, or (optionally)
//! the client leaves.

use std::future::poll_fn;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Head;
use plan::Proxy;
use runtime::timer;
use sample::ConnectionError;

use super::presence::Presence;
use super::{Client, Downstream, h1};
use crate::fault::Fault;

/// How long a connection that was closed with unread bytes is still drained. Without this, the client might see a reset instead
/// of the response.
const LINGER: Duration = Duration::from_secs(1);

/// The maximum number of bytes drained in this time.
const LINGER_BYTES: usize = 1 << 20;

/// The other events that can end a wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Watch {
    /// Whether a close by the client ends the wait (`option abortonclose`).
    pub(crate) leaving: bool,
    /// The fault to report when the deadline expires.
    pub(crate) late: Fault,
}

impl Watch {
    /// Only an operator can end the wait: the awaited operation has its own time limit.
    pub(crate) const KILL: Self = Self { leaving: false, late: Fault::Internal };
}

impl Client {
    /// Checks whether the client is still connected (`option abortonclose`). Data that the client sends in the meantime is stored.
    pub(crate) fn poll_presence(&mut self, context: &mut Context<'_>) -> Presence {
        match &mut self.side {
            Downstream::Socket(socket) => h1::poll_presence(socket, context).unwrap_or_else(|error| {
                self.session.error.set(ConnectionError::of_kernel(&error));
                Presence::Broken
            }),
            Downstream::Stream(stream) => match stream.poll_reset(context) {
                Some(_) => Presence::Broken,
                None => Presence::Here,
            },
            Downstream::Quic(_) => Presence::Here,
        }
    }

    /// Whether `option abortonclose` is in effect. It is on by default for HTTP.
    pub(crate) fn aborts_on_close(&self, backend: &Proxy) -> bool {
        let configured = backend.options.abortonclose.or(self.frontend.options.abortonclose);
        configured.unwrap_or(backend.mode == state::Mode::Http)
    }

    /// Waits for `what` until the timer's deadline.
    ///
    /// # Errors
    /// The reason why the wait ended.
    pub(crate) async fn wait<T>(
        &mut self,
        watch: Watch,
        mut what: impl FnMut(&mut Self, &mut Context<'_>) -> Poll<T>,
    ) -> Result<T, Fault> {
        poll_fn(|context| {
            if let Poll::Ready(there) = what(self, context) {
                return Poll::Ready(Ok(there));
            }
            if let Poll::Ready(killed) = self.poll_killed(context) {
                return Poll::Ready(Err(killed));
            }
            if watch.leaving && self.poll_presence(context) != Presence::Here {
                return Poll::Ready(Err(Fault::ClientAborted));
            }
            self.timer.poll_expired(context).map(|()| Err(watch.late))
        })
        .await
    }

    /// Sleeps for `pause`. If `leaving` is set, the sleep ends when the client leaves.
    ///
    /// # Errors
    /// The client left, or an operator ended the stream.
    pub(crate) async fn pause(&mut self, pause: Duration, leaving: bool) -> Result<(), Fault> {
        self.timer.set_after(timer::now_ms(), Some(pause));
        // The wait ends when the pause is over.
        let over = |client: &mut Self, context: &mut Context<'_>| client.timer.poll_expired(context);
        self.wait(Watch { leaving, ..Watch::KILL }, over).await
    }

    /// Waits until the handshake of a client that is served early is complete. Returns `false` if it failed or timed out.
    pub(crate) async fn settle(&mut self) -> bool {
        let timeouts = &self.frontend.timeouts;
        self.timer.set_after(timer::now_ms(), timeouts.client_handshake.or(timeouts.client));
        let watch = Watch { leaving: false, late: Fault::ClientTimeout };
        let over = |client: &mut Self, context: &mut Context<'_>| client.side.poll_handshake(context, false);
        matches!(self.wait(watch, over).await, Ok(Ok(())))
    }

    /// Sends an interim response before the timer's deadline. `bytes` is scratch memory.
    ///
    /// # Errors
    /// The client did not accept it.
    pub(crate) async fn send_interim(&mut self, head: &Head, bytes: &mut Vec<u8>) -> Result<(), Fault> {
        let watch = Watch { leaving: false, late: Fault::ClientTimeout };
        let room = |client: &mut Self, context: &mut Context<'_>| match &client.side {
            Downstream::Stream(stream) => stream.poll_head_room(context),
            Downstream::Socket(_) | Downstream::Quic(_) => Poll::Ready(Ok(())),
        };
        self.wait(watch, room).await?.map_err(|_| Fault::ClientAborted)?;
        bytes.clear();
        head.write_to(bytes);
        match &mut self.side {
            Downstream::Stream(stream) => {
                stream.send_head(head, false);
                Ok(())
            }
            Downstream::Socket(_) | Downstream::Quic(_) => self.send_bytes(bytes).await,
        }
    }

    /// Sends bytes to an HTTP/1 or TCP client before the timer's deadline.
    ///
    /// # Errors
    /// The client did not accept them.
    pub(crate) async fn send_bytes(&mut self, mut left: &[u8]) -> Result<(), Fault> {
        let watch = Watch { leaving: false, late: Fault::ClientTimeout };
        while !left.is_empty() {
            let write = |client: &mut Self, context: &mut Context<'_>| match &mut client.side {
                Downstream::Socket(socket) => socket.stream.poll_write(context, left),
                Downstream::Stream(_) | Downstream::Quic(_) => Poll::Ready(Ok(left.len())),
            };
            let written = self.wait(watch, write).await?.map_err(|_| Fault::ClientAborted)?;
            left = &left[written..];
        }
        let flush = |client: &mut Self, context: &mut Context<'_>| match &mut client.side {
            Downstream::Socket(socket) => socket.stream.poll_flush(context),
            Downstream::Stream(_) | Downstream::Quic(_) => Poll::Ready(Ok(())),
        };
        self.wait(watch, flush).await?.map_err(|_| Fault::ClientAborted)
    }

    /// Closes the write side and keeps reading for a while. If the connection were closed with unread bytes, the kernel would
    /// send a reset, which can overtake the response.
    pub(crate) async fn linger(&mut self) {
        self.side.finish();
        match self.side {
            Downstream::Socket(_) => {}
            // The connection outlives its stream, and QUIC retransmits its last packets without help.
            Downstream::Stream(_) | Downstream::Quic(_) => return,
        }
        let deadline = self.frontend.timeouts.client_fin.unwrap_or(LINGER).min(LINGER);
        self.timer.set_after(timer::now_ms(), Some(deadline));
        let mut read = 0;
        while read < LINGER_BYTES {
            let watch = Watch { leaving: false, late: Fault::ClientTimeout };
            let more = |client: &mut Self, context: &mut Context<'_>| {
                if let Downstream::Socket(socket) = &mut client.side {
                    socket.input().clear();
                }
                client.poll_fill(context)
            };
            match self.wait(watch, more).await {
                Ok(Ok(n)) if n > 0 => read += n,
                _ => break,
            }
        }
        if let Downstream::Socket(socket) = &mut self.side {
            socket.input = None;
        }
    }
}
