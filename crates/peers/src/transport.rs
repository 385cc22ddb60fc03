//! The I/O of one connection with a peer: sends the section's output and passes on received bytes, until either side ends the
//! connection.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use net::Stream;
use runtime::timer;
use tokio::sync::Notify;

/// The maximum size of a write, and of a read.
const PIECE: usize = 16_384;

/// How long to wait for the last output to be sent.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// The state shared by a connection's task and the section's.
#[derive(Debug, Default)]
pub(crate) struct ConnectionChannel {
    /// Notified when there may be output.
    pub(crate) woken: Notify,
    /// Whether to close the connection once all output is sent.
    pub(crate) ends: Cell<bool>,
}

/// The producer of output and consumer of input.
pub(crate) trait Speak {
    /// Appends pending output.
    fn output(&self, out: &mut Vec<u8>, limit: usize);
    /// Processes received bytes.
    fn received(&self, bytes: &[u8]);
}

enum TransportTurn {
    Read(io::Result<usize>),
    Wrote(io::Result<usize>),
    Woken,
}

/// Runs a connection to its end.
pub(crate) async fn converse(mut stream: Stream, line: &ConnectionChannel, speak: &impl Speak) {
    let mut room = vec![0; PIECE];
    let (mut out, mut at) = (Vec::new(), 0);
    while !line.ends.get() {
        if at == out.len() {
            out.clear();
            at = 0;
            speak.output(&mut out, PIECE);
        }
        match turn(&mut stream, line, &out[at..], &mut room).await {
            TransportTurn::Wrote(Ok(length)) => at += length,
            TransportTurn::Read(Ok(length)) if length > 0 => speak.received(&room[..length]),
            TransportTurn::Woken => {}
            TransportTurn::Read(_) | TransportTurn::Wrote(Err(_)) => return,
        }
        // Lets other tasks run while a whole table is sent to a peer.
        tokio::task::yield_now().await;
    }
    // A peer that does not respond must not delay the end.
    let _ = timer::timeout(LAST_WORDS, finish(&mut stream, out, at, speak)).await;
    stream.close();
}

async fn turn(stream: &mut Stream, line: &ConnectionChannel, out: &[u8], room: &mut [u8]) -> TransportTurn {
    let mut woken = pin!(line.woken.notified());
    let mut is_flushed = false;
    poll_fn(|context| {
        if !out.is_empty()
            && let Poll::Ready(wrote) = stream.poll_write(context, out)
        {
            return Poll::Ready(TransportTurn::Wrote(wrote));
        }
        // Encrypted bytes may still be buffered.
        if !is_flushed && let Poll::Ready(flushed) = stream.poll_flush(context) {
            is_flushed = true;
            if let Err(error) = flushed {
                return Poll::Ready(TransportTurn::Wrote(Err(error)));
            }
        }
        if let Poll::Ready(read) = stream.poll_read(context, room) {
            return Poll::Ready(TransportTurn::Read(read));
        }
        woken.as_mut().poll(context).map(|()| TransportTurn::Woken)
    })
    .await
}

/// Sends the remaining output, and closes the local side.
async fn finish(stream: &mut Stream, mut out: Vec<u8>, at: usize, speak: &impl Speak) -> io::Result<()> {
    out.drain(..at);
    speak.output(&mut out, PIECE);
    let mut at = 0;
    while at < out.len() {
        at += poll_fn(|context| stream.poll_write(context, &out[at..])).await?;
    }
    poll_fn(|context| stream.poll_shutdown(context)).await
}
