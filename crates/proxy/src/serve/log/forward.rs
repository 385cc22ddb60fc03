//! Log messages from other programs (configuration manual, 12.6 `log-forward`), received over streams with the framing of RFC
//! 6587, or as datagrams ([`datagrams`](crate::serve::datagrams)). Each message is immediately passed to the loggers of its
//! section; nothing is sent back.

use std::future::poll_fn;
use std::net::{IpAddr, SocketAddr};
use std::task::Poll;

use plan::Proxy;
use plan::log::{HostStrategy, LogForward};
use runtime::timer::now_ms;
use sample::Endpoint;
use state::sessions::Activity;

use crate::client::ClientConnection;
use crate::log::header::MessageOrigin;
use crate::log::syslog;
use crate::worker::Worker;

/// The maximum number of digits in a message length.
const DIGITS: usize = 10;

/// Receives messages from a stream until it ends, is idle for `timeout client`, or violates its framing.
pub(crate) async fn stream(mut connection: ClientConnection) {
    let proxy = connection.frontend.clone();
    let Some(forward) = &proxy.log_forward else { return };
    let allowed = proxy.timeouts.client;
    // Counted as one request, because otherwise the connection would count as waiting for its first request.
    connection.entry.requests.set(1);
    loop {
        // At a soft stop, an idle stream may be closed, because the successor accepts the sender's next connection.
        connection.entry.activity.set(Activity::Waiting);
        connection.entry.active_ms.set(now_ms());
        connection.timer.set_after(now_ms(), allowed);
        let read = poll_fn(|context| {
            if connection.poll_killed(context).is_ready() {
                return Poll::Ready(Ok(0));
            }
            match connection.poll_fill(context) {
                Poll::Ready(read) => Poll::Ready(read),
                Poll::Pending => connection.timer.poll_expired(context).map(|()| Ok(0)),
            }
        });
        let ended = !read.await.is_ok_and(|count| count > 0);
        if !take_messages(&mut connection, &proxy, forward, ended) || ended {
            return;
        }
        connection.side.release();
    }
}

/// Forwards the complete messages. If the stream has `ended`, the remaining bytes are a message too. Returns `false` if the framing
/// is violated or a message is too long.
fn take_messages(
    connection: &mut ClientConnection,
    proxy: &Proxy,
    forward: &LogForward,
    ended: bool,
) -> bool {
    let peer = address(&connection.session.source());
    let worker = connection.worker.clone();
    loop {
        let input = connection.socket().input();
        let bytes = input.filled();
        let full = input.room_len() == 0;
        let frame = match next_frame(bytes, forward.only_lines) {
            Ok(frame) => frame,
            Err(()) => {
                proxy.state.frontend.mine().traffic.request_errors.add(1);
                return false;
            }
        };
        match frame {
            Some(SyslogFrame { start, end, next }) => {
                message(&worker, proxy, forward, peer, &bytes[start..end]);
                input.consume(next);
            }
            None if ended && !bytes.is_empty() && !is_counted(bytes, forward.only_lines) => {
                message(&worker, proxy, forward, peer, bytes);
                return true;
            }
            None => {
                if full {
                    input.compact();
                }
                // If the buffer is full, the current message can never be completed.
                return input.room_len() > 0 || input.is_empty();
            }
        }
    }
}

/// The range of a message in the received bytes, and the start of the next one.
#[derive(Debug, PartialEq, Eq)]
struct SyslogFrame {
    start: usize,
    end: usize,
    next: usize,
}

/// Whether a message that begins like this has a length prefix (RFC 6587, 3.4.1).
fn is_counted(bytes: &[u8], only_lines: bool) -> bool {
    !only_lines && bytes.first().is_some_and(|byte| matches!(byte, b'1'..=b'9'))
}

/// Returns the message at the start of `bytes`, if it is complete.
///
/// # Errors
/// The length prefix is invalid.
fn next_frame(bytes: &[u8], only_lines: bool) -> Result<Option<SyslogFrame>, ()> {
    if !is_counted(bytes, only_lines) {
        let Some(feed) = memchr::memchr(b'\n', bytes) else { return Ok(None) };
        let end = if bytes[..feed].ends_with(b"\r") { feed - 1 } else { feed };
        return Ok(Some(SyslogFrame { start: 0, end, next: feed + 1 }));
    }
    let digits = bytes.iter().take_while(|byte| byte.is_ascii_digit()).count();
    match bytes.get(digits) {
        None if digits <= DIGITS => Ok(None),
        Some(b' ') if digits <= DIGITS => {
            let number = std::str::from_utf8(&bytes[..digits]).ok().and_then(|text| text.parse().ok());
            let length: usize = number.ok_or(())?;
            let (start, end) = (digits + 1, digits + 1 + length);
            Ok((bytes.len() >= end).then_some(SyslogFrame { start, end, next: end }))
        }
        _ => Err(()),
    }
}

