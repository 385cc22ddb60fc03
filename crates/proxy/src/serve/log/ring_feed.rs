//! Sends the messages in rings to their servers, over streams (configuration manual, 12.5; RFC 6587). Each server has one task,
//! which runs as long as its worker. While a server is unavailable, its messages stay in the ring.

use std::cell::RefCell;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use net::{Dial, Stream};
use plan::ServerSettings;
use plan::dial;
pub use plan::dial::Buffers;
use plan::log::LogProto;
use plan::ring::{RingPeer, RingServer};
use plan::server::{ServerName, ServerTls};
use runtime::timer::{self, Timer, now_ms};
use sample::Env;
use state::Process;
use state::ring::RingReader;
use tls::Keep;

use crate::worker::Worker;

/// Delay before reconnecting to a server.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum number of message bytes taken from a ring at once.
const BATCH: usize = 16 * 1024;

thread_local! {
    /// Whether the process is stopping, and the wakers of this worker's tasks.
    static STOP: RefCell<(bool, Vec<Waker>)> = const { RefCell::new((false, Vec::new())) };
}

/// Lets the calling worker's tasks end once their rings are empty. A stopping process must neither take over connections that are
/// meant for its successor nor wait for its own.
pub fn stop() {
    let waiting = STOP.with_borrow_mut(|(stopping, waiting)| {
        *stopping = true;
        std::mem::take(waiting)
    });
    waiting.into_iter().for_each(Waker::wake);
}

/// Returns whether the process is stopping. If not, the task is woken when it begins to stop.
fn is_stopping(context: &mut Context<'_>) -> bool {
    STOP.with_borrow_mut(|(stopping, waiting)| {
        if !*stopping && !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
            waiting.push(context.waker().clone());
        }
        *stopping
    })
}

/// Starts this worker's share of the tasks. From this call on, the rings keep messages until their servers have received them.
pub fn start(worker: &Rc<Worker>) {
    let workers = runtime::shard::workers().max(1);
    for (number, server) in worker.shared.plan.ring_servers.iter().enumerate() {
        if number % workers == worker.index {
            let reader = RingReader::attach(&server.ring);
            let way = Way {
                buffers: (&worker.shared.plan.global.tune).into(),
                process: worker.shared.process.clone(),
            };
            tokio::task::spawn_local(feed(way, server.clone(), reader));
        }
    }
}

/// The settings for connecting to a server. They are owned, because tasks outlive the plan that started them.
struct Way {
    buffers: Buffers,
    process: Arc<Process>,
}

async fn feed(way: Way, server: RingServer, mut reader: RingReader) {
    let timer = Timer::new();
    loop {
        let connected = now_ms();
        if let Ok(mut stream) = connect(&way, &server, &timer).await {
            // The reason does not matter: the next connection continues after the last message that was sent.
            let _ = pump(&mut stream, &mut reader, &server, &timer).await;
        }
        if STOP.with_borrow(|(stopping, _)| *stopping) {
            return;
        }
        // If the connection lasted longer than the pause, the task reconnects immediately.
        if now_ms().saturating_sub(connected) < PAUSE.as_millis() as u64 {
            timer::sleep(PAUSE).await;
        }
    }
}

async fn connect(way: &Way, server: &RingServer, timer: &Timer) -> io::Result<Stream> {
    timer.set_after(now_ms(), server.connect_timeout);
    let mut connecting = pin!(async {
        match &server.peer {
            RingPeer::Address(address) => {
                let target = dial::target(address).ok_or(io::ErrorKind::AddrNotAvailable)?;
                Dial::default().connect(&target).await
            }
            RingPeer::Server(server) => connect_to(server, &way.process, way.buffers).await,
        }
    });
    poll_fn(|context| match connecting.as_mut().poll(context) {
        Poll::Ready(connected) => Poll::Ready(connected),
        Poll::Pending => timer.poll_expired(context).map(|()| Err(io::ErrorKind::TimedOut.into())),
    })
    .await
}

/// Opens a connection to a server outside of any request, with TLS if configured.
///
/// # Errors
/// The connection or handshake failed.
pub async fn connect_to(server: &ServerSettings, process: &Process, buffers: Buffers) -> io::Result<Stream> {
    let target = dial::target(&server.state.address.load()).ok_or(io::ErrorKind::AddrNotAvailable)?;
    let dial = Dial { fast_open: server.tfo, ..dial::to_server(server, buffers, &target) };
    let mut stream = dial.connect(&target).await?;
    if let Some(tls) = server.speaks_tls() {
        begin_tls(process, tls, &mut stream).await?;
    }
    Ok(stream)
}

