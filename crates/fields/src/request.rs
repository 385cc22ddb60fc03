//! Converts the field section of a request to a head (RFC 9113 section 8.3.1, RFC 9114 section 4.3.1, RFC 8441).

use http::{Head, KnownName, Method, StartLineRoom, Version, is_host_value, is_line, target_stop, uri};

use crate::coding::{Field, FieldSource};
use crate::name::{FieldName, Pseudo};
use crate::priority::Priority;
use crate::read::{self, is_connection_specific, push, trim};
use crate::{Cause, Refusal, Rules};

/// Properties of a request that are not in its head.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Request {
    /// Whether the request is an extended CONNECT (RFC 8441), which the head represents as an HTTP/1 upgrade.
    pub protocol: bool,
    /// The `priority` field.
    pub priority: Option<Priority>,
}

/// Reads the field section of a request into `head` and replaces its content. `end_stream` means that the stream ends with the
/// section.
///
/// - The version is [`FieldSource::VERSION`]. With `:authority`, the target has absolute form, as the `url` fetch shows it; HTTP/1
///   servers get only the path if the scheme is http or https ([`Head::plain_target`]). `Host` is set from `:authority` and
///   replaces a received one. Without `:authority`, the target is the path, and `Host` is unchanged.
/// - A default port is removed from both, as in HTTP/1.
/// - In HTTP/3, http and https requests need a host, and `:authority` and `Host` must not differ (RFC 9114 section 4.3.1). HTTP/2 has
///   no such rule.
/// - Several `cookie` fields are joined into one.
/// - [`Head::request_body`] is the announced length, nothing if the stream ends with this section, or otherwise
///   [`http::BodyLength::UntilClose`], which stands for the end of the stream. CONNECT has no body: the data that follows belongs
///   to the tunnel.
/// - An extended CONNECT becomes GET with `Upgrade: <protocol>` and `Connection: upgrade`, without `Sec-WebSocket-Key`: the HTTP/1
///   side adds a key and checks the response to it. The response to the client is written as 200 ([`crate::write_response`]).
///
/// # Errors
/// [`Refusal::Coding`] if the section cannot be decoded, [`Refusal::Message`] if the request is malformed.
pub fn read_request<S: FieldSource>(
    source: S,
    end_stream: bool,
    rules: &Rules,
    head: &mut Head,
) -> Result<Request, Refusal<S::Error>> {
    head.start_multiplexed(S::VERSION, false);
    let needs_host = S::VERSION == Version::Other(3, 0);
    let mut reader = RequestReader {
        head,
        rules,
        needs_host,
        parts: PseudoFields::default(),
        state: RequestState::default(),
    };
    read::section(source, rules, &mut reader, RequestReader::pseudo, RequestReader::field)?;
    Ok(reader.finish(end_stream)?)
}

/// The state of reading a request.
#[derive(Default)]
struct PseudoFields {
    method: Option<StartLineRoom>,
    scheme: Option<StartLineRoom>,
    authority: Option<StartLineRoom>,
    path: Option<StartLineRoom>,
    protocol: Option<StartLineRoom>,
}

#[derive(Default)]
struct RequestState {
    /// Whether the start line is complete, so that regular fields follow.
    started: bool,
    /// The number of `cookie` fields that are not joined yet.
    cookies: u32,
    request: Request,
}

struct RequestReader<'a> {
    head: &'a mut Head,
    rules: &'a Rules,
    /// HTTP/3's rules for the host apply.
    needs_host: bool,
    parts: PseudoFields,
    state: RequestState,
}

impl RequestReader<'_> {
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

    /// Handles `Host`, which is ignored if there is an `:authority` (RFC 9113 section 8.3.1). Several `Host` fields must be equal.
    fn host(&mut self, field: &Field<'_>) -> Result<(), Cause> {
        let value = trim(field.value);
        if self.parts.authority.is_some() {
            return match is_line(value) {
                false => Err(Cause::Value),
                true if self.needs_host && !self.is_authority_too(value) => Err(Cause::Host),
                true => Ok(()),
            };
        }
        if let Some(first) = self.head.get_known(KnownName::Host) {
            return if http::eq_ignore_case(first, value) { Ok(()) } else { Err(Cause::Host) };
        }
        // An HTTP/2 server receives the value as `:authority`.
        if !value.is_empty() && !is_authority(value) {
            return Err(Cause::Host);
        }
        push(self.head, field)
    }

    /// Whether this `Host` has the value of `:authority`, except for a default port.
    fn is_authority_too(&self, value: &[u8]) -> bool {
        let (host, port) = uri::split_port(value);
        let default = self.parts.scheme.and_then(|scheme| uri::default_port(self.head.part(scheme)));
        let is_default = port.is_some_and(|port| port.is_empty() || default == Some(port));
        let value = if is_default { host } else { value };
        self.head.get_known(KnownName::Host).is_some_and(|own| http::eq_ignore_case(own, value))
    }

    /// Builds the start line from the complete pseudo-fields.
    #[inline(never)]
    fn start(&mut self) -> Result<(), Cause> {
        self.state.started = true;
        let method = self.parts.method.ok_or(Cause::PseudoSet)?;
        if !self.head.set_method_part(method) || self.head.part(method) == b"PRI" {
            return Err(Cause::Method);
        }
        let PseudoFields { scheme, authority, path, protocol, .. } = self.parts;
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

    fn usual(
        &mut self,
        scheme: StartLineRoom,
        authority: Option<StartLineRoom>,
        path: StartLineRoom,
    ) -> Result<(), Cause> {
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

    /// Checks the path, and returns whether it is an asterisk, which is only allowed with OPTIONS. Bytes above 127 are accepted, as
    /// in HAProxy.
    fn check_path(&self, path: StartLineRoom) -> Result<bool, Cause> {
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

    /// Handles CONNECT, which has only a host and a port (RFC 9113 section 8.5).
    fn tunnel(&mut self, authority: StartLineRoom) -> Result<(), Cause> {
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

    /// Whether the scheme needs a host, and the request has no host.
    fn lacks_host(&self) -> bool {
        let default = self.parts.scheme.and_then(|scheme| uri::default_port(self.head.part(scheme)));
        default.is_some() && self.head.get_known(KnownName::Host).is_none_or(<[u8]>::is_empty)
    }

    /// Completes the request after its last field.
    fn finish(mut self, ends: bool) -> Result<Request, Cause> {
        if !self.state.started {
            self.start()?;
        }
        if self.state.cookies > 1 {
            self.head.join_cookies();
        }
        if self.needs_host && self.lacks_host() {
            return Err(Cause::Authority);
        }
        if let Some(protocol) = self.parts.protocol {
            // HTTP/2 does not run inside a stream (RFC 9113 section 3.1).
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

/// Returns whether the bytes are a host, with or without a port, and are unambiguous: no other parser could take part of the host
/// for the port, or the reverse.
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
