//! Cookies, parsed as leniently as in HAProxy. Positions are recorded, so that a value can be rewritten or a pair removed in place.
//!
//! Both `Cookie` and `Set-Cookie` lines are pairs separated by `;` or `,` outside double quotes. Ranges are within the header
//! value; [`Head::splice_value_at`](crate::Head::splice_value_at) applies an edit.

use std::ops::Range;

use crate::head::Head;
use crate::name::{KnownName, Name};

/// One `name=value` of a cookie header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The name, without surrounding spaces.
    pub name: Range<usize>,
    /// The value, without surrounding spaces, but including quotes. Empty if there is no `=`.
    pub value: Range<usize>,
    /// Whether there is an `=`. HAProxy does not consider pairs without one as cookies.
    pub has_value: bool,
    /// From the first byte of the name to the delimiter or end of the line.
    pub whole: Range<usize>,
}

/// The pairs of one header value, in order. Pairs without a name are skipped.
#[derive(Debug, Clone)]
pub struct Pairs<'a> {
    line: &'a [u8],
    at: usize,
    set_cookie: bool,
}

/// Pairs of a `Cookie` value.
#[must_use]
pub fn pairs(line: &[u8]) -> Pairs<'_> {
    Pairs { line, at: 0, set_cookie: false }
}

/// The cookies of a `Set-Cookie` value: one, or several separated by commas. Attributes are not included.
#[must_use]
pub fn set_cookies(line: &[u8]) -> Pairs<'_> {
    Pairs { line, at: 0, set_cookie: true }
}

fn is_blank(b: u8) -> bool {
    matches!(b, b' ' | b'\t')
}

fn trimmed(line: &[u8], mut range: Range<usize>) -> Range<usize> {
    while range.start < range.end && is_blank(line[range.start]) {
        range.start += 1;
    }
    while range.start < range.end && is_blank(line[range.end - 1]) {
        range.end -= 1;
    }
    range
}

/// The first `;` or `,` at or after `at` outside quotes, or the length.
fn delimiter(line: &[u8], mut at: usize) -> usize {
    let mut quoted = false;
    while at < line.len() {
        match line[at] {
            b'"' => quoted = !quoted,
            b'\\' if quoted => at += 1,
            b';' | b',' if !quoted => return at,
            _ => {}
        }
        at += 1;
    }
    line.len()
}

impl Iterator for Pairs<'_> {
    type Item = Pair;

    fn next(&mut self) -> Option<Pair> {
        loop {
            if self.at >= self.line.len() {
                return None;
            }
            let start = self.at;
            let end = delimiter(self.line, start);
            self.at = end + 1;
            if self.set_cookie {
                // Attributes extend to the next comma.
                let mut stop = end;
                while self.line.get(stop) == Some(&b';') {
                    stop = delimiter(self.line, stop + 1);
                }
                self.at = stop + 1;
            }
            let whole = start..end;
            let (name, value) = match memchr::memchr(b'=', &self.line[start..end]) {
                Some(eq) => (start..start + eq, Some(start + eq + 1..end)),
                None => (whole.clone(), None),
            };
            let name = trimmed(self.line, name);
            if name.is_empty() {
                continue;
            }
            let has_value = value.is_some();
            let value = trimmed(self.line, value.unwrap_or(end..end));
            return Some(Pair { whole: name.start..end, name, value, has_value });
        }
    }
}

/// The first cookie `name` of a `Cookie` value. Names are case-sensitive.
#[must_use]
pub fn find(line: &[u8], name: &[u8]) -> Option<Pair> {
    pairs(line).find(|pair| pair.has_value && &line[pair.name.clone()] == name)
}

