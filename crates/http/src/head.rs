//! The message head: its bytes, a table of offsets into them, and edits by rules.
//!
//! Edits never move bytes: a new line or value is appended, and the table then points to it. `parse` fills a head, `write`
//! serialises it, `values` handles lists, `framing` the body, and `size` memory and wire size.

use crate::name::{KnownName, Name};
use crate::outcome::{ParseError, ParseProgress};
use crate::{Method, is_token, status, uri};

/// HTTP version of a start line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Version {
    /// `HTTP/1.0`; also used for an accepted HTTP/0.9 request.
    Http10,
    /// `HTTP/1.1`.
    #[default]
    Http11,
    /// Any other pair of numbers. On an HTTP/1 connection, a version from 1.1 upwards behaves like 1.1.
    Other(u8, u8),
}

impl Version {
    pub(crate) fn new(major: u8, minor: u8) -> Version {
        match (major, minor) {
            (1, 0) => Version::Http10,
            (1, 1) => Version::Http11,
            _ => Version::Other(major, minor),
        }
    }

    /// The major and minor number.
    #[must_use]
    pub fn numbers(self) -> (u8, u8) {
        match self {
            Version::Http10 => (1, 0),
            Version::Http11 => (1, 1),
            Version::Other(major, minor) => (major, minor),
        }
    }

    /// Whether HTTP/1.1 semantics apply: persistence by default, chunked coding, `Expect`.
    #[must_use]
    pub fn is_11_or_above(self) -> bool {
        self.numbers() >= (1, 1)
    }
}

// Results of `framing`, as bits of `Head::flags`.
pub(crate) const CLOSE: u16 = 1;
pub(crate) const KEEP_ALIVE: u16 = 2;
pub(crate) const UPGRADE: u16 = 4;
pub(crate) const CHUNKED: u16 = 8;
pub(crate) const HAS_LENGTH: u16 = 16;
pub(crate) const EXPECT: u16 = 32;
pub(crate) const MUST_CLOSE: u16 = 64;
pub(crate) const OTHER_CODING: u16 = 128;
pub(crate) const WEBSOCKET: u16 = 256;
/// The body ends with the HTTP/2 stream.
pub(crate) const STREAMED: u16 = 512;
/// The stream ended with the head: there is no body.
pub(crate) const ENDED: u16 = 1024;

/// A range of the head's bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Span {
    pub(crate) start: u32,
    pub(crate) end: u32,
}

impl Span {
    #[inline(always)]
    pub(crate) fn new(start: usize, end: usize) -> Span {
        Span { start: start as u32, end: end as u32 }
    }

    #[inline(always)]
    pub(crate) fn of(self, bytes: &[u8]) -> &[u8] {
        // In an incomplete head, some spans refer to bytes that were not copied yet. Such a head appears empty.
        bytes.get(self.start as usize..self.end as usize).unwrap_or_default()
    }
}

/// Removed, or never visible (a line dropped by relaxed parsing).
pub(crate) const DEAD: u8 = 1;
/// The value is directly followed by CRLF, so that adjacent lines can be copied at once.
pub(crate) const CLEAN: u8 = 2;
/// The value was folded over several lines; line breaks become spaces when the head is complete.
pub(crate) const FOLDED: u8 = 4;
/// Colon and value are not separated by exactly one space. The line is rewritten when the head is complete.
pub(crate) const SPACED: u8 = 8;
/// The value must not enter any header compression table (RFC 7541 section 7.1.3).
pub(crate) const SECRET: u8 = 16;

/// A header line: `name`, then a separator, then the value up to `end`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field {
    pub(crate) name: u32,
    pub(crate) value: u32,
    pub(crate) end: u32,
    /// A hash that differs for most names, so that their bytes need not be compared.
    pub(crate) key: u32,
    pub(crate) name_len: u16,
    pub(crate) known: KnownName,
    pub(crate) flags: u8,
}