fn address(source: &Endpoint) -> Option<IpAddr> {
    source.address().map(|address| address.ip())
}

/// Forwards the message in a datagram from `peer`.
pub(crate) fn datagram(worker: &Worker, proxy: &Proxy, peer: SocketAddr, bytes: &[u8]) {
    if let Some(forward) = &proxy.log_forward {
        message(worker, proxy, forward, Some(peer.ip()), bytes);
    }
}

/// Forwards one message from `peer`.
fn message(worker: &Worker, proxy: &Proxy, forward: &LogForward, peer: Option<IpAddr>, bytes: &[u8]) {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    if bytes.is_empty() {
        return;
    }
    worker.shared.process.counters.mine().received_logs.add(1);
    let traffic = &proxy.state.frontend.mine().traffic;
    traffic.bytes_in.add(bytes.len() as u64);
    let mut line = if forward.unparsed { syslog::whole(bytes) } else { syslog::parse(bytes) };
    let named;
    // A message that is not parsed may or may not contain a host.
    let peer = peer.filter(|_| !forward.unparsed);
    if let (Some(peer), MessageOrigin::Received { host, .. }) = (peer, &mut line.origin) {
        named = host_name(forward.host, *host, peer);
        if let Some(name) = &named {
            *host = Some(name.as_bytes());
        }
    }
    worker.outbox.borrow_mut().send_all(&worker.shared, &proxy.loggers, &line);
}

/// `option host`: returns the host that replaces the one in the message, or `None` to keep that one.
fn host_name(strategy: HostStrategy, own: Option<&[u8]>, peer: IpAddr) -> Option<String> {
    let peer = peer.to_canonical();
    match (strategy, own) {
        (HostStrategy::Keep, _) | (HostStrategy::Fill, Some(_)) => None,
        (HostStrategy::Append, Some(own)) => Some(format!("{},{peer}", String::from_utf8_lossy(own))),
        (HostStrategy::Replace | HostStrategy::Fill | HostStrategy::Append, _) => Some(peer.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_a_stream_end_with_a_line_feed_or_after_their_length() {
        let frame = |start, end, next| Ok(Some(SyslogFrame { start, end, next }));
        type Case = (&'static [u8], bool, Result<Option<SyslogFrame>, ()>);
        let cases: &[Case] = &[
            (b"<1>a\nb", false, frame(0, 4, 5)),
            (b"<1>a", false, Ok(None)),
            (b"<1>a\r\nb", false, frame(0, 4, 6)),
            (b"\r\n", false, frame(0, 0, 2)),
            (b"3 a\nbc", false, frame(2, 5, 5)),
            (b"3 a\n", false, Ok(None)),
            (b"3", false, Ok(None)),
            (b"3x", false, Err(())),
            (b"12345678901 x", false, Err(())),
            (b"3 a\nbc", true, frame(0, 3, 4)),
            (b"0 a\n", false, frame(0, 3, 4)),
            (b"", false, Ok(None)),
        ];
        for (bytes, only_lines, wanted) in cases {
            assert_eq!(next_frame(bytes, *only_lines), *wanted, "{}", String::from_utf8_lossy(bytes));
        }
    }

    #[test]
    fn the_host_of_a_message_follows_the_strategy() {
        let peer = IpAddr::from([10, 0, 0, 1]);
        type Case = (HostStrategy, Option<&'static [u8]>, Option<&'static str>);
        let cases: &[Case] = &[
            (HostStrategy::Replace, Some(b"h"), Some("10.0.0.1")),
            (HostStrategy::Replace, None, Some("10.0.0.1")),
            (HostStrategy::Fill, Some(b"h"), None),
            (HostStrategy::Fill, None, Some("10.0.0.1")),
            (HostStrategy::Keep, None, None),
            (HostStrategy::Append, Some(b"h"), Some("h,10.0.0.1")),
            (HostStrategy::Append, None, Some("10.0.0.1")),
        ];
        for (strategy, own, wanted) in cases {
            assert_eq!(host_name(*strategy, *own, peer).as_deref(), *wanted, "{strategy:?} {own:?}");
        }
    }
}
