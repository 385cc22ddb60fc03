//! Converts the field sections of responses and trailers to heads (RFC 9113 sections 8.1 and 8.3.2, RFC 9114 sections
//! 4.1 and 4.3.2).

use http::{Head, KnownName};

use crate::coding::{Field, FieldSource};
use crate::name::{FieldName, Pseudo};
use crate::read::{self, is_connection_specific, push};
use crate::{Cause, Refusal, Rules};

/// Reads the field section of a response into `head` and replaces its content. Each interim response (1xx) is a separate section.
/// `end_stream` means that the stream ends with the section.
///
/// The version is [`FieldSource::VERSION`]. [`Head::response_body`] is the announced length, nothing if the stream ends with this
/// section, or otherwise [`http::BodyLength::UntilClose`], which stands for the end of the stream. A response that ends with the
/// head despite a positive length is complete for HEAD and 304, and truncated otherwise. Only the caller knows the request, so it
/// has to check this.
///
/// # Errors
/// [`Refusal::Coding`] if the section cannot be decoded, [`Refusal::Message`] if the response is malformed.
pub fn read_response<S: FieldSource>(
    source: S,
    end_stream: bool,
    rules: &Rules,
    head: &mut Head,
) -> Result<(), Refusal<S::Error>> {
    head.start_multiplexed(S::VERSION, true);
    let pseudo = |head: &mut &mut Head, name: Pseudo, value: &[u8]| {
        if name != Pseudo::Status {
            return Err(Cause::PseudoUnknown);
        }
        head.set_status(status(value)?, None);
        Ok(())
    };
    let mut head = head;
    read::section(source, rules, &mut head, pseudo, response_field)?;
    match head.status() {
        0 => return Err(Cause::PseudoSet.into()),
        100..=199 if end_stream => return Err(Cause::InterimEnd.into()),
        _ => {}
    }
    head.frame_by_stream(end_stream, false).map_err(|_| Cause::ContentLength.into())
}

/// Parses `:status`.
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

/// Reads trailers into `head`, which then has fields but no start line.
///
/// # Errors
/// [`Refusal::Coding`] if the section cannot be decoded, [`Refusal::Message`] if it contains
/// pseudo-fields or a field that is not allowed in trailers.
pub fn read_trailers<S: FieldSource>(
    source: S,
    rules: &Rules,
    head: &mut Head,
) -> Result<(), Refusal<S::Error>> {
    head.start_multiplexed(S::VERSION, false);
    let pseudo = |_: &mut &mut Head, _: Pseudo, _: &[u8]| Err(Cause::PseudoUnknown);
    let mut head = head;
    read::section(source, rules, &mut head, pseudo, trailer)
}

fn trailer(head: &mut &mut Head, field: &Field<'_>) -> Result<(), Cause> {
    if let FieldName::Known(known) = field.name
        && !may_trail(known)
    {
        return Err(Cause::Trailer);
    }
    push(head, field)
}

/// Returns whether this field is allowed in trailers. As in HAProxy, fields for framing, routing and the connection are not.
#[inline(always)]
pub(crate) fn may_trail(name: KnownName) -> bool {
    let framing = matches!(name, KnownName::ContentLength | KnownName::Host | KnownName::Te);
    !framing && !is_connection_specific(name)
}
