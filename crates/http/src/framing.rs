//! Interprets the header fields that affect the body or the connection: length, coding, persistence, upgrades.
//!
//! RFC 9112 sections 6 and 9.3 as HAProxy applies them; evaluated once at the end of a parse, then available as flags.

use crate::head::{
    CHUNKED, CLOSE, ENDED, EXPECT, Field, HAS_LENGTH, Head, KEEP_ALIVE, MUST_CLOSE, OTHER_CODING, STREAMED,
    UPGRADE, WEBSOCKET,
};
use crate::name::KnownName;
use crate::options::ParseOptions;
use crate::outcome::{ErrorKind, ParseError};
use crate::scan::{decimal, trim};
use crate::{Method, eq_ignore_case, list_values};

/// How the end of a body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum BodyLength {
    /// No body.
    #[default]
    None,
    /// Exactly this many bytes.
    Length(u64),
    /// Chunked coding; see [`crate::ChunkDecoder`].
    Chunked,
    /// Until the connection closes, or the HTTP/2 stream ends. Also used for the tunnel after a 101 or an accepted CONNECT
    /// ([`Head::is_tunnel`]).
    UntilClose,
}

const CHECKED: u128 = KnownName::ContentLength.mask()
    | KnownName::TransferEncoding.mask()
    | KnownName::Connection.mask()
    | KnownName::Upgrade.mask()
    | KnownName::Expect.mask()
    | KnownName::Te.mask();

impl KnownName {
    const fn mask(self) -> u128 {
        1u128 << (self as u8)
    }
}

/// Validates the fields that frame the message and sets the head's flags.
pub(crate) fn check(head: &mut Head, options: &ParseOptions) -> Result<(), ParseError> {
    if head.seen & CHECKED == 0 {
        return Ok(());
    }
    for i in 0..head.fields.len() {
        let f = head.fields[i];
        if f.is_dead() {
            continue;
        }
        match f.known {
            KnownName::Connection => connection(head, f),
            KnownName::ContentLength => content_length(head, i)?,
            KnownName::TransferEncoding => transfer_encoding(head, i, options)?,
            KnownName::Upgrade if names_websocket(f.value(&head.bytes)) => head.flags |= WEBSOCKET,
            KnownName::Expect if eq_ignore_case(f.value(&head.bytes), b"100-continue") => {
                head.flags |= EXPECT
            }
            KnownName::Te if !head.is_response => te(head, i),
            _ => {}
        }
    }
    combine(head, options)
}

fn at(f: Field, kind: ErrorKind) -> ParseError {
    ParseError { kind, offset: f.value as usize }
}

fn names_websocket(upgrade: &[u8]) -> bool {
    list_values(upgrade).any(|v| eq_ignore_case(v, b"websocket"))
}

fn connection(head: &mut Head, f: Field) {
    for value in list_values(f.value(&head.bytes)) {
        head.flags |= match value.len() {
            5 if eq_ignore_case(value, b"close") => CLOSE,
            10 if eq_ignore_case(value, b"keep-alive") => KEEP_ALIVE,
            7 if eq_ignore_case(value, b"upgrade") => UPGRADE,
            _ => 0,
        };
    }
}

/// Handles `Content-Length` (RFC 9112 section 6.3). A list of equal numbers counts as one; the header is reduced to one line with
/// one number.
fn content_length(head: &mut Head, index: usize) -> Result<(), ParseError> {
    let f = head.fields[index];
    let value = f.value(&head.bytes);
    if head.flags & HAS_LENGTH == 0
        && let Some(number) = decimal(value)
    {
        head.content_length = number;
        head.flags |= HAS_LENGTH;
        if value.len() > 1 && value[0] == b'0' {
            head.replace_value_at(index, number.to_string().as_bytes());
        }
        return Ok(());
    }
    let mut length = (head.flags & HAS_LENGTH != 0).then_some(head.content_length);
    for part in value.split(|&b| b == b',') {
        let number = decimal(trim(part)).ok_or(at(f, ErrorKind::ContentLength))?;
        if length.is_some_and(|l| l != number) {
            return Err(at(f, ErrorKind::ContentLength));
        }
        length = Some(number);
    }
    head.content_length = length.unwrap_or_default();
    if head.flags & HAS_LENGTH != 0 {
        head.remove_at(index);
    } else if value.contains(&b',') {
        head.replace_value_at(index, head.content_length.to_string().as_bytes());
    }
    head.flags |= HAS_LENGTH;
    Ok(())
}