impl Field {
    #[inline(always)]
    pub(crate) fn is_dead(&self) -> bool {
        self.flags & DEAD != 0
    }

    #[inline(always)]
    pub(crate) fn name<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.name as usize..self.name as usize + self.name_len as usize]
    }

    #[inline(always)]
    pub(crate) fn value<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.value as usize..self.end as usize]
    }

    #[inline(always)]
    pub(crate) fn is(&self, bytes: &[u8], name: &Name) -> bool {
        // Nearly all names differ in their keys.
        if self.key != name.key() {
            return name.is_any() && !self.is_dead();
        }
        let same =
            || self.known == name.known() && (self.known != KnownName::Other || name.is(self.name(bytes)));
        !self.is_dead() && (name.is_any() || same())
    }
}

/// A request or response head. Reused for many messages: [`Head::clear`] keeps the memory.
#[derive(Debug, Default, Clone)]
pub struct Head {
    pub(crate) bytes: Vec<u8>,
    pub(crate) fields: Vec<Field>,
    pub(crate) dead: u32,
    /// Known names seen, one bit each; the bit of a removed line may remain set.
    pub(crate) seen: u128,
    pub(crate) is_response: bool,
    /// The start line, without CRLF, if it is in `bytes` in the form to be sent.
    pub(crate) start_line: Option<Span>,
    pub(crate) method_id: Method,
    pub(crate) method: Span,
    pub(crate) target: Span,
    /// The number of bytes of an absolute target that are not sent to HTTP/1 servers: scheme and authority, if they were separate
    /// fields in the request.
    pub(crate) apart: u32,
    pub(crate) version: Version,
    pub(crate) status: u16,
    pub(crate) reason: Span,
    pub(crate) flags: u16,
    pub(crate) content_length: u64,
    pub(crate) violation: Option<ParseError>,
    pub(crate) progress: ParseProgress,
    /// The size of the head as received; 0 for a head that Weir created.
    pub(crate) received: u32,
    /// Whether a field that frames the message was changed since parsing or since tracking started.
    pub(crate) reframed: bool,
}

impl Head {
    /// Creates an empty head, which allocates nothing until it is filled.
    #[must_use]
    pub fn new() -> Head {
        Head::default()
    }

