//! Blocks to heads.

use http::Head;

use super::{Refusal, Rules};
use crate::Code;
use crate::hpack::Decoder;

/// What a request says beside its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// An extended CONNECT (RFC 8441), which the head shows as GET with `Upgrade` and `Connection`.
    pub protocol: bool,
    /// What its `priority` field asks for.
    pub priority: Option<Priority>,
}

/// How a response is to be sent among others (RFC 9218 section 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Priority {
    /// 0 to 7, the smaller the sooner; 3 where nothing is said.
    pub urgency: u8,
    /// Whether parts of the response are of use before its end.
    pub incremental: bool,
}

/// Reads a request's header block into `head`.
///
/// # Errors
/// Of the connection for a block that is broken, of the stream for a request that is.
pub fn read_request(
    decoder: &mut Decoder,
    block: &[u8],
    end_stream: bool,
    rules: &Rules,
    head: &mut Head,
) -> Result<Request, Refusal> {
    let _ = (decoder, block, end_stream, rules, head);
    Err(Refusal::Connection(Code::CompressionError))
}

/// Reads a response's header block into `head`; interim responses (1xx) are heads of their own.
///
/// # Errors
/// As [`read_request`].
pub fn read_response(
    decoder: &mut Decoder,
    block: &[u8],
    end_stream: bool,
    rules: &Rules,
    head: &mut Head,
) -> Result<(), Refusal> {
    let _ = (decoder, block, end_stream, rules, head);
    Err(Refusal::Connection(Code::CompressionError))
}

/// Reads trailers into `head`, which then has fields and no start line.
///
/// # Errors
/// As [`read_request`].
pub fn read_trailers(
    decoder: &mut Decoder,
    block: &[u8],
    rules: &Rules,
    head: &mut Head,
) -> Result<(), Refusal> {
    let _ = (decoder, block, rules, head);
    Err(Refusal::Connection(Code::CompressionError))
}
