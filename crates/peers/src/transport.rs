//! The bytes of one connection with a peer: what the section has to say goes out, what comes goes to
//! the section, until either ends it.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use net::Stream;
use runtime::timer;
use tokio::sync::Notify;

/// How much is written, and how much is read, at once.
const PIECE: usize = 16_384;

/// How long the last words of this side are waited with.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a connection's task and the section's share.
#[derive(Debug, Default)]
pub(crate) struct ConnectionChannel {
    /// Told when there may be something to say.
    pub(crate) woken: Notify,
    /// Whether it is closed once everything is said.
    pub(crate) ends: Cell<bool>,
}

/// Who has something to say, and hears.
pub(crate) trait Speak {
    /// Appends what is to be sent, if anything.
    fn output(&self, out: &mut Vec<u8>, limit: usize);
    /// Bytes came.
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
        // A peer that is taught a whole table leaves the worker to others in between.
        tokio::task::yield_now().await;
    }
    // An end that does not come is no reason to wait.
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
        // What is sealed may not have left yet.
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

/// Says what is left to say, and that nothing follows.
async fn finish(stream: &mut Stream, mut out: Vec<u8>, at: usize, speak: &impl Speak) -> io::Result<()> {
    out.drain(..at);
    speak.output(&mut out, PIECE);
    let mut at = 0;
    while at < out.len() {
        at += poll_fn(|context| stream.poll_write(context, &out[at..])).await?;
    }
    poll_fn(|context| stream.poll_shutdown(context)).await
}
