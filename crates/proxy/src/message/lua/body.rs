//! The bodies that script filters see: their framing, and the filters in the flow that forwards them.

use http::BodyLength;

use crate::client::Client;
use crate::exchange::Exchange;
use crate::exchange::lua::filtering::Filtering;
use crate::flow::{Coding, Filter, Filters, Flow, Path, Rank};
use crate::message::framing;

/// Starts the flow of a request's body to a service, through the script filters that see it, and sets the body's framing in the
/// request's head. Does nothing if no filter sees the body.
#[cold]
pub(crate) fn begin_for_service(client: &Client, x: &mut Exchange) {
    if !sees(x, false) || !has_body(x, false) {
        return;
    }
    let length = x.request_body.length;
    let shown = frame(x, false, length, false);
    if let Some(filters) = filters(x, false, shown, None) {
        x.upload.start_filtered(client.side.framing(length), Path::Payload(Coding::Bare), filters);
    }
}

/// Whether a body follows the head.
pub(super) fn has_body(x: &Exchange, of_response: bool) -> bool {
    match of_response {
        false => x.request_body.length != BodyLength::None && !x.request_body.is_dropped,
        true => {
            let has_any = x.response_body.length != BodyLength::None;
            has_any && !framing::is_bodiless(x) && !x.is_tunnel
        }
    }
}

/// Whether script filters see the payload of this direction.
#[inline]
pub(crate) fn sees(x: &Exchange, of_response: bool) -> bool {
    x.filtering.as_ref().is_some_and(|filtering| filtering.sees_data(of_response))
}

/// Whether the response has a body that filters see.
#[cold]
pub(crate) fn sees_response(x: &Exchange) -> bool {
    has_body(x, true) && sees(x, true)
}

/// Sets the framing of a body in its head if filters change the body. Returns the length for the receiver. A compressed body is
/// chunked, unless a later filter sets a length.
#[cold]
pub(crate) fn frame(x: &mut Exchange, of_response: bool, length: BodyLength, is_coded: bool) -> BodyLength {
    let shown = shown(x, of_response, length, is_coded);
    let said = if is_coded { BodyLength::Chunked } else { length };
    if shown == said {
        return shown;
    }
    let head = if of_response { &mut x.txn.response } else { &mut x.txn.request };
    head.remove_body_length();
    match shown {
        BodyLength::Length(bytes) => head.set_content_length(bytes),
        _ => {
            head.append(b"transfer-encoding", b"chunked");
        }
    }
    shown
}

/// Returns the receiver's length of a filtered body. `length` is the sender's.
pub(crate) fn shown(x: &Exchange, of_response: bool, length: BodyLength, is_coded: bool) -> BodyLength {
    let direction = |filtering: &Filtering| match of_response {
        true => filtering.response.length,
        false => filtering.request.length,
    };
    match x.filtering.as_ref().and_then(|filtering| direction(filtering)) {
        Some(Some(bytes)) => BodyLength::Length(bytes),
        Some(None) => BodyLength::Chunked,
        None if is_coded => BodyLength::Chunked,
        None => length,
    }
}

/// Returns the path of a filtered body from the receiver's length. `path` is the path without filters.
pub(crate) fn path(shown: BodyLength, path: Path) -> Path {
    match (path, shown) {
        (Path::Verbatim, BodyLength::Chunked) => Path::Payload(Coding::Chunked),
        (Path::Verbatim, _) => Path::Payload(Coding::Bare),
        (path, _) => path,
    }
}

/// Returns the script filters of a direction together with its other filters, for a body of which the receiver sees the length
/// `shown`. Resets the payload that scripts received in an earlier attempt.
pub(crate) fn filters(
    x: &mut Exchange,
    of_response: bool,
    shown: BodyLength,
    others: impl IntoIterator<Item = (Rank, Filter)>,
) -> Option<Box<Filters>> {
    let filtering = x.filtering.as_mut()?;
    filtering.begin(of_response);
    let scripts = filtering.ranked(of_response).map(|(rank, place)| (rank, Filter::script(place)));
    let mut all = Filters::of(scripts.chain(others))?;
    all.promised = match shown {
        BodyLength::Length(bytes) => Some(bytes),
        BodyLength::None | BodyLength::Chunked | BodyLength::UntilClose => None,
    };
    Some(all)
}

/// Starts the directions of a TCP stream that script filters see.
#[cold]
pub(crate) fn begin_stream(x: &mut Exchange) {
    for of_response in [false, true] {
        if sees(x, of_response) {
            let length = BodyLength::UntilClose;
            if let Some(filters) = filters(x, of_response, length, None) {
                flow(x, of_response).start_filtered(length, path(length, Path::Verbatim), filters);
            }
        }
    }
}

pub(super) fn flow(x: &mut Exchange, of_response: bool) -> &mut Flow {
    if of_response { &mut x.download } else { &mut x.upload }
}
