//! The HTTP/1 side of a client: heads, framing and the end of the connection (RFC 9112).

use std::task::{Context, Poll};

use http::{
    BodyLength, ChunkDecoder, ErrorKind, Head, Method, ParseError, ParseOptions, ParseStatus, parse_request,
};
use runtime::Buffer;

use super::presence::Presence;
use crate::flow::{Coding, Flow, Path, Socket};

/// Parses the head of the next request from the received bytes. Returns its length, or `None` if it is incomplete.
#[inline]
pub(super) fn read_head(
    socket: &mut Socket,
    head: &mut Head,
    options: &ParseOptions,
) -> Result<Option<usize>, ParseError> {
    match parse_request(socket.input().filled(), head, options)? {
        ParseStatus::Partial => Ok(None),
        ParseStatus::Complete { len } => Ok(Some(len)),
    }
}

/// Returns how the body ends (RFC 9112, 6.3). Checks the part of the body that arrived with the head.
#[inline]
pub(super) fn body_length(socket: &Socket, head: &Head) -> Result<BodyLength, ParseError> {
    let length = match head.method_id() {
        Method::Connect => BodyLength::None,
        _ => head.request_body(),
    };
    if length == BodyLength::Chunked {
        let offset = |error: http::ChunkError| ParseError { kind: ErrorKind::Chunk, offset: error.offset };
        ChunkDecoder::new().track(socket.received()).map_err(offset)?;
    }
    Ok(length)
}

/// Removes the hop-by-hop fields (RFC 9110, 7.6.1). Returns whether the connection may carry another request.
#[inline]
pub(super) fn clean_request(head: &mut Head) -> bool {
    head.clean_connection();
    head.clean_upgrade();
    head.clean_vain_upgrade();
    head.keep_alive()
}

/// Copies the received part of the body, including its transfer coding.
pub(super) fn keep(socket: &Socket, length: BodyLength, out: &mut Vec<u8>) {
    let received = socket.received();
    let taken = match length {
        BodyLength::None | BodyLength::UntilClose => 0,
        BodyLength::Length(n) => (n as usize).min(received.len()),
        BodyLength::Chunked => ChunkDecoder::new().track(received).unwrap_or(0),
    };
    out.extend_from_slice(&received[..taken]);
}

/// Replaces the bytes that `flow` has prepared with `kept`, in front of the bytes after the body.
pub(super) fn put_back(input: &mut Option<Buffer>, kept: &[u8], flow: &Flow) {
    let rest = input.take();
    let rest = rest.as_ref().map_or(&[][..], |input| &input.filled()[flow.ready()..]);
    let mut again = Buffer::holding(kept.len() + rest.len());
    again.push(kept);
    again.push(rest);
    *input = Some(again);
}

/// Discards an unread body from the received bytes. Returns whether the whole body had been received.
pub(super) fn skip_body(socket: &mut Socket, flow: &mut Flow) -> bool {
    let Some(input) = &mut socket.input else { return flow.is_received() };
    flow.discard(input).unwrap_or(false)
}

/// The inputs that determine how a response is framed for this client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Framed {
    /// How the end of the incoming body is marked.
    pub(crate) length: BodyLength,
    /// Whether the response may have framing fields. If not, closing the connection ends the body.
    pub(crate) is_framed: bool,
    /// Whether the connections become a tunnel after the response.
    pub(crate) is_tunnel: bool,
    /// Whether the client supports HTTP/1.1.
    pub(crate) is_modern: bool,
    /// `option http-drop-response-trailers`.
    pub(crate) drops_trailers: bool,
}

/// Sets the connection fields of the response, and chooses how to send the body if the client does not support its current
/// framing. A `kept` connection stays open if possible.
pub(super) fn frame_response(
    head: &mut Head,
    framed: Framed,
    kept: bool,
    may: impl FnOnce() -> bool,
) -> (Path, bool) {
    let Framed { length, is_framed, is_tunnel, is_modern, drops_trailers } = framed;
    if is_tunnel {
        // The bytes after the head are not a body (RFC 9110, 9.3.6).
        head.remove_body_length();
        return (Path::Verbatim, false);
    }
    let closes = head.take_close();
    head.clean_upgrade();
    if head.status() == 204 {
        // There is no body, and a length must not be sent (RFC 9110, 8.6).
        head.remove_body_length();
    }
    let mut path = Path::Verbatim;
    if !is_framed || length == BodyLength::Chunked && !is_modern {
        if length == BodyLength::Chunked {
            path = Path::Payload(Coding::Bare);
        }
        head.remove_body_length();
    } else if length == BodyLength::Chunked && drops_trailers {
        path = Path::Payload(Coding::Chunked);
    }
    let old = !head.version().is_11_or_above();
    // HTTP/1.0 does not define transfer codings, so the end of the message is ambiguous (RFC 9112, 6.1).
    let doubtful = old && length == BodyLength::Chunked;
    let dechunks = path == Path::Payload(Coding::Bare);
    let endless = length == BodyLength::UntilClose || dechunks || doubtful || !is_framed;
    let keep_alive = kept && !closes && !endless && may();
    if !keep_alive {
        // HTTP/1.0 connections close by default.
        if !old {
            head.append(b"connection", b"close");
        }
    } else if !is_modern || old {
        head.append(b"connection", b"keep-alive");
    }
    (path, keep_alive)
}

/// Checks whether the client is still connected. Data that the client sends in the meantime is stored.
pub(super) fn poll_presence(socket: &mut Socket, context: &mut Context<'_>) -> std::io::Result<Presence> {
    loop {
        if socket.stream.poll_read_ready(context).is_pending()
            || socket.input.as_ref().is_some_and(|input| input.room_len() == 0)
        {
            return Ok(Presence::Here);
        }
        match socket.poll_fill(context) {
            Poll::Pending => {
                socket.release();
                return Ok(Presence::Here);
            }
            Poll::Ready(Ok(0)) => return Ok(Presence::Closed),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => return Err(error),
        }
    }
}
