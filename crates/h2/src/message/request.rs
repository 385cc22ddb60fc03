//! Requests: a header block to a head (RFC 9113 section 8.3.1, RFC 8441).

use http::{Head, KnownName, Method, Part, is_host_value, is_line, target_stop, uri};

use super::cause::refuse;
use super::priority::Priority;
use super::read::{self, is_connection_specific, push, trim};
use super::{Cause, Refusal, Rules};
use crate::hpack::{Decoder, Field, FieldName, Pseudo};

/// What a request says beside its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// An extended CONNECT (RFC 8441), which the head shows as an upgrade of HTTP/1.
    pub protocol: bool,
    /// What its `priority` field asks for.
    pub priority: Option<Priority>,
}

/// Reads a request's header block into `head`, whose former content is dropped.
///
/// - The version is 2.0. With `:authority` the target has absolute form, as `url` shows it; HTTP/1
///   servers get the path alone where the scheme is http or https ([`Head::plain_target`]).
///   `Host` is made of `:authority`, and one that came is dropped. Without `:authority` the target
///   is the path and `Host` is as it came.
/// - A default port is left out of both, as in HTTP/1.
/// - Crumbs of cookies are one line.
/// - [`Head::request_body`]: a length that was announced, nothing if the stream ends here, else
///   [`http::BodyLength::UntilClose`], which means the end of the stream. CONNECT has none: what
///   follows belongs to the tunnel.
/// - An extended CONNECT becomes GET with `Upgrade: <protocol>` and `Connection: upgrade`, without
///   `Sec-WebSocket-Key`: the HTTP/1 side adds one and checks the answer to it. The answer to
///   the client is written as 200 ([`super::write_response`]).
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
    head.start_multiplexed(false);
    let mut reader = Reader { head, rules, parts: Parts::default(), state: State::default() };
    read::fields(decoder, block, rules, &mut reader, Reader::pseudo, Reader::field)?;
    match reader.finish(end_stream) {
        Ok(request) => Ok(request),
        Err(cause) => refuse(cause),
    }
}

/// The pseudo-fields that came.
#[derive(Default)]
struct Parts {
    method: Option<Part>,
    scheme: Option<Part>,
    authority: Option<Part>,
    path: Option<Part>,
    protocol: Option<Part>,
}

#[derive(Default)]
struct State {
    /// The start line is made: fields follow.
    started: bool,
    /// Crumbs of cookies that lie apart.
    cookies: u32,
    request: Request,
}

struct Reader<'a> {
    head: &'a mut Head,
    rules: &'a Rules,
    parts: Parts,
    state: State,
}

