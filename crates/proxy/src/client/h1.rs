//! HTTP/1 towards a client: heads, framing and the end of its connection (RFC 9112).

use std::task::{Context, Poll};

use http::{
    BodyLength, ChunkDecoder, ErrorKind, Head, Method, ParseError, ParseOptions, ParseStatus, parse_request,
};
use runtime::Buffer;

use super::presence::Presence;
use crate::flow::{Coding, Flow, Path, Socket};

/// Reads the head of the next request in what was received: its length, or `None` if it is not
/// complete.
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

/// How the body ends (RFC 9112, 6.3). Looks at what came of it together with the head.
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

/// Takes the hop-by-hop fields away (RFC 9110, 7.6.1); says whether the connection may take another
/// request.
#[inline]
pub(super) fn clean_request(head: &mut Head) -> bool {
    head.clean_connection();
    head.clean_upgrade();
    head.clean_vain_upgrade();
    head.keep_alive()
}

/// Keeps what is here of the body, coded as it came.
pub(super) fn keep(socket: &Socket, length: BodyLength, out: &mut Vec<u8>) {
    let received = socket.received();
    let taken = match length {
        BodyLength::None | BodyLength::UntilClose => 0,
        BodyLength::Length(n) => (n as usize).min(received.len()),
        BodyLength::Chunked => ChunkDecoder::new().track(received).unwrap_or(0),
    };
    out.extend_from_slice(&received[..taken]);
}

/// Puts `kept` in the place of what `flow` has made ready, before what follows the body.
pub(super) fn put_back(input: &mut Option<Buffer>, kept: &[u8], flow: &Flow) {
    let rest = input.take();
    let rest = rest.as_ref().map_or(&[][..], |input| &input.filled()[flow.ready()..]);
    let mut again = Buffer::holding(kept.len() + rest.len());
    again.push(kept);
    again.push(rest);
    *input = Some(again);
}

/// Takes a body that nobody reads out of what was received; says whether all of it was here.
pub(super) fn skip_body(socket: &mut Socket, flow: &mut Flow) -> bool {
    let Some(input) = &mut socket.input else { return flow.is_received() };
    flow.discard(input).unwrap_or(false)
}

/// What decides how a response is framed for this client.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Framed {
    /// How the body ends as it comes.
    pub(crate) length: BodyLength,
    /// Whether the head may say how it ends; else the end of the connection does.
    pub(crate) is_framed: bool,
    /// Whether both connections become a tunnel.
    pub(crate) is_tunnel: bool,
    /// Whether the client knows HTTP/1.1.
    pub(crate) is_modern: bool,
    /// `option http-drop-response-trailers`.
    pub(crate) drops_trailers: bool,
}

/// Says in the response whether its connection stays, and how a body goes that the client could not
/// read as it comes. What was `kept` alive may stay so if it `may` be.
pub(super) fn frame_response(
    head: &mut Head,
    framed: Framed,
    kept: bool,
    may: impl FnOnce() -> bool,
) -> (Path, bool) {
    let Framed { length, is_framed, is_tunnel, is_modern, drops_trailers } = framed;
    if is_tunnel {
        // What follows is no body (RFC 9110, 9.3.6).
        head.remove_body_length();
        return (Path::Verbatim, false);
    }
    let closes = head.take_close();
    head.clean_upgrade();
    if head.status() == 204 {
        // It has no body, and must not name a length (RFC 9110, 8.6).
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
    // A coding that HTTP/1.0 does not know makes the end of the message doubtful (RFC 9112, 6.1).
    let doubtful = old && length == BodyLength::Chunked;
    let dechunks = path == Path::Payload(Coding::Bare);
    let endless = length == BodyLength::UntilClose || dechunks || doubtful || !is_framed;
    let keep_alive = kept && !closes && !endless && may();
    if !keep_alive {
        // HTTP/1.0 means just that by saying nothing.
        if !old {
            head.append(b"connection", b"close");
        }
    } else if !is_modern || old {
        head.append(b"connection", b"keep-alive");
    }
    (path, keep_alive)
}

/// Whether the client is still there; what it sent meanwhile is kept.
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
