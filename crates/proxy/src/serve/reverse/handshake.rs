//! The start of a reverse HTTP connection on either side: the HTTP/2 preface and settings, sent in the direction in which the
//! connection was opened. After that, requests flow in the other direction. Called by [`accept`](super::accept) on the accepting
//! side, and by [`dial`](super::dial) on the opening side.

use std::rc::Rc;
use std::task::{Context, Poll};

use h2::Closed;
use net::Stream as Socket;

use crate::stream::h2::H2Connection;
use crate::stream::{ConnectionEvent, Driver as _, Received, ReceivedBytes};
use crate::violation;

/// Why a connection is not reversed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReversalFailure {
    /// The peer ended the connection, or the socket failed.
    Gone,
    /// The peer violated the protocol and was notified.
    Broken,
}

/// A connection that is being reversed.
pub(super) struct Reversal {
    pub(super) connection: Rc<H2Connection>,
    pub(super) reader: ReceivedBytes,
    is_settled: bool,
    busy_from: u8,
}

impl Reversal {
    /// Starts the reversal of a connection.
    pub(super) fn new(connection: Rc<H2Connection>, reader: ReceivedBytes, busy_from: u8) -> Self {
        Self { connection, reader, is_settled: false, busy_from }
    }

    /// Ready once the peer's settings have been received.
    ///
    /// # Errors
    /// The settings will never arrive.
    pub(super) fn poll(
        &mut self,
        socket: &mut Socket,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), ReversalFailure>> {
        loop {
            if self.connection.send(socket, context).is_err() {
                return Poll::Ready(Err(ReversalFailure::Gone));
            }
            if self.is_settled {
                return Poll::Ready(Ok(()));
            }
            let busy = || violation::is_busy(self.busy_from);
            match self.reader.receive(&self.connection, socket, context, busy) {
                Ok(Received::Nothing) => return Poll::Pending,
                Ok(Received::Bytes) => {}
                Ok(Received::End) | Err(_) => return Poll::Ready(Err(ReversalFailure::Gone)),
            }
            if self.take().is_err() {
                // The reason is sent only if the socket accepts it immediately.
                let _ = self.connection.send(socket, context);
                return Poll::Ready(Err(ReversalFailure::Broken));
            }
        }
    }

    /// Decodes the received bytes up to the settings. The remaining bytes are for the next owner of the connection.
    fn take(&mut self) -> Result<(), Closed> {
        while let Some(event) = self.reader.next(&self.connection)? {
            if event == ConnectionEvent::Settings {
                self.reader.pause();
                self.is_settled = true;
                break;
            }
        }
        Ok(())
    }
}