/// Rewrites all cookies `name` of a `Cookie` value, and returns their number. If `edit` returns `None`, the cookie is removed
/// together with its attributes (`$Path` and other names that begin with `$`, RFC 2965, 3.3.4). If no cookie remains, the line
/// becomes empty.
fn edit_named(line: &mut Vec<u8>, name: &[u8], mut edit: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> usize {
    let mut kept = Vec::with_capacity(line.len());
    let (mut at, mut edited) = (0, 0);
    // The delimiter before the first part removed since the last kept one.
    let mut gap = None;
    let (mut is_removing, mut has_cookies) = (false, false);
    while at <= line.len() {
        let part = at..delimiter(line, at);
        let eq = memchr::memchr(b'=', &line[part.clone()]).map(|eq| at + eq);
        let own = crate::scan::trim(&line[part.start..eq.unwrap_or(part.end)]);
        let value = eq.filter(|_| own == name).map(|eq| trimmed(line, eq + 1..part.end));
        let before = at.checked_sub(1).map_or(b';', |at| line[at]);
        at = part.end + 1;
        let mut written = line[part.clone()].to_vec();
        if let Some(value) = value {
            edited += 1;
            let new = edit(&line[value.clone()]);
            is_removing = new.is_none();
            let place = value.start - part.start..value.end - part.start;
            written.splice(place, new.unwrap_or_default());
        } else if !own.starts_with(b"$") {
            is_removing = false;
        }
        if is_removing {
            gap.get_or_insert(before);
            continue;
        }
        has_cookies |= !own.starts_with(b"$") && !crate::scan::trim(&line[part.clone()]).is_empty();
        match gap.take() {
            Some(_) if kept.is_empty() => kept.extend_from_slice(crate::scan::trim(&written)),
            None if part.start == 0 => kept.append(&mut written),
            None => {
                kept.push(before);
                kept.append(&mut written);
            }
            Some(delimiter) => {
                while kept.last().is_some_and(|&byte| is_blank(byte)) {
                    kept.pop();
                }
                kept.extend_from_slice(&[delimiter, b' ']);
                kept.extend_from_slice(crate::scan::trim(&written));
            }
        }
    }
    if edited > 0 {
        *line = if has_cookies { kept } else { Vec::new() };
    }
    edited
}

/// Attributes of a `Set-Cookie` value after its first pair: name and value, trimmed; no value for
/// flags like `Secure`.
pub fn attributes(line: &[u8]) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
    line.split(|&b| b == b';').skip(1).map(|part| match memchr::memchr(b'=', part) {
        Some(eq) => (crate::scan::trim(&part[..eq]), Some(crate::scan::trim(&part[eq + 1..]))),
        None => (crate::scan::trim(part), None),
    })
}

impl Head {
    /// The cookies of a request (`Cookie`) or response (`Set-Cookie`), in order: line index, and the pair within that line.
    pub fn cookies(&self) -> impl Iterator<Item = (usize, Pair)> + '_ {
        let name = if self.is_response() { KnownName::SetCookie } else { KnownName::Cookie };
        self.known_indices(name).flat_map(move |index| {
            let line = self.value_at(index).unwrap_or_default();
            let pairs = if self.is_response() { set_cookies(line) } else { pairs(line) };
            pairs.filter(|pair| pair.has_value).map(move |pair| (index, pair))
        })
    }

    /// Names and values of the cookies, in order.
    pub fn cookie_values(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.cookies().map(|(index, pair)| {
            let line = self.value_at(index).unwrap_or_default();
            (&line[pair.name], &line[pair.value])
        })
    }

    /// The last cookie `name`, or the first cookie of all if no name is given, as in `req.cook` and `res.cook`.
    #[must_use]
    pub fn cookie(&self, name: Option<&[u8]>) -> Option<&[u8]> {
        match name {
            Some(name) => self.cookie_values().filter(|(found, _)| *found == name).last().map(|(_, v)| v),
            None => self.cookie_values().next().map(|(_, v)| v),
        }
    }

    /// Rewrites the value of every cookie `name` of a request: `edit` gets the value and returns the new one, or `None` to remove
    /// the cookie. Lines left without cookies are removed. Returns the number of edited cookies.
    pub fn edit_cookies(&mut self, name: &[u8], mut edit: impl FnMut(&[u8]) -> Option<Vec<u8>>) -> usize {
        let indices: Vec<usize> = self.known_indices(KnownName::Cookie).collect();
        let mut edited = 0;
        for index in indices {
            let mut line = self.value_at(index).unwrap_or_default().to_vec();
            let found = edit_named(&mut line, name, &mut edit);
            edited += found;
            if line.is_empty() {
                self.remove_at(index);
            } else if found > 0 {
                self.replace_value_at(index, &line);
            }
        }
        edited
    }

    fn known_indices(&self, known: KnownName) -> impl Iterator<Item = usize> + '_ {
        let possible = self.seen & known.bit() != 0;
        self.fields
            .iter()
            .enumerate()
            .filter(move |(_, f)| possible && f.known == known && !f.is_dead())
            .map(|(i, _)| i)
    }
}