/// `chunked` must occur once and last. A relaxed response may repeat it or have empty values.
fn transfer_encoding(head: &mut Head, index: usize, options: &ParseOptions) -> Result<(), ParseError> {
    let f = head.fields[index];
    let before = head.flags & CHUNKED;
    let relaxed = options.relaxed && head.is_response;
    let mut flags = head.flags;
    for value in list_values(f.value(&head.bytes)) {
        let chunked = eq_ignore_case(value, b"chunked");
        let breach = value.is_empty() || (chunked && flags & CHUNKED != 0);
        if breach {
            if !relaxed {
                return Err(at(f, ErrorKind::TransferEncoding));
            }
            head.violation.get_or_insert(at(f, ErrorKind::TransferEncoding));
        } else if chunked {
            flags |= CHUNKED;
        } else if flags & CHUNKED != 0 {
            return Err(at(f, ErrorKind::TransferEncoding));
        } else {
            flags |= OTHER_CODING;
        }
    }
    head.flags = flags;
    // Only one canonical spelling, because the next hop might not recognize others.
    if before != 0 || flags & CHUNKED == 0 {
        if flags & OTHER_CODING == 0 {
            head.remove_at(index);
        }
    } else if f.value(&head.bytes) != b"chunked" {
        head.replace_value_at(index, b"chunked");
    }
    Ok(())
}

/// Reduces `TE` to `trailers`, because Weir does not decode codings that the next hop might then use.
fn te(head: &mut Head, index: usize) {
    let value = head.fields[index].value(&head.bytes);
    if value == b"trailers" {
        return;
    }
    if list_values(value).any(|v| eq_ignore_case(v, b"trailers")) {
        head.replace_value_at(index, b"trailers");
    } else {
        head.remove_at(index);
    }
}

impl Head {
    /// Validates the fields of an HTTP/2 message, of which only `Content-Length` affects framing, and sets the body's
    /// framing. `ends`: the stream ends with the head. `tunnel`: the data that follows is not a body, so there is no
    /// length.
    ///
    /// # Errors
    /// An invalid length, or a length other than zero if nothing can follow.
    pub fn frame_by_stream(&mut self, ends: bool, tunnel: bool) -> Result<(), ErrorKind> {
        const SPOKEN: u128 = KnownName::ContentLength.mask() | KnownName::Expect.mask();
        if self.seen & SPOKEN != 0 {
            for i in 0..self.fields.len() {
                let f = self.fields[i];
                match f.known {
                    _ if f.is_dead() => {}
                    KnownName::ContentLength => content_length(self, i).map_err(|error| error.kind)?,
                    KnownName::Expect if eq_ignore_case(f.value(&self.bytes), b"100-continue") => {
                        self.flags |= EXPECT;
                    }
                    _ => {}
                }
            }
        }
        let has_length = self.flags & HAS_LENGTH != 0;
        if has_length && (tunnel || ends && !self.is_response && self.content_length > 0) {
            return Err(ErrorKind::ContentLength);
        }
        if ends {
            self.flags |= ENDED;
        } else if !has_length && !tunnel {
            self.flags |= STREAMED;
        }
        self.reframed = false;
        Ok(())
    }
}

