//! Extracts a value from JSON (RFC 8259) by a path such as `$.a.b[0]`. As in HAProxy, the text is parsed only up to the end of
//! the value, and if a key occurs several times, the first one is used. Used by `json_query` and `jwt_…_query`.

use crate::args::Prepared;

/// The maximum nesting depth of objects and arrays.
const DEPTH: usize = 20;

/// The steps after the `$`.
#[derive(Debug)]
pub(super) struct Path(Vec<PathStep>);

impl Prepared for Path {}

#[derive(Debug, PartialEq)]
enum PathStep {
    /// A step into an object. The key is in its encoded form, with escapes.
    Key(Box<[u8]>),
    /// Into an array.
    Index(usize),
}

/// The value at the end of a path. Objects and null yield no value.
#[derive(Debug, PartialEq)]
pub(super) enum JsonValue<'t> {
    Bool(bool),
    /// The number's text.
    Number(&'t [u8]),
    /// The raw text between the quotes, with escapes.
    Text(&'t [u8]),
    /// The raw text, with its brackets.
    Array(&'t [u8]),
}

impl Path {
    /// Parses `$` followed by `.key` and `[index]`. A backslash makes a dot or bracket part of the key. `['key']` is accepted too.
    ///
    /// # Errors
    /// The syntax error in the path.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rest = text
            .strip_prefix('$')
            .ok_or_else(|| format!("the JSON path `{text}` does not start with `$`"))?;
        let mut steps = Vec::new();
        while let Some(first) = rest.chars().next() {
            let (step, length) = match first {
                '.' => key(&rest[1..]),
                '[' => index(&rest[1..]).ok_or_else(|| {
                    format!("expected a number or a quoted key, and `]`, after `[` in the JSON path `{text}`")
                })?,
                other => {
                    return Err(format!("expected `.` or `[` before `{other}` in the JSON path `{text}`"));
                }
            };
            steps.push(step);
            rest = &rest[1 + length..];
        }
        Ok(Self(steps))
    }

    /// Returns the value at the path in `text`. Returns `None` if the value is missing, an object or null, or if the text before
    /// the end of the value is not valid JSON.
    pub(super) fn find<'t>(&self, text: &'t [u8]) -> Option<JsonValue<'t>> {
        let mut reader = PathReader { text, at: 0, depth: 0 };
        for step in &self.0 {
            match step {
                PathStep::Key(wanted) => reader.enter_object(wanted)?,
                PathStep::Index(number) => reader.enter_array(*number)?,
            }
        }
        reader.value()
    }
}

/// Parses a key up to the next step. Also returns the length of the consumed text.
fn key(text: &str) -> (PathStep, usize) {
    let mut key = Vec::new();
    let mut bytes = text.bytes().enumerate();
    while let Some((at, byte)) = bytes.next() {
        match byte {
            b'.' | b'[' => return (PathStep::Key(key.into()), at),
            b'\\' => key.extend(bytes.next().map(|(_, byte)| byte)),
            byte => key.push(byte),
        }
    }
    (PathStep::Key(key.into()), text.len())
}

/// Parses an index or key in brackets.
fn index(text: &str) -> Option<(PathStep, usize)> {
    let inside = text.split(']').next().filter(|inside| inside.len() < text.len())?;
    let quoted = |quote| inside.strip_prefix(quote).and_then(|rest: &str| rest.strip_suffix(quote));
    let step = match quoted('\'').or_else(|| quoted('"')) {
        Some(key) => PathStep::Key(key.as_bytes().into()),
        None => PathStep::Index(inside.parse().ok()?),
    };
    Some((step, inside.len() + 1))
}

struct PathReader<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
}

impl<'t> PathReader<'t> {
    /// The next byte that is not white space.
    fn peek(&mut self) -> Option<u8> {
        while matches!(self.text.get(self.at), Some(b' ' | b'\t' | b'\n' | b'\r')) {
            self.at += 1;
        }
        self.text.get(self.at).copied()
    }

    fn expect(&mut self, byte: u8) -> Option<()> {
        (self.peek()? == byte).then(|| self.at += 1)
    }

    fn open(&mut self, bracket: u8) -> Option<()> {
        self.expect(bracket)?;
        self.depth += 1;
        (self.depth <= DEPTH).then_some(())
    }