/// The header that contains cookies.
#[must_use]
pub fn header_name(response: bool) -> Name {
    Name::from(if response { KnownName::SetCookie } else { KnownName::Cookie })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookie_lines_are_parsed_leniently() {
        for (line, name, value, count) in [
            ("a=1; a=2", "a", Some("2"), 2),
            ("a = 1 ;b=2", "a", Some("1"), 2),
            ("a=\"x;y\"; b=3", "a", Some("\"x;y\""), 2),
            ("$V=1; a=4; $Path=/", "a", Some("4"), 3),
            ("a", "a", None, 0),
            ("b; a=2", "a", Some("2"), 1),
            ("a=1,a=2", "a", Some("2"), 2),
            ("a=1;;a=3", "a", Some("3"), 2),
            ("=1; a=2", "a", Some("2"), 1),
            ("a=1 2; b=3", "a", Some("1 2"), 2),
            ("ab=1; ba=2;a=", "a", Some(""), 3),
            ("A=1", "a", None, 1),
            ("a=\"open;b=2", "a", Some("\"open;b=2"), 1),
        ] {
            let mut head = Head::new();
            head.start_request(b"GET", b"/");
            head.append(b"Cookie", line.as_bytes());
            assert_eq!(head.cookie(Some(name.as_bytes())), value.map(str::as_bytes), "{line}");
            assert_eq!(head.cookies().count(), count, "{line}");
        }
    }

    #[test]
    fn removed_cookies_take_their_attributes_along() {
        for (line, left) in [
            ("a=1", None),
            ("a=1; b=2", Some("b=2")),
            ("b=2; a=1", Some("b=2")),
            ("b=2; a=1; c=3", Some("b=2; c=3")),
            ("a=1; b=2; a=3", Some("b=2")),
            ("b=2", Some("b=2")),
            ("b=2 ; a=1 ; c=3", Some("b=2; c=3")),
            ("b=2,a=1;c=3", Some("b=2, c=3")),
            ("b; a=1; c", Some("b; c")),
            ("a=\"x;y\"; b=\"a=1;\"", Some("b=\"a=1;\"")),
            ("$Version=1; a=1; $Path=/", None),
            ("$Version=1; b=2; a=1; $Path=/; $Domain=x", Some("$Version=1; b=2")),
            ("$Version=1; a=1; $Path=/; b=2; $Path=/q", Some("$Version=1; b=2; $Path=/q")),
            ("a=1; $Path=/; b=2", Some("b=2")),
            ("a=1; $Path=/; a=2; $Path", None),
            ("$Version=1; b=2; $Path=/", Some("$Version=1; b=2; $Path=/")),
            ("$a=1; b=2", Some("$a=1; b=2")),
        ] {
            let mut head = Head::new();
            head.start_request(b"GET", b"/");
            head.append(b"cookie", line.as_bytes());
            head.edit_cookies(b"a", |_| None);
            assert_eq!(head.get_known(KnownName::Cookie), left.map(str::as_bytes), "{line}");
        }
    }

    #[test]
    fn a_cookie_value_is_rewritten_in_place() {
        let mut head = Head::new();
        head.start_request(b"GET", b"/");
        head.append(b"cookie", b"$Version=1; a = s~1 ;$Path=/; b=2;a=s~3");
        let edited = head.edit_cookies(b"a", |value| Some(value[2..].to_vec()));
        let line = head.get_known(KnownName::Cookie).unwrap();
        assert_eq!((edited, line), (2, &b"$Version=1; a = 1 ;$Path=/; b=2;a=3"[..]));
    }

    #[test]
    fn set_cookie_attributes_can_be_read() {
        let attributes: Vec<_> = attributes(b"S=abc; Path=/; Secure").collect();
        assert_eq!(attributes, [(&b"Path"[..], Some(&b"/"[..])), (&b"Secure"[..], None)]);
    }
}