/// Rules that involve several fields.
fn combine(head: &mut Head, options: &ParseOptions) -> Result<(), ParseError> {
    let fail = |head: &Head, name, kind| {
        let field = head.fields.iter().find(|f| f.known == name);
        Err(ParseError { kind, offset: field.map_or(0, |f| f.value as usize) })
    };
    if head.seen & KnownName::TransferEncoding.mask() != 0 {
        if head.flags & (CHUNKED | OTHER_CODING) == OTHER_CODING {
            return fail(head, KnownName::TransferEncoding, ErrorKind::TransferEncoding);
        }
        if head.flags & OTHER_CODING != 0 {
            return fail(head, KnownName::TransferEncoding, ErrorKind::TransferCoding);
        }
        let both = head.flags & HAS_LENGTH != 0;
        if both {
            head.remove_known(KnownName::ContentLength);
            head.flags &= !HAS_LENGTH;
            head.content_length = 0;
        }
        if (both && !options.keep_insecure) || !head.version.is_11_or_above() {
            head.flags |= MUST_CLOSE;
        }
    }
    if !head.version.is_11_or_above() {
        head.flags &= !EXPECT;
    }
    if head.flags & (UPGRADE | WEBSOCKET) == UPGRADE | WEBSOCKET {
        websocket(head, options)?;
    }
    Ok(())
}

/// Checks whether an HTTP/1.0 request may have a payload. This check is last, because malformed messages take precedence.
pub(crate) fn check_payload(head: &Head, options: &ParseOptions) -> Result<(), ParseError> {
    let bare = matches!(head.method_id, Method::Get | Method::Head | Method::Delete);
    let payload = head.flags & CHUNKED != 0 || head.content_length > 0;
    if bare && payload && !head.version.is_11_or_above() && !options.any_method_payload {
        return Err(ParseError { kind: ErrorKind::Payload, offset: 0 });
    }
    Ok(())
}

/// Checks a WebSocket handshake (RFC 6455). The key of a request must have 16 bytes in base64. For a response, only the presence of
/// the header is checked, not the value.
fn websocket(head: &mut Head, options: &ParseOptions) -> Result<(), ParseError> {
    let sound = if !head.is_response {
        let key = head.get_known(KnownName::SecWebsocketKey);
        key.is_some_and(|key| key.len() == 24 && key.ends_with(b"=="))
    } else {
        head.status != 101 || head.get_known(KnownName::SecWebsocketAccept).is_some()
    };
    if sound {
        return Ok(());
    }
    let error = ParseError { kind: ErrorKind::WebSocket, offset: 0 };
    if !options.relaxed {
        return Err(error);
    }
    head.violation.get_or_insert(error);
    Ok(())
}

impl Head {
    /// The body framing of a parsed request. The end of the connection never delimits a request body. In HTTP/2, a body without a
    /// length ends with its stream, which is represented as [`BodyLength::UntilClose`].
    #[must_use]
    pub fn request_body(&self) -> BodyLength {
        if self.flags & CHUNKED != 0 {
            BodyLength::Chunked
        } else if self.content_length > 0 {
            BodyLength::Length(self.content_length)
        } else if self.flags & STREAMED != 0 {
            BodyLength::UntilClose
        } else {
            BodyLength::None
        }
    }

    /// The body framing of a parsed response, given the method of its request (RFC 9112 section 6.3).
    #[must_use]
    pub fn response_body(&self, request: Method) -> BodyLength {
        if self.is_tunnel(request) {
            BodyLength::UntilClose
        } else if request == Method::Head || matches!(self.status, 100..=199 | 204 | 304) {
            BodyLength::None
        } else if self.flags & CHUNKED != 0 {
            BodyLength::Chunked
        } else if self.flags & HAS_LENGTH != 0 {
            BodyLength::Length(self.content_length)
        } else if self.flags & ENDED != 0 {
            BodyLength::None
        } else {
            BodyLength::UntilClose
        }
    }

    /// Whether this response turns the connection into a tunnel: 101, or 2xx to CONNECT.
    #[must_use]
    pub fn is_tunnel(&self, request: Method) -> bool {
        self.status == 101 || (request == Method::Connect && matches!(self.status, 200..=299))
    }

    /// The parsed `Content-Length`, if there is one that applies.
    #[must_use]
    pub fn content_length(&self) -> Option<u64> {
        (self.flags & HAS_LENGTH != 0).then_some(self.content_length)
    }

    /// Whether the sender of this head keeps the connection open after the message (RFC 9112 section 9.3).
    #[must_use]
    pub fn keep_alive(&self) -> bool {
        if self.flags & (CLOSE | MUST_CLOSE) != 0 {
            return false;
        }
        self.version.is_11_or_above() || self.flags & KEEP_ALIVE != 0
    }

