//! Composes heads from separate parts. Decoded HTTP/2 fields are added without lookup or scanning. For encoding, each
//! line is read together with its [`KnownName`]. Caller: `h2`.

use crate::head::{CLEAN, DEAD, Field, Head, SECRET, Span, UPGRADE, Version, WEBSOCKET};
use crate::name::KnownName;
use crate::scan::{is_lower_token, line_break};
use crate::{Method, eq_ignore_case, is_token};

/// Bytes in a head under construction that are reserved for its start line.
#[derive(Debug, Clone, Copy)]
pub struct StartLineRoom(Span);

/// A header line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeaderLine<'a> {
    /// The known name, or [`KnownName::Other`].
    pub known: KnownName,
    /// The name, in its original case.
    pub name: &'a [u8],
    /// The value.
    pub value: &'a [u8],
    /// Whether the value must not enter any header compression table (RFC 7541 section 7.1.3).
    pub secret: bool,
}

/// Whether a value fits on one line: it contains no CR, LF or NUL.
#[inline]
#[must_use]
pub fn is_line(value: &[u8]) -> bool {
    line_break(value, 0) == value.len()
}

impl Head {
    /// Starts a message of this version, HTTP/2 or above. The parts are added afterwards.
    pub fn start_multiplexed(&mut self, version: Version, response: bool) {
        self.clear();
        self.is_response = response;
        self.version = version;
    }

    /// Stores bytes for the start line.
    #[inline]
    pub fn keep(&mut self, bytes: &[u8]) -> StartLineRoom {
        StartLineRoom(self.push(bytes))
    }

    /// The stored bytes.
    #[must_use]
    pub fn part(&self, part: StartLineRoom) -> &[u8] {
        part.0.of(&self.bytes)
    }

    /// The first `end` bytes of a part.
    #[must_use]
    pub fn cut(&self, part: StartLineRoom, end: usize) -> StartLineRoom {
        StartLineRoom(Span { end: part.0.end.min(part.0.start + end as u32), ..part.0 })
    }

    /// Uses a part as the method. Returns `false` if it is not a token.
    pub fn set_method_part(&mut self, part: StartLineRoom) -> bool {
        let method = self.part(part);
        if !is_token(method) {
            return false;
        }
        self.method_id = Method::from_bytes(method);
        self.method = part.0;
        true
    }

    /// Uses a part as the target.
    pub fn set_target_part(&mut self, part: StartLineRoom) {
        self.target = part.0;
        self.apart = 0;
    }

    /// Builds the target in absolute form from scheme, authority and path. With `apart`, an HTTP/1 server gets only the path, or an
    /// asterisk if the path is empty.
    pub fn set_absolute_target(
        &mut self,
        scheme: StartLineRoom,
        authority: StartLineRoom,
        path: StartLineRoom,
        apart: bool,
    ) {
        let start = self.bytes.len();
        self.copy(scheme);
        self.bytes.extend_from_slice(b"://");
        self.copy(authority);
        let path_start = self.bytes.len();
        self.copy(path);
        self.target = Span::new(start, self.bytes.len());
        self.apart = if apart { (path_start - start) as u32 } else { 0 };
    }

    /// The target for an HTTP/1 server; for an HTTP/2 request, only the path.
    #[must_use]
    pub fn plain_target(&self) -> &[u8] {
        let target = self.target();
        match target.get(self.apart as usize..) {
            Some([]) if self.apart > 0 && self.method_id == Method::Options => b"*",
            Some([]) if self.apart > 0 => b"/",
            Some(plain) => plain,
            None => target,
        }
    }

    #[inline(always)]
    fn copy(&mut self, part: StartLineRoom) {
        self.bytes.extend_from_within(part.0.start as usize..part.0.end as usize);
    }

    /// Uses a part, which must not contain a line break, as the value of a new line.
    pub fn push_part(&mut self, name: KnownName, value: StartLineRoom) {
        let at = self.bytes.len();
        debug_assert!(is_line(self.part(value)));
        let (beginning, length) = name.beginning();
        self.bytes.extend_from_slice(&beginning[..length]);
        self.copy(value);
        self.end_line(at, name, name.key(), length - 2, 0);
    }

    /// Turns the request into a request to upgrade to `protocol`, in HTTP/1 form (RFC 9110 section 7.8). If `protocol` is not a
    /// protocol name, returns `false` and adds nothing.
    pub fn ask_upgrade(&mut self, protocol: StartLineRoom) -> bool {
        let name = self.part(protocol);
        if !name.splitn(2, |b| *b == b'/').all(is_token) {
            return false;
        }
        self.flags |= UPGRADE | if eq_ignore_case(name, b"websocket") { WEBSOCKET } else { 0 };
        self.push_part(KnownName::Upgrade, protocol);
        self.push_known(KnownName::Connection, b"upgrade", false)
    }