    /// Consumes a comma, or the closing bracket at the end. As in HAProxy, nothing needs to follow the last comma.
    fn goes_on(&mut self, bracket: u8) -> Option<bool> {
        match self.peek()? {
            b',' => {
                self.at += 1;
                Some(self.peek()? != bracket)
            }
            byte => (byte == bracket).then_some(false),
        }
    }

    /// Moves to the value of the first key equal to `wanted`.
    fn enter_object(&mut self, wanted: &[u8]) -> Option<()> {
        self.open(b'{')?;
        if self.peek()? == b'}' {
            return None;
        }
        loop {
            let key = self.string()?;
            self.expect(b':')?;
            if key == wanted {
                return Some(());
            }
            self.skip()?;
            if !self.goes_on(b'}')? {
                return None;
            }
        }
    }

    /// Moves to the value at index `number`.
    fn enter_array(&mut self, number: usize) -> Option<()> {
        self.open(b'[')?;
        if self.peek()? == b']' {
            return None;
        }
        for _ in 0..number {
            self.skip()?;
            if !self.goes_on(b']')? {
                return None;
            }
        }
        Some(())
    }

    /// The raw text between quotes.
    fn string(&mut self) -> Option<&'t [u8]> {
        self.expect(b'"')?;
        let start = self.at;
        loop {
            self.at += memchr::memchr2(b'"', b'\\', self.text.get(self.at..)?)?;
            if self.text[self.at] == b'"' {
                self.at += 1;
                return Some(&self.text[start..self.at - 1]);
            }
            self.at += 2;
        }
    }

    fn word(&mut self, word: &[u8]) -> Option<()> {
        self.text[self.at..].starts_with(word).then(|| self.at += word.len())
    }

    /// Reads a number. Leading zeros are accepted although JSON forbids them.
    fn number(&mut self) -> Option<&'t [u8]> {
        let start = self.at;
        self.at += usize::from(self.text[start] == b'-');
        let digits = self.digits();
        if digits == 0 {
            return None;
        }
        if self.text.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits();
        }
        if let Some(b'e' | b'E') = self.text.get(self.at) {
            let before = self.at;
            self.at += 1 + usize::from(matches!(self.text.get(self.at + 1), Some(b'+' | b'-')));
            if self.digits() == 0 {
                self.at = before;
            }
        }
        Some(&self.text[start..self.at])
    }

    fn digits(&mut self) -> usize {
        let count = self.text[self.at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        self.at += count;
        count
    }

    /// Reads the value at the current position.
    fn value(&mut self) -> Option<JsonValue<'t>> {
        let byte = self.peek()?;
        let start = self.at;
        match byte {
            b'"' => self.string().map(JsonValue::Text),
            b'[' => {
                self.skip()?;
                Some(JsonValue::Array(&self.text[start..self.at]))
            }
            b't' => self.word(b"true").map(|()| JsonValue::Bool(true)),
            b'f' => self.word(b"false").map(|()| JsonValue::Bool(false)),
            b'-' | b'0'..=b'9' => self.number().map(JsonValue::Number),
            _ => None,
        }
    }

    /// Skips the value at the current position. The nesting limit bounds the recursion.
    fn skip(&mut self) -> Option<()> {
        match self.peek()? {
            b'{' => {
                self.open(b'{')?;
                while self.peek()? != b'}' {
                    self.string()?;
                    self.expect(b':')?;
                    self.skip()?;
                    self.goes_on(b'}')?;
                }
            }
            b'[' => {
                self.open(b'[')?;
                while self.peek()? != b']' {
                    self.skip()?;
                    self.goes_on(b']')?;
                }
            }
            b'n' => return self.word(b"null"),
            _ => return self.value().map(drop),
        }
        self.at += 1;
        self.depth -= 1;
        Some(())
    }
}

/// Appends the text of a string with its escapes resolved, or `None` for an invalid escape.
pub(super) fn unescape(mut raw: &[u8], out: &mut Vec<u8>) -> Option<()> {
    while let Some(at) = memchr::memchr(b'\\', raw) {
        out.extend_from_slice(&raw[..at]);
        let byte = match raw.get(at + 1)? {
            b'b' => 0x08,
            b'f' => 0x0c,
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'u' => {
                raw = &raw[at + 2..];
                let (character, length) = character(raw)?;
                out.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                raw = &raw[length..];
                continue;
            }
            byte @ (b'"' | b'\\' | b'/') => *byte,
            _ => return None,
        };
        out.push(byte);
        raw = &raw[at + 2..];
    }
    out.extend_from_slice(raw);
    Some(())
}

