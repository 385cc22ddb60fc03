//! Responses and trailers: header blocks to heads (RFC 9113 sections 8.1 and 8.3.2).

use http::{Head, KnownName};

use super::cause::refuse;
use super::read::{self, is_connection_specific, push};
use super::{Cause, Refusal, Rules};
use crate::hpack::{Decoder, Field, FieldName, Pseudo};

/// Reads a response's header block into `head`, whose former content is dropped; interim responses
/// (1xx) are heads of their own.
///
/// The version is 2.0. [`Head::response_body`]: a length that was announced, nothing if the stream
/// ends here, else [`http::BodyLength::UntilClose`], which means the end of the stream. A response
/// that announces more than nothing and ends with its head is right where it answers HEAD or is a
/// 304, and cut off elsewhere: the caller knows what it answers.
///
/// # Errors
/// Of the connection for a block that is broken, of the stream for a response that is.
pub fn read_response(
    decoder: &mut Decoder,
    block: &[u8],
    end_stream: bool,
    rules: &Rules,
    head: &mut Head,
) -> Result<(), Refusal> {
    head.start_multiplexed(true);
    let pseudo = |head: &mut &mut Head, name: Pseudo, value: &[u8]| {
        if name != Pseudo::Status {
            return Err(Cause::PseudoUnknown);
        }
        head.set_status(status(value)?, None);
        Ok(())
    };
    let mut head = head;
    read::fields(decoder, block, rules, &mut head, pseudo, response_field)?;
    match head.status() {
        0 => return refuse(Cause::PseudoSet),
        100..=199 if end_stream => return refuse(Cause::InterimEnd),
        _ => {}
    }
    match head.frame_by_stream(end_stream, false) {
        Ok(()) => Ok(()),
        Err(_) => refuse(Cause::ContentLength),
    }
}

/// The number of `:status`.
fn status(value: &[u8]) -> Result<u16, Cause> {
    match value {
        b"200" => Ok(200),
        b"101" => Err(Cause::Switching),
        [a @ b'1'..=b'9', b @ b'0'..=b'9', c @ b'0'..=b'9'] => {
            let digit = |byte: &u8| u16::from(byte - b'0');
            Ok(digit(a) * 100 + digit(b) * 10 + digit(c))
        }
        _ => Err(Cause::Status),
    }
}

#[inline(always)]
fn response_field(head: &mut &mut Head, field: &Field<'_>) -> Result<(), Cause> {
    if head.status() == 0 {
        return Err(Cause::PseudoSet);
    }
    if let FieldName::Known(known) = field.name
        && is_connection_specific(known)
    {
        return Err(Cause::ConnectionSpecific);
    }
    push(head, field)
}

/// Reads trailers into `head`, which then has fields and no start line.
///
/// # Errors
/// Of the connection for a block that is broken, of the stream for what trailers may not have:
/// pseudo-fields, and fields that frame, route or concern a connection.
pub fn read_trailers(
    decoder: &mut Decoder,
    block: &[u8],
    rules: &Rules,
    head: &mut Head,
) -> Result<(), Refusal> {
    head.start_multiplexed(false);
    let pseudo = |_: &mut &mut Head, _: Pseudo, _: &[u8]| Err(Cause::PseudoUnknown);
    let mut head = head;
    read::fields(decoder, block, rules, &mut head, pseudo, trailer)
}

fn trailer(head: &mut &mut Head, field: &Field<'_>) -> Result<(), Cause> {
    if let FieldName::Known(known) = field.name
        && !may_trail(known)
    {
        return Err(Cause::Trailer);
    }
    push(head, field)
}

/// Whether trailers may have a field of this name; HAProxy refuses the same.
#[inline(always)]
pub(super) fn may_trail(name: KnownName) -> bool {
    let framing = matches!(name, KnownName::ContentLength | KnownName::Host | KnownName::Te);
    !framing && !is_connection_specific(name)
}