impl Reader<'_> {
    fn pseudo(&mut self, name: Pseudo, value: &[u8]) -> Result<(), Cause> {
        let part = Some(self.head.keep(value));
        match name {
            Pseudo::Method => self.parts.method = part,
            Pseudo::Scheme => self.parts.scheme = part,
            Pseudo::Authority => self.parts.authority = part,
            Pseudo::Path => self.parts.path = part,
            Pseudo::Protocol if self.rules.connect_protocol => self.parts.protocol = part,
            Pseudo::Protocol | Pseudo::Status => return Err(Cause::PseudoUnknown),
        }
        Ok(())
    }

    #[inline(always)]
    fn field(&mut self, field: &Field<'_>) -> Result<(), Cause> {
        if !self.state.started {
            self.start()?;
        }
        let FieldName::Known(known) = field.name else { return push(self.head, field) };
        match known {
            KnownName::Cookie => {
                self.state.cookies += 1;
                let crumb = trim(field.value);
                return if self.head.push_crumb(crumb, field.never_indexed) {
                    Ok(())
                } else {
                    Err(Cause::Value)
                };
            }
            KnownName::Host => return self.host(field),
            KnownName::Te if trim(field.value) != b"trailers" => return Err(Cause::Te),
            KnownName::Priority => self.state.request.priority = Some(Priority::parse(field.value)),
            _ if is_connection_specific(known) => return Err(Cause::ConnectionSpecific),
            _ => {}
        }
        push(self.head, field)
    }

    /// `Host`: nothing beside `:authority`, which decides (RFC 9113 section 8.3.1); of several
    /// the first if they are equal.
    fn host(&mut self, field: &Field<'_>) -> Result<(), Cause> {
        let value = trim(field.value);
        if self.parts.authority.is_some() {
            return if is_line(value) { Ok(()) } else { Err(Cause::Value) };
        }
        if let Some(first) = self.head.get_known(KnownName::Host) {
            return if http::eq_ignore_case(first, value) { Ok(()) } else { Err(Cause::Host) };
        }
        // It is what a server of HTTP/2 gets as `:authority`.
        if !value.is_empty() && !is_authority(value) {
            return Err(Cause::Host);
        }
        push(self.head, field)
    }

    /// All pseudo-fields are there: makes the start line of them.
    #[inline(never)]
    fn start(&mut self) -> Result<(), Cause> {
        self.state.started = true;
        let method = self.parts.method.ok_or(Cause::PseudoSet)?;
        if !self.head.set_method_part(method) || self.head.part(method) == b"PRI" {
            return Err(Cause::Method);
        }
        let Parts { scheme, authority, path, protocol, .. } = self.parts;
        let connect = self.head.method_id() == Method::Connect;
        match (connect, protocol, scheme, authority, path) {
            (false, None, Some(scheme), authority, Some(path)) => self.usual(scheme, authority, path),
            (true, None, None, Some(authority), None) => self.tunnel(authority),
            (true, Some(_), Some(scheme), Some(authority), Some(path)) => {
                self.state.request.protocol = true;
                self.head.set_method(b"GET");
                self.usual(scheme, Some(authority), path)
            }
            _ => Err(Cause::PseudoSet),
        }
    }

    fn usual(&mut self, scheme: Part, authority: Option<Part>, path: Part) -> Result<(), Cause> {
        let asterisk = self.check_path(path)?;
        let default = uri::default_port(self.head.part(scheme));
        if default.is_none() && !is_scheme(self.head.part(scheme)) {
            return Err(Cause::Scheme);
        }
        let Some(mut authority) = authority else {
            self.head.set_target_part(path);
            return Ok(());
        };
        let whole = self.head.part(authority);
        let (host, port) = uri::split_port(whole);
        if !is_authority(whole) {
            return Err(Cause::Authority);
        }
        if port.is_some_and(|port| port.is_empty() || default == Some(port)) {
            authority = self.head.cut(authority, host.len());
        }
        let path = if asterisk { self.head.cut(path, 0) } else { path };
        self.head.set_absolute_target(scheme, authority, path, default.is_some());
        self.head.push_part(KnownName::Host, authority);
        Ok(())
    }

    /// Whether the path is the asterisk, which OPTIONS alone may have. Bytes above 127 pass, as in
    /// HAProxy.
    fn check_path(&self, path: Part) -> Result<bool, Cause> {
        let bytes = self.head.part(path);
        if bytes == b"*" && self.head.method_id() == Method::Options {
            return Ok(true);
        }
        if bytes.first() != Some(&b'/') {
            return Err(Cause::Path);
        }
        let mut at = target_stop(bytes, 0);
        while let Some(byte) = bytes.get(at) {
            match byte {
                0x80.. => {}
                b'#' if self.rules.relaxed => {}
                b'#' => return Err(Cause::Fragment),
                _ => return Err(Cause::Path),
            }
            at = target_stop(bytes, at + 1);
        }
        Ok(false)
    }

    /// CONNECT: host and port, and nothing else (RFC 9113 section 8.5).
    fn tunnel(&mut self, authority: Part) -> Result<(), Cause> {
        let whole = self.head.part(authority);
        let (_, port) = uri::split_port(whole);
        let number = port.and_then(|digits| std::str::from_utf8(digits).ok()?.parse::<u16>().ok());
        if !is_authority(whole) || number.is_none() {
            return Err(Cause::Authority);
        }
        self.head.set_target_part(authority);
        self.head.push_part(KnownName::Host, authority);
        Ok(())
    }

    /// All fields are there.
    fn finish(mut self, ends: bool) -> Result<Request, Cause> {
        if !self.state.started {
            self.start()?;
        }
        if self.state.cookies > 1 {
            self.head.join_cookies();
        }
        if let Some(protocol) = self.parts.protocol {
            // HTTP/2 within a stream of HTTP/2 is asked for by nobody (RFC 9113 section 3.1).
            let asked = self.head.part(protocol);
            let is_http = [&b"h2c"[..], b"h2"].iter().any(|own| http::eq_ignore_case(asked, own));
            if is_http || !self.head.ask_upgrade(protocol) {
                return Err(Cause::Protocol);
            }
        }
        let tunnel = self.state.request.protocol || self.head.method_id() == Method::Connect;
        match self.head.frame_by_stream(ends, tunnel) {
            Ok(()) => Ok(self.state.request),
            Err(_) => Err(Cause::ContentLength),
        }
    }
}

/// Whether the bytes are a host, with a port or without, in one reading alone: what one reader takes for
/// the port, another might take for a part of the host.
fn is_authority(whole: &[u8]) -> bool {
    let (host, _) = uri::split_port(whole);
    let is_alone = !host.is_empty() && (host[0] == b'[' || !host.contains(&b':'));
    is_alone && is_host_value(whole)
}

/// RFC 3986 section 3.1.
fn is_scheme(bytes: &[u8]) -> bool {
    let part = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    bytes.first().is_some_and(u8::is_ascii_alphabetic) && bytes.iter().all(part)
}