    /// Drops the message and any partial parse, keeping the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.fields.clear();
        self.dead = 0;
        self.seen = 0;
        self.is_response = false;
        self.start_line = None;
        self.method_id = Method::Other;
        self.method = Span::default();
        self.target = Span::default();
        self.apart = 0;
        self.version = Version::Http11;
        self.status = 0;
        self.reason = Span::default();
        self.flags = 0;
        self.content_length = 0;
        self.violation = None;
        self.progress = ParseProgress::default();
        self.received = 0;
        self.reframed = false;
    }

    /// Starts a new `HTTP/1.1` request.
    pub fn start_request(&mut self, method: &[u8], target: &[u8]) {
        self.clear();
        self.set_method(method);
        self.set_target(target);
    }

    /// Starts a new `HTTP/1.1` response, with the standard reason unless one is given.
    pub fn start_response(&mut self, code: u16, reason: Option<&[u8]>) {
        self.clear();
        self.is_response = true;
        self.set_status(code, reason);
    }

    /// Makes this a message of an HTTP/1.0 (`old`) or HTTP/1.1 sender, which closes the connection or keeps it open.
    pub fn set_speaker(&mut self, old: bool, closes: bool) {
        self.version = if old { Version::Http10 } else { Version::Http11 };
        self.flags |= if closes { CLOSE } else { 0 };
    }

    /// Whether this is a response.
    #[must_use]
    pub fn is_response(&self) -> bool {
        self.is_response
    }

    /// The method's bytes; empty in a response.
    #[must_use]
    pub fn method(&self) -> &[u8] {
        self.method.of(&self.bytes)
    }

    /// The method's number.
    #[must_use]
    pub fn method_id(&self) -> Method {
        self.method_id
    }

    /// The request target as received or set: in origin, absolute, authority or asterisk form.
    #[must_use]
    pub fn target(&self) -> &[u8] {
        self.target.of(&self.bytes)
    }

    /// The version of the start line.
    #[must_use]
    pub fn version(&self) -> Version {
        self.version
    }

    /// The status code; 0 in a request.
    #[must_use]
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The reason phrase, possibly empty.
    #[must_use]
    pub fn reason(&self) -> &[u8] {
        self.reason.of(&self.bytes)
    }

    /// The first violation tolerated by a relaxed parse, for `show errors`.
    #[must_use]
    pub fn violation(&self) -> Option<ParseError> {
        self.violation
    }

    pub(crate) fn push(&mut self, bytes: &[u8]) -> Span {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(bytes);
        Span::new(start, self.bytes.len())
    }

    /// Replaces the method. Returns `false` if it is not a token.
    pub fn set_method(&mut self, method: &[u8]) -> bool {
        if !is_token(method) {
            return false;
        }
        self.method = self.push(method);
        self.method_id = Method::from_bytes(method);
        self.start_line = None;
        true
    }

    /// Replaces the whole target. Returns `false` if it is empty or contains a space or control character.
    pub fn set_target(&mut self, target: &[u8]) -> bool {
        let replaced = self.replace_target(target);
        if replaced {
            self.apart = 0;
        }
        replaced
    }

    /// Replaces the target; a separate scheme and authority remain.
    fn replace_target(&mut self, target: &[u8]) -> bool {
        if target.is_empty() || target.iter().any(|&b| b <= b' ' || b == 0x7f) {
            return false;
        }
        self.target = self.push(target);
        self.start_line = None;
        true
    }

    /// Replaces the path and keeps scheme, authority and query (`http-request set-path`).
    pub fn set_path(&mut self, path: &[u8]) -> bool {
        let split = uri::split(self.target());
        let keep_from = split.query_start().unwrap_or(self.target().len());
        let keep = self.target()[keep_from..].to_vec();
        let prefix = self.target()[..split.path_start()].to_vec();
        self.replace_target(&[&prefix, path, &keep].concat())
    }

    /// Replaces path and query, keeping scheme and authority (`http-request set-pathq`).
    pub fn set_pathq(&mut self, pathq: &[u8]) -> bool {
        let prefix = self.target()[..uri::split(self.target()).path_start()].to_vec();
        self.replace_target(&[&prefix[..], pathq].concat())
    }

    /// Replaces the query string, which is given without the question mark. If there is already a question mark, it stays even
    /// before an empty query, as the manual specifies for `http-request set-query`.
    pub fn set_query(&mut self, query: &[u8]) -> bool {
        let start = uri::split(self.target()).query_start();
        let prefix = self.target()[..start.unwrap_or(self.target().len())].to_vec();
        let mark: &[u8] = if start.is_none() && query.is_empty() { b"" } else { b"?" };
        self.replace_target(&[&prefix[..], mark, query].concat())
    }

    /// Replaces the version sent.
    pub fn set_version(&mut self, version: Version) {
        if self.version != version {
            self.version = version;
            self.start_line = None;
        }
    }

    /// Replaces the status; without `reason` the standard phrase is used.
    pub fn set_status(&mut self, code: u16, reason: Option<&[u8]>) {
        self.status = code;
        let reason = reason.unwrap_or_else(|| status::reason(code).as_bytes());
        self.reason = self.push_value(reason);
        self.start_line = None;
    }

    /// The number of live header lines.
    #[must_use]
    pub fn len(&self) -> usize {
        self.fields.len() - self.dead as usize
    }

    /// Whether there are no header lines.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Names and values, in order. Names have their original case.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().filter(|f| !f.is_dead()).map(|f| (f.name(&self.bytes), f.value(&self.bytes)))
    }

    /// Indices of the lines named `name`, in order, for [`Head::value_at`], [`Head::replace_value_at`] and [`Head::remove_at`]. An
    /// index stays valid until the head is cleared or a line is inserted before it.
    pub fn indices(&self, name: &Name) -> impl Iterator<Item = usize> {
        let possible = self.may_have(name);
        self.fields
            .iter()
            .enumerate()
            .filter(move |(_, f)| possible && f.is(&self.bytes, name))
            .map(|(i, _)| i)
    }

    #[inline(always)]
    pub(crate) fn may_have(&self, name: &Name) -> bool {
        name.known() == KnownName::Other || self.seen & name.known().bit() != 0
    }

    /// The first value of `name`, whole line.
    #[must_use]
    pub fn get(&self, name: &Name) -> Option<&[u8]> {
        self.indices(name).next().map(|i| self.fields[i].value(&self.bytes))
    }

    /// The first value of a known name, as a whole line.
    #[must_use]
    pub fn get_known(&self, known: KnownName) -> Option<&[u8]> {
        if self.seen & known.bit() == 0 {
            return None;
        }
        self.fields.iter().find(|f| f.known == known && !f.is_dead()).map(|f| f.value(&self.bytes))
    }

    /// All values of `name`, one per line, in order.
    pub fn get_all<'a, 'n>(
        &'a self,
        name: &'n Name,
    ) -> impl DoubleEndedIterator<Item = &'a [u8]> + use<'a, 'n> {
        let possible = self.may_have(name);
        self.fields.iter().filter(move |f| possible && f.is(&self.bytes, name)).map(|f| f.value(&self.bytes))
    }

    /// The value at an index of [`Head::indices`]; `None` if that line was removed.
    #[must_use]
    pub fn value_at(&self, index: usize) -> Option<&[u8]> {
        self.fields.get(index).filter(|f| !f.is_dead()).map(|f| f.value(&self.bytes))
    }

    /// Appends a value. Line breaks and NUL, which would split the message, are replaced by spaces.
    fn push_value(&mut self, value: &[u8]) -> Span {
        let span = self.push(value);
        let breaks = |b: u8| matches!(b, b'\r' | b'\n' | 0);
        // Without an early end, several bytes are compared at once.
        if value.iter().fold(false, |found, b| found | breaks(*b)) {
            let written = self.bytes[span.start as usize..].iter_mut();
            written.filter(|b| breaks(**b)).for_each(|b| *b = b' ');
        }
        span
    }

    fn push_line(&mut self, name: &[u8], value: &[u8]) -> Option<Field> {
        if !is_token(name) || name.len() > u16::MAX as usize {
            return None;
        }
        Some(self.push_token(name, KnownName::with_key(name), value))
    }

    fn push_token(&mut self, name: &[u8], (known, key): (KnownName, u32), value: &[u8]) -> Field {
        let at = self.push(name);
        self.bytes.extend_from_slice(b": ");
        let value = self.push_value(value);
        self.bytes.extend_from_slice(b"\r\n");
        if known != KnownName::Other {
            self.seen |= known.bit();
        }
        self.reframed |= known.is_framing();
        let name_len = name.len() as u16;
        Field { name: at.start, value: value.start, end: value.end, key, name_len, known, flags: CLEAN }
    }

    /// Adds a line at the end. Returns `false`, and adds nothing, if `name` is not a token.
    pub fn append(&mut self, name: &[u8], value: &[u8]) -> bool {
        let field = self.push_line(name, value);
        self.fields.extend(field);
        field.is_some()
    }

    /// Adds a line with a prepared name, in lower case, at the end. Returns `false`, and adds nothing, if the name is not a token.
    pub fn append_named(&mut self, name: &Name, value: &[u8]) -> bool {
        if !name.is_plain() || name.lower().len() > u16::MAX as usize {
            return self.append(name.lower(), value);
        }
        let field = self.push_token(name.lower(), (name.known(), name.key()), value);
        self.fields.push(field);
        true
    }

    /// Adds a line before all others.
    pub fn prepend(&mut self, name: &[u8], value: &[u8]) -> bool {
        self.insert(0, name, value)
    }

    /// Adds a line before the one at `index`.
    pub fn insert(&mut self, index: usize, name: &[u8], value: &[u8]) -> bool {
        let Some(field) = self.push_line(name, value) else { return false };
        self.fields.insert(index.min(self.fields.len()), field);
        true
    }

    /// Removes every line named `name`; returns their number.
    pub fn remove_all(&mut self, name: &Name) -> usize {
        if !self.may_have(name) {
            return 0;
        }
        let mut removed = 0;
        self.reframed |= name.is_any() || name.known().is_framing();
        for f in &mut self.fields {
            if f.is(&self.bytes, name) {
                f.flags |= DEAD;
                removed += 1;
            }
        }
        self.dead += removed;
        if name.is_any() {
            self.seen = 0;
        } else if name.known() != KnownName::Other {
            self.seen &= !name.known().bit();
        }
        removed as usize
    }

    /// Removes every line of a known name.
    pub fn remove_known(&mut self, known: KnownName) -> usize {
        if self.seen & known.bit() == 0 {
            return 0;
        }
        self.seen &= !known.bit();
        self.reframed |= known.is_framing();
        let mut removed = 0;
        for f in self.fields.iter_mut().filter(|f| f.known == known && !f.is_dead()) {
            f.flags |= DEAD;
            removed += 1;
        }
        self.dead += removed;
        removed as usize
    }

    /// Removes the lines selected by `drop`, which gets name and value (`del-header` with a match method); returns their number.
    pub fn remove_if(&mut self, mut drop: impl FnMut(&[u8], &[u8]) -> bool) -> usize {
        let mut removed = 0;
        for f in &mut self.fields {
            if !f.is_dead() && drop(f.name(&self.bytes), f.value(&self.bytes)) {
                self.reframed |= f.known.is_framing();
                f.flags |= DEAD;
                removed += 1;
            }
        }
        self.dead += removed;
        removed as usize
    }

    /// Removes every line of that name and appends a new one (`http-request set-header`).
    pub fn set(&mut self, name: &Name, value: &[u8]) -> bool {
        self.remove_all(name);
        self.append(name.lower(), value)
    }

    /// Replaces the value of the line at `index`; the name and the position do not change. Returns `false` if there is no such
    /// line.
    pub fn replace_value_at(&mut self, index: usize, value: &[u8]) -> bool {
        let Some(old) = self.fields.get(index).copied().filter(|f| !f.is_dead()) else { return false };
        self.reframed |= old.known.is_framing();
        let name = self.bytes.len();
        self.bytes.extend_from_within(old.name as usize..old.name as usize + old.name_len as usize);
        self.bytes.extend_from_slice(b": ");
        let value = self.push_value(value);
        self.bytes.extend_from_slice(b"\r\n");
        self.fields[index] = Field {
            name: name as u32,
            value: value.start,
            end: value.end,
            flags: CLEAN | old.flags & SECRET,
            ..old
        };
        true
    }

    /// Replaces a range of the value at `index`, as returned by the cookie functions.
    pub fn splice_value_at(&mut self, index: usize, range: std::ops::Range<usize>, with: &[u8]) -> bool {
        let Some(old) = self.value_at(index) else { return false };
        let (Some(before), Some(after)) = (old.get(..range.start), old.get(range.end..)) else {
            return false;
        };
        let value = [before, with, after].concat();
        self.replace_value_at(index, &value)
    }

    /// Removes the line at `index`.
    pub fn remove_at(&mut self, index: usize) -> bool {
        match self.fields.get_mut(index) {
            Some(f) if !f.is_dead() => {
                self.reframed |= f.known.is_framing();
                f.flags |= DEAD;
                self.dead += 1;
                true
            }
            _ => false,
        }
    }
}