/// Decodes the digits after `\u`, and a second `\u` if they are a surrogate. Also returns the number of consumed bytes.
fn character(digits: &[u8]) -> Option<(char, usize)> {
    let unit = |digits: &[u8]| {
        let digits = std::str::from_utf8(digits.get(..4)?).ok()?;
        let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
    };
    let first = unit(digits)?;
    if let Some(character) = char::from_u32(u32::from(first)) {
        return Some((character, 4));
    }
    let second = unit(digits[4..].strip_prefix(b"\\u")?)?;
    let character = char::decode_utf16([first, second]).next()?.ok()?;
    Some((character, 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str, path: &str) -> String {
        let lossy = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        match Path::parse(path).unwrap().find(text.as_bytes()) {
            None => "nothing".into(),
            Some(JsonValue::Bool(value)) => value.to_string(),
            Some(JsonValue::Number(text) | JsonValue::Array(text)) => lossy(text),
            Some(JsonValue::Text(raw)) => {
                let mut out = Vec::new();
                unescape(raw, &mut out).map_or("no text".into(), |()| format!("`{}`", lossy(&out)))
            }
        }
    }

    #[test]
    fn the_first_match_counts_and_later_text_is_ignored() {
        #[rustfmt::skip]
        let cases = [
            (r#"{"a":1,"a":2}"#, "$.a", "1"),
            (r#"{"a":{"b":1},"a":{"c":2}}"#, "$.a.c", "nothing"),
            (r#"{"a":1, broken"#, "$.a", "1"),
            (r#"{broken, "a":1}"#, "$.a", "nothing"),
            (r#"{"b":[1,{"x":"]}"}],"a":true}"#, "$.a", "true"),
            (r#"{"a":[ 1 , [2,3] ],"b":0}"#, "$.a", "[ 1 , [2,3] ]"),
            (r#"{"a":[1,[2,3]]}"#, "$.a[1][0]", "2"),
            (r#"[10,11,12,13,14,15,16,17,18,19,20]"#, "$[10]", "20"),
            ("[]", "$[0]", "nothing"),
            ("[1]", "$[1]", "nothing"),
            ("[1,]", "$", "[1,]"),
            (r#"{"a":1,}"#, "$.b", "nothing"),
            (r#"{"a.b":1,"a":{"b":2}}"#, r"$.a\.b", "1"),
            (r#"{"a.b":1}"#, "$['a.b']", "1"),
            (r#"{"*":1}"#, "$.*", "1"),
            (r#"{"":1}"#, "$.", "1"),
            (r#"{"a":null,"b":{}}"#, "$.a", "nothing"),
            (r#"{"a":null,"b":{}}"#, "$.b", "nothing"),
            (r#""a\"b\u00e9\ud83d\ude00\/""#, "$", "`a\"bé😀/`"),
            (r#""\ud83d""#, "$", "no text"),
            (r#""\u+041""#, "$", "no text"),
            (r#""\x""#, "$", "no text"),
            (r#""open"#, "$", "nothing"),
            (r#""open\"#, "$", "nothing"),
            ("-1.5e+3x", "$", "-1.5e+3"),
            ("1e", "$", "1"),
            ("-", "$", "nothing"),
            ("truth", "$", "nothing"),
            ("{\"a\":]}", "$.b", "nothing"),
            ("[1}", "$", "nothing"),
            ("", "$", "nothing"),
        ];
        for (text, path, expected) in cases {
            assert_eq!(shown(text, path), expected, "{path} in {text}");
        }
    }

    #[test]
    fn values_nested_deeper_than_twenty_are_not_found() {
        let nested = |depth| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert_eq!(shown(&nested(20), "$"), nested(20));
        assert_eq!(shown(&nested(21), "$"), "nothing");
        assert_eq!(shown(&"[".repeat(1_000_000), "$[0]"), "nothing");
    }

    #[test]
    fn invalid_paths_report_the_position() {
        for path in ["", "a", "$a", "$.a[", "$[x]", "$[-1]", "$.a]b[0]c", "$[0]x"] {
            assert!(Path::parse(path).is_err(), "{path}");
        }
    }
}