    /// Whether `Connection` contains `close`.
    #[must_use]
    pub fn has_close(&self) -> bool {
        self.flags & CLOSE != 0
    }

    /// Whether `Connection` contains `keep-alive`.
    #[must_use]
    pub fn has_keep_alive(&self) -> bool {
        self.flags & KEEP_ALIVE != 0
    }

    /// Whether `Connection` contains `upgrade` and there is an `Upgrade` header.
    #[must_use]
    pub fn has_upgrade(&self) -> bool {
        self.flags & UPGRADE != 0 && self.get_known(KnownName::Upgrade).is_some()
    }

    /// Whether a 101 only switches to protocols that the request named: `Connection` has `upgrade`, and all names in `Upgrade` are
    /// in the request's `Upgrade` (RFC 9110 section 7.8). Versions after the names may differ.
    #[must_use]
    pub fn switches_as_asked(&self, request: &Self) -> bool {
        let name =
            |protocol: &[u8]| protocol.split(|byte| *byte == b'/').next().map(<[u8]>::to_ascii_lowercase);
        let asked: Vec<_> = request.listed(KnownName::Upgrade).map(name).collect();
        let mut protocols = self.listed(KnownName::Upgrade).peekable();
        self.listed(KnownName::Connection).any(|option| eq_ignore_case(option, b"upgrade"))
            && protocols.peek().is_some()
            && protocols.all(|protocol| asked.contains(&name(protocol)))
    }

    /// The non-empty elements of all lists of one name.
    fn listed(&self, name: KnownName) -> impl Iterator<Item = &[u8]> {
        let fields = self.fields.iter().filter(move |field| field.known == name && !field.is_dead());
        fields.flat_map(|field| list_values(field.value(&self.bytes))).filter(|value| !value.is_empty())
    }

    /// Whether the message is a WebSocket handshake or the response to one.
    #[must_use]
    pub fn is_websocket(&self) -> bool {
        self.flags & (UPGRADE | WEBSOCKET) == UPGRADE | WEBSOCKET
    }

    /// Whether the framing was ambiguous (both lengths, or chunked in HTTP/1.0), so that the connection must be closed after the
    /// exchange.
    #[must_use]
    pub fn must_close(&self) -> bool {
        self.flags & MUST_CLOSE != 0
    }

    /// Whether the client waits for a 100 before it sends the body (RFC 9110 section 10.1.1).
    #[must_use]
    pub fn expects_continue(&self) -> bool {
        self.flags & EXPECT != 0
    }

    /// Removes tokens about this connection (`close`, `keep-alive`) from the `Connection` header and keeps other tokens. The flags
    /// do not change.
    #[inline]
    pub fn clean_connection(&mut self) {
        if self.get_known(KnownName::Connection).is_some() {
            let ours = |v: &[u8]| eq_ignore_case(v, b"close") || eq_ignore_case(v, b"keep-alive");
            self.remove_listed(KnownName::Connection, ours);
        }
    }

    /// Like [`clean_connection`](Self::clean_connection); returns whether `close` was present.
    #[inline]
    pub fn take_close(&mut self) -> bool {
        let Some(first) = self.get_known(KnownName::Connection) else { return false };
        let closes = |value: &[u8]| list_values(value).any(|v| eq_ignore_case(v, b"close"));
        let named = closes(first) || self.get_all(&KnownName::Connection.into()).any(closes);
        self.clean_connection();
        named
    }

    /// Removes h2c and h2 from `Upgrade`, which a proxy must not forward.
    pub fn clean_upgrade(&mut self) {
        if self.get_known(KnownName::Upgrade).is_some() {
            self.remove_listed(KnownName::Upgrade, |v| eq_ignore_case(v, b"h2c") || eq_ignore_case(v, b"h2"));
        }
    }