    /// Adds a line with a known name, in lower case. If the value contains a line break, returns `false` and adds nothing.
    #[inline]
    pub fn push_known(&mut self, name: KnownName, value: &[u8], secret: bool) -> bool {
        let sound = is_line(value);
        if sound {
            self.push_sound(name, value, secret);
        }
        sound
    }

    /// Like [`Head::push_known`], for a value that passes [`is_line`].
    #[inline(always)]
    pub fn push_sound(&mut self, name: KnownName, value: &[u8], secret: bool) {
        debug_assert!(is_line(value));
        let at = self.bytes.len();
        let (beginning, length) = name.beginning();
        self.bytes.reserve(beginning.len() + value.len() + 2);
        self.bytes.extend_from_slice(beginning);
        self.bytes.truncate(at + length);
        self.bytes.extend_from_slice(value);
        self.end_line(at, name, name.key(), length - 2, if secret { SECRET } else { 0 });
    }

    /// Adds a line with a name that has no number. If the name is not a lower-case token, returns `None`; if the value contains a
    /// line break, returns `Some(false)`. In both cases nothing is added.
    #[inline]
    pub fn push_other(&mut self, name: &[u8], value: &[u8], secret: bool) -> Option<bool> {
        if !is_lower_token(name) || name.len() > u16::MAX as usize {
            return None;
        }
        if !is_line(value) {
            return Some(false);
        }
        let (known, key) = KnownName::with_key(name);
        let at = self.bytes.len();
        self.bytes.reserve(name.len() + value.len() + 4);
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(b": ");
        self.bytes.extend_from_slice(value);
        self.end_line(at, known, key, name.len(), if secret { SECRET } else { 0 });
        Some(true)
    }

    /// Finishes the line that begins at `at`.
    #[inline(always)]
    fn end_line(&mut self, at: usize, known: KnownName, key: u32, name_len: usize, flags: u8) {
        let end = self.bytes.len();
        self.bytes.extend_from_slice(b"\r\n");
        if known != KnownName::Other {
            self.seen |= known.bit();
        }
        self.fields.push(Field {
            name: at as u32,
            value: (at + name_len + 2) as u32,
            end: end as u32,
            key,
            name_len: name_len as u16,
            known,
            flags: CLEAN | flags,
        });
    }

    /// Adds a cookie crumb (RFC 9113 section 8.2.3). If the last line contains the previous crumb, it is appended there; otherwise
    /// it becomes a separate line for [`Head::join_cookies`]. If the value contains a line break, returns `false` and adds nothing.
    pub fn push_crumb(&mut self, value: &[u8], secret: bool) -> bool {
        let last = self.fields.last().filter(|f| f.known == KnownName::Cookie && !f.is_dead());
        if last.is_none_or(|f| f.end as usize + 2 != self.bytes.len()) {
            return self.push_known(KnownName::Cookie, value, secret);
        }
        if !is_line(value) {
            return false;
        }
        if value.is_empty() {
            return true;
        }
        self.bytes.truncate(self.bytes.len() - 2);
        if let Some(last) = self.fields.last_mut() {
            if last.end > last.value {
                self.bytes.extend_from_slice(b"; ");
            }
            self.bytes.extend_from_slice(value);
            last.end = self.bytes.len() as u32;
            last.flags |= if secret { SECRET } else { 0 };
        }
        self.bytes.extend_from_slice(b"\r\n");
        true
    }

    /// If there are several cookie lines, joins them into one at the end.
    pub fn join_cookies(&mut self) {
        let is_cookie = |f: &Field| f.known == KnownName::Cookie && !f.is_dead();
        if self.fields.iter().filter(|f| is_cookie(f)).count() < 2 {
            return;
        }
        let at = self.bytes.len();
        self.bytes.extend_from_slice(b"cookie: ");
        let (mut empty, mut secret) = (true, 0);
        for f in self.fields.iter_mut().filter(|f| is_cookie(f)) {
            if f.end > f.value {
                if !empty {
                    self.bytes.extend_from_slice(b"; ");
                }
                self.bytes.extend_from_within(f.value as usize..f.end as usize);
                empty = false;
            }
            secret |= f.flags & SECRET;
            f.flags |= DEAD;
            self.dead += 1;
        }
        self.end_line(at, KnownName::Cookie, KnownName::Cookie.key(), 6, secret);
    }

    /// The lines that were not removed, in order.
    pub fn lines(&self) -> impl Iterator<Item = HeaderLine<'_>> {
        self.fields.iter().filter(|f| !f.is_dead()).map(|f| HeaderLine {
            known: f.known,
            name: f.name(&self.bytes),
            value: f.value(&self.bytes),
            secret: f.flags & SECRET != 0,
        })
    }
}