/// The connection or the handshake failed.
async fn begin_tls(process: &Process, tls: &ServerTls, stream: &mut Stream) -> io::Result<()> {
    let mut name = Vec::new();
    if let ServerName::Expression(expression) = &tls.name {
        expression.eval_into(&Env::new(process, now_ms()), &mut name);
    }
    let name = std::str::from_utf8(&name).ok().filter(|name| !name.is_empty());
    stream.connect_tls(&tls.connector, name, Keep::default()).map_err(io::Error::other)?;
    poll_fn(|context| stream.poll_handshake(context)).await.map_err(io::Error::other)
}

/// Sends messages until the server closes the connection, fails, or accepts nothing for `timeout server`.
async fn pump(
    stream: &mut Stream,
    reader: &mut RingReader,
    server: &RingServer,
    timer: &Timer,
) -> io::Result<()> {
    let mut out = Vec::with_capacity(BATCH + 1024);
    // The end of each message in `out`, and the corresponding position in the ring.
    let mut ends: Vec<(usize, usize)> = Vec::new();
    loop {
        poll_fn(|context| match poll_closed(stream, context) {
            Poll::Ready(closed) => Poll::Ready(Err(closed)),
            Poll::Pending => match reader.poll_message(context) {
                Poll::Pending if is_stopping(context) => {
                    Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()))
                }
                message => message.map(Ok),
            },
        })
        .await?;
        out.clear();
        ends.clear();
        let behind = reader.peek(BATCH, |message| {
            frame(server.proto, message, &mut out);
            ends.push((out.len(), message.len()));
        });
        let (written, outcome) = write_all(stream, &out, server.server_timeout, timer).await;
        if outcome.is_ok() {
            reader.advance(behind);
            continue;
        }
        // Messages that were sent completely are not repeated.
        let rest: usize = ends
            .iter()
            .filter(|(end, _)| *end > written)
            .map(|(_, length)| state::ring::footprint(*length))
            .sum();
        reader.advance(behind - rest as u64);
        return outcome;
    }
}

/// Ready once the server has closed the connection or failed. Data from the server is discarded.
fn poll_closed(stream: &mut Stream, context: &mut Context<'_>) -> Poll<io::Error> {
    let mut room = [0; 256];
    loop {
        match stream.poll_read(context, &mut room) {
            Poll::Pending => return Poll::Pending,
            Poll::Ready(Ok(0)) => return Poll::Ready(io::ErrorKind::UnexpectedEof.into()),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Poll::Ready(error),
        }
    }
}

/// Writes all bytes. On failure, returns the number of bytes written and the error.
async fn write_all(
    stream: &mut Stream,
    bytes: &[u8],
    allowed: Option<Duration>,
    timer: &Timer,
) -> (usize, io::Result<()>) {
    let mut written = 0;
    while written < bytes.len() {
        timer.set_after(now_ms(), allowed);
        let wrote = poll_fn(|context| match stream.poll_write(context, &bytes[written..]) {
            Poll::Ready(wrote) => Poll::Ready(wrote),
            Poll::Pending => timer.poll_expired(context).map(|()| Err(io::ErrorKind::TimedOut.into())),
        });
        match wrote.await {
            Ok(0) => return (written, Err(io::ErrorKind::WriteZero.into())),
            Ok(count) => written += count,
            Err(error) => return (written, Err(error)),
        }
    }
    // Encrypted bytes may still be buffered.
    timer.set_after(now_ms(), allowed);
    let flushed = poll_fn(|context| match stream.poll_flush(context) {
        Poll::Ready(flushed) => Poll::Ready(flushed),
        Poll::Pending => timer.poll_expired(context).map(|()| Err(io::ErrorKind::TimedOut.into())),
    });
    (written, flushed.await)
}

/// Appends a message with the framing of `log-proto`. A line feed within the message would end it, so a space is sent instead.
fn frame(proto: LogProto, message: &[u8], out: &mut Vec<u8>) {
    match proto {
        LogProto::Legacy => {
            out.extend(message.iter().map(|byte| if *byte == b'\n' { b' ' } else { *byte }));
            out.push(b'\n');
        }
        LogProto::OctetCount => {
            out.extend_from_slice(message.len().to_string().as_bytes());
            out.push(b' ');
            out.extend_from_slice(message);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_framed_by_line_feeds_or_lengths() {
        let framed = |proto, message: &[u8]| {
            let mut out = Vec::new();
            frame(proto, message, &mut out);
            String::from_utf8(out).expect("ASCII")
        };
        assert_eq!(framed(LogProto::Legacy, b"a\nb"), "a b\n");
        assert_eq!(framed(LogProto::OctetCount, b"a\nb"), "3 a\nb");
        assert_eq!(framed(LogProto::OctetCount, b""), "0 ");
    }
}