    /// Removes `upgrade` from the `Connection` header of a request without an `Upgrade` header, and removes an `Upgrade` header
    /// that is not listed in `Connection`.
    pub fn clean_vain_upgrade(&mut self) {
        let named = self.get_known(KnownName::Upgrade).is_some();
        if self.flags & UPGRADE == 0 {
            if named {
                self.remove_known(KnownName::Upgrade);
            }
        } else if !named {
            self.remove_listed(KnownName::Connection, |v| eq_ignore_case(v, b"upgrade"));
            self.flags &= !UPGRADE;
        }
    }

    /// Removes values selected by `unwanted` from all lists of one name, and lists that become empty.
    fn remove_listed(&mut self, name: KnownName, unwanted: impl Fn(&[u8]) -> bool) {
        for i in 0..self.fields.len() {
            let f = self.fields[i];
            if f.known != name || f.is_dead() {
                continue;
            }
            let value = f.value(&self.bytes);
            if list_values(value).all(|v| v.is_empty() || unwanted(v)) {
                self.remove_at(i);
            } else if list_values(value).any(&unwanted) {
                let kept: Vec<&[u8]> = list_values(value).filter(|v| !v.is_empty() && !unwanted(v)).collect();
                let kept = kept.join(&b","[..]);
                self.replace_value_at(i, &kept);
            }
        }
    }

    /// Starts tracking changes of the fields that frame the message, for [`settle_framing`](Self::settle_framing).
    pub fn watch_framing(&mut self) {
        self.reframed = false;
    }

    /// Makes the fields that frame the message match the actual body, whatever rules have changed since
    /// [`watch_framing`](Self::watch_framing): the head then has one `Content-Length` with the length of the body, or one
    /// `Transfer-Encoding: chunked`, or neither.
    ///
    /// Returns false if the field that framed the body was removed. The caller then has to choose a new framing.
    ///
    /// # Errors
    /// A `Content-Length` that is not a number, or does not match the body: the message cannot be sent.
    pub fn settle_framing(&mut self, body: BodyLength) -> Result<bool, ErrorKind> {
        if !self.reframed {
            return Ok(true);
        }
        self.reframed = false;
        let (length, coding) = (KnownName::ContentLength.into(), KnownName::TransferEncoding.into());
        let lengths: Option<Vec<u64>> = self.get_all(&length).map(decimal).collect();
        let lengths = lengths.ok_or(ErrorKind::ContentLength)?;
        match body {
            BodyLength::Chunked => {
                self.remove_known(KnownName::ContentLength);
                let field_values: Vec<&[u8]> = self.get_all(&coding).collect();
                match field_values[..] {
                    [] => return Ok(false),
                    [only] if eq_ignore_case(only, b"chunked") => {}
                    _ => {
                        self.set(&coding, b"chunked");
                    }
                }
            }
            BodyLength::Length(_) | BodyLength::None => {
                let bytes = if let BodyLength::Length(bytes) = body { bytes } else { 0 };
                self.remove_known(KnownName::TransferEncoding);
                if lengths.iter().any(|own| *own != bytes) {
                    return Err(ErrorKind::ContentLength);
                }
                if lengths.is_empty() {
                    return Ok(body == BodyLength::None);
                }
                if lengths.len() > 1 {
                    self.set(&length, bytes.to_string().as_bytes());
                }
            }
            BodyLength::UntilClose => {
                self.remove_known(KnownName::ContentLength);
                self.remove_known(KnownName::TransferEncoding);
            }
        }
        Ok(true)
    }

    /// Removes the length, for a message with a rewritten body. The caller then adds the new framing header.
    pub fn remove_body_length(&mut self) {
        self.remove_known(KnownName::ContentLength);
        self.remove_known(KnownName::TransferEncoding);
        self.flags &= !(CHUNKED | HAS_LENGTH | STREAMED | ENDED);
        self.content_length = 0;
    }

    /// Sets a body of `length` bytes, replacing the previous framing.
    pub fn set_content_length(&mut self, length: u64) {
        self.remove_body_length();
        self.append(b"content-length", length.to_string().as_bytes());
        self.flags |= HAS_LENGTH;
        self.content_length = length;
    }

    /// Sets a chunked body, replacing the previous framing.
    pub fn set_chunked(&mut self) {
        self.remove_body_length();
        self.append(b"transfer-encoding", b"chunked");
        self.flags |= CHUNKED;
    }
}
