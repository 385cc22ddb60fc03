//! Custom log formats (manual, 8.2.6): text, aliases and expressions, compiled once, for logs, headers and all `<fmt>`.
//!
//! The aliases themselves are in [`crate::alias`]; how bytes are quoted and escaped is here.

use diag::{Diagnostic, Span};

use crate::alias::{self, Alias};
use crate::env::{Env, Scope};
use crate::expression::Expression;
use crate::value::{Type, Value};

/// What a format makes: decides on blanks, on what stands for a missing value, and on escapes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FormatFor {
    /// A log line: blanks are merged, `-` stands for a missing value.
    Log,
    /// A unique id: blanks are merged.
    UniqueId,
    /// The value of a header, a path, a query or a URI: control characters are escaped with `%`.
    Header,
    /// Likewise a URI or a part of it.
    Uri,
    /// The body of a reply, likewise.
    Body,
    /// Anything else (`set-var-fmt`): bytes pass as they are.
    Text,
}

/// The flags of an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Flags {
    /// `+Q`: in double quotes.
    pub quote: bool,
    /// `+X`: numbers and addresses in hexadecimal.
    pub hex: bool,
    /// `+E`: `"`, `\` and `]` behind a backslash.
    pub escape: bool,
    /// `-` where there is no value.
    pub dash: bool,
    /// Control characters as `%XX`.
    pub percent: bool,
    /// `+bin`: bytes pass as they are.
    pub bin: bool,
    /// `+json` or `+cbor`: how named items are encoded.
    pub encoding: Encoding,
}

/// How items with a name are encoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[allow(missing_docs)]
pub enum Encoding {
    #[default]
    Plain,
    Json,
}

#[derive(Debug)]
enum Part {
    Text(Box<[u8]>),
    /// A blank that vanishes behind another.
    Blank,
    Alias(Alias, Flags, Option<Box<str>>),
    Expression(Box<Expression>, Flags, Option<Box<str>>),
}

/// A compiled format.
#[derive(Debug)]
pub struct Format {
    parts: Box<[Part]>,
    encoding: Encoding,
}

/// The log format of `option tcplog`.
pub const TCP_LOG: &str = "%ci:%cp [%t] %ft %b/%s %Tw/%Tc/%Tt %B %ts %ac/%fc/%bc/%sc/%rc %sq/%bq";
/// The log format of `option httplog`.
pub const HTTP_LOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r";
/// The log format of `option httpslog`.
pub const HTTPS_LOG: &str = "%ci:%cp [%tr] %ft %b/%s %TR/%Tw/%Tc/%Tr/%Ta %ST %B %CC %CS %tsc %ac/%fc/%bc/%sc/%rc %sq/%bq %hr %hs %{+Q}r %[fc_err]/%[ssl_fc_err,hex]/%[ssl_c_err]/%[ssl_c_ca_err]/%[ssl_fc_is_resumed] %[ssl_fc_sni]/%sslv/%sslc";
/// The log format of `option httplog clf`.
pub const CLF_LOG: &str = "%{+Q}o %{-Q}ci - - [%trg] %r %ST %B \"\" \"\" %cp %ms %ft %b %s %TR %Tw %Tc %Tr %Ta %tsc %ac %fc %bc %sc %rc %sq %bq %CC %CS %hrl %hsl";
/// The log format of `option tcplog clf`.
pub const TCP_CLF_LOG: &str = "%{+Q}o %{-Q}ci - - [%T] \"TCP \" 000 %B \"\" \"\" %cp %ms %ft %b %s %Th %Tw %Tc %Tt %U %ts-- %ac %fc %bc %sc %rc %sq %bq \"\" \"\" ";

/// An item's description between `%` and its name.
struct Item {
    flags: Flags,
    name: Option<Box<str>>,
}

struct Compiler<'a, 's> {
    text: &'a str,
    at: usize,
    span: Span,
    scope: &'a Scope<'s>,
    merge_blanks: bool,
    /// What `%o` set for all that follow.
    flags: Flags,
    parts: Vec<Part>,
    pending: Vec<u8>,
}

impl Format {
    /// Compiles `text`, which stands at `span`.
    pub fn compile(
        text: &str,
        span: Span,
        scope: &Scope<'_>,
        used_for: FormatFor,
    ) -> Result<Self, Diagnostic> {
        let flags = Flags {
            dash: used_for == FormatFor::Log,
            percent: matches!(
                used_for,
                FormatFor::Header | FormatFor::Uri | FormatFor::Body | FormatFor::UniqueId
            ),
            bin: used_for == FormatFor::Text,
            ..Flags::default()
        };
        let merge_blanks = matches!(used_for, FormatFor::Log | FormatFor::UniqueId);
        let mut compiler = Compiler {
            text,
            at: 0,
            span,
            scope,
            merge_blanks,
            flags,
            parts: Vec::new(),
            pending: Vec::new(),
        };
        compiler.run()?;
        Ok(Self { encoding: compiler.flags.encoding, parts: compiler.parts.into() })
    }

    /// A format that is `text` as it stands.
    pub fn constant(text: &[u8]) -> Self {
        let parts: Vec<Part> = if text.is_empty() { Vec::new() } else { vec![Part::Text(text.into())] };
        Self { parts: parts.into(), encoding: Encoding::Plain }
    }

    /// The text, if nothing in it depends on the request.
    pub fn as_constant(&self) -> Option<&[u8]> {
        match &*self.parts {
            [] => Some(b""),
            [Part::Text(text)] if self.encoding == Encoding::Plain => Some(text),
            _ => None,
        }
    }

    /// Appends what it makes to `out`.
    pub fn render(&self, env: &Env<'_>, out: &mut Vec<u8>) {
        if self.encoding == Encoding::Json {
            return self.render_json(env, out);
        }
        let mut after_blank = false;
        for part in &self.parts {
            let before = out.len();
            match part {
                Part::Text(text) => out.extend_from_slice(text),
                Part::Blank if after_blank => continue,
                Part::Blank => {
                    out.push(b' ');
                    after_blank = true;
                    continue;
                }
                Part::Alias(alias, flags, _) => (alias.write)(env, *flags, out),
                Part::Expression(expression, flags, _) => write_value(expression.eval(env), *flags, out),
            }
            after_blank &= out.len() == before;
        }
    }

    /// The named items as a JSON object.
    fn render_json(&self, env: &Env<'_>, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut first = true;
        for part in &self.parts {
            let (name, value) = match part {
                Part::Alias(alias, _, Some(name)) => {
                    let mut text = Vec::new();
                    (alias.write)(env, Flags::default(), &mut text);
                    (name, json_of(Some(Value::str(&text)), alias.numeric))
                }
                Part::Expression(expression, _, Some(name)) => {
                    let value = expression.eval(env);
                    let numeric = matches!(value, Some(Value::Int(_)));
                    (name, json_of(value, numeric))
                }
                _ => continue,
            };
            if !std::mem::take(&mut first) {
                out.extend_from_slice(b", ");
            }
            let name = serde_json::Value::from(&**name);
            out.extend_from_slice(format!("{name}: {value}").as_bytes());
        }
        out.push(b'}');
    }
}

fn json_of(value: Option<Value<'_>>, numeric: bool) -> serde_json::Value {
    match value {
        None => serde_json::Value::Null,
        Some(Value::Bool(value)) => value.into(),
        Some(Value::Int(value)) => value.into(),
        Some(value) => {
            let mut text = Vec::new();
            value.write_text(&mut text);
            let text = String::from_utf8_lossy(&text).into_owned();
            match text.trim_start_matches('+').parse::<i64>() {
                Ok(number) if numeric => number.into(),
                _ if text.is_empty() => serde_json::Value::Null,
                _ => text.into(),
            }
        }
    }
}

impl Compiler<'_, '_> {
    fn run(&mut self) -> Result<(), Diagnostic> {
        let bytes = self.text.as_bytes();
        while let Some(&byte) = bytes.get(self.at) {
            match byte {
                b'%' if bytes.get(self.at + 1) == Some(&b'%') => {
                    self.pending.push(b'%');
                    self.at += 2;
                }
                b'%' => self.item()?,
                b' ' if self.merge_blanks => {
                    self.flush();
                    if !matches!(self.parts.last(), Some(Part::Blank)) {
                        self.parts.push(Part::Blank);
                    }
                    self.at += 1;
                }
                other => {
                    self.pending.push(other);
                    self.at += 1;
                }
            }
        }
        self.flush();
        Ok(())
    }

    fn flush(&mut self) {
        if !self.pending.is_empty() {
            let text = String::from_utf8(std::mem::take(&mut self.pending));
            // Cut at ASCII characters only, it is text still.
            self.parts.push(Part::Text(match text {
                Ok(text) => base::raw::bytes_of(&text).into(),
                Err(cut) => cut.into_bytes().into(),
            }));
        }
    }

    fn error(&self, start: usize, message: impl Into<String>) -> Diagnostic {
        let exact = self.span.len() == self.text.len();
        Diagnostic::alert(message).at(if exact {
            self.span.part(start, self.at.max(start + 1))
        } else {
            self.span
        })
    }

    /// Takes an item behind its percent sign.
    fn item(&mut self) -> Result<(), Diagnostic> {
        let start = self.at;
        self.at += 1;
        let item = self.prefix(start)?;
        let rest = &self.text[self.at..];
        if rest.starts_with('[') {
            return self.expression(start, item);
        }
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let name = &rest[..length];
        self.at += length;
        if name == "o" {
            self.flags = item.flags;
            return Ok(());
        }
        let Some(alias) = alias::find(name) else {
            let shown = if name.is_empty() { &self.text[start..] } else { name };
            return Err(self
                .error(start, format!("there is no log format alias `{shown}`"))
                .did_you_mean(diag::suggest(name, alias::names()))
                .help("to write the character `%` itself, double it: `%%`")
                .haproxy(format!(
                    "no such format alias '{shown}'. If you wanted to emit the '%' character verbatim, you need to use '%%'"
                )));
        };
        // Where something is logged, or a unique id made, the line is kept anyway.
        if !self.merge_blanks && matches!(name, "r" | "HM" | "HP" | "HPO" | "HQ" | "HU" | "HV") {
            self.scope.variables.borrow_mut().want_request_line();
        }
        if matches!(name, "bi" | "bp") {
            self.scope.variables.borrow_mut().want_backend_source();
        }
        self.flush();
        self.parts.push(Part::Alias(alias, item.flags, item.name));
        Ok(())
    }

    /// Takes `(name:type)` and `{flags}`.
    fn prefix(&mut self, start: usize) -> Result<Item, Diagnostic> {
        let mut item = Item { flags: self.flags, name: None };
        if self.text[self.at..].starts_with('(') {
            let inner = self.until(start, ')')?;
            let name = inner.split(':').next().unwrap_or_default();
            item.name = (!name.is_empty()).then(|| name.into());
        }
        if self.text[self.at..].starts_with('{') {
            let inner = self.until(start, '}')?;
            for flag in inner.split(',').map(str::trim).filter(|flag| !flag.is_empty()) {
                let (on, name) = match flag.split_at_checked(1) {
                    Some(("+", name)) => (true, name),
                    Some(("-", name)) => (false, name),
                    _ => (true, flag),
                };
                match name {
                    "Q" => item.flags.quote = on,
                    "X" => item.flags.hex = on,
                    "E" => item.flags.escape = on,
                    "M" => item.flags.dash = on,
                    "bin" => item.flags.bin = on,
                    "json" => item.flags.encoding = if on { Encoding::Json } else { Encoding::Plain },
                    "cbor" => return Err(self.error(start, "the encoding `cbor` is not supported yet")),
                    other => {
                        return Err(self
                            .error(start, format!("unknown flag `{other}` in a log format"))
                            .help("Q, X, E, bin and json are known"));
                    }
                }
            }
        }
        Ok(item)
    }

    /// Takes what stands between the bracket at the cursor and `end`.
    fn until(&mut self, start: usize, end: char) -> Result<String, Diagnostic> {
        let rest = &self.text[self.at + 1..];
        let Some(length) = rest.find(end) else {
            self.at = self.text.len();
            return Err(self.error(start, format!("`{end}` is missing in a log format")));
        };
        let inner = rest[..length].to_owned();
        self.at += length + 2;
        Ok(inner)
    }

    fn expression(&mut self, start: usize, item: Item) -> Result<(), Diagnostic> {
        self.at += 1;
        let blanks = self.text[self.at..].len() - self.text[self.at..].trim_start().len();
        self.at += blanks;
        let exact = self.span.len() == self.text.len();
        let span = if exact { self.span.part(self.at, self.text.len()) } else { self.span };
        let (expression, length) = Expression::begin(&self.text[self.at..], span, self.scope)?;
        self.at += length;
        expression.check_place(self.scope, span)?;
        let rest = self.text[self.at..].trim_start();
        if !rest.starts_with(']') {
            let shown = rest.split(']').next().unwrap_or_default().to_owned();
            let problem =
                if shown.is_empty() { "`]` is missing".into() } else { format!("unexpected `{shown}`") };
            self.at = self.text.len() - rest.len() + shown.len();
            return Err(self.error(start, format!("{problem} behind the expression in a log format")));
        }
        self.at = self.text.len() - rest.len() + 1;
        if !expression.gives().casts_to(Type::Str) {
            return Err(self.error(start, "the expression gives nothing that can be written as text"));
        }
        self.flush();
        self.parts.push(Part::Expression(Box::new(expression), item.flags, item.name));
        Ok(())
    }
}

/// Writes an expression's value.
fn write_value(value: Option<Value<'_>>, flags: Flags, out: &mut Vec<u8>) {
    match value {
        Some(value) => match value.bytes() {
            // Bytes end at the first NUL where they are cast to text.
            Some(bytes) => {
                let bin = matches!(value, Value::Bin(_)) && !flags.bin;
                let end = if bin { memchr::memchr(0, bytes).unwrap_or(bytes.len()) } else { bytes.len() };
                write_bytes(&bytes[..end], flags, out);
            }
            None => quoted(flags, out, |out| value.write_text(out)),
        },
        None => write_bytes(b"", flags, out),
    }
}

/// Writes within quotes if the flags say so.
pub(crate) fn quoted(flags: Flags, out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    if flags.quote {
        out.push(b'"');
    }
    write(out);
    if flags.quote {
        out.push(b'"');
    }
}

/// Writes text: quoted, escaped, or `-` when it is empty.
pub(crate) fn write_bytes(bytes: &[u8], flags: Flags, out: &mut Vec<u8>) {
    if bytes.is_empty() && !flags.quote {
        if flags.dash {
            out.push(b'-');
        }
        return;
    }
    quoted(flags, out, |out| match flags {
        Flags { escape: true, .. } => {
            for byte in bytes {
                if matches!(byte, b'"' | b'\\' | b']') {
                    out.push(b'\\');
                }
                out.push(*byte);
            }
        }
        Flags { percent: true, bin: false, .. } => encode(bytes, b'%', is_forbidden_in_header, out),
        _ => out.extend_from_slice(bytes),
    });
}

fn is_forbidden_in_header(byte: u8) -> bool {
    matches!(byte, 0..=8 | 10..=31 | 127)
}

/// Writes `bytes`, those that `forbidden` names as `escape` and two hexadecimal digits.
pub(crate) fn encode(bytes: &[u8], escape: u8, forbidden: impl Fn(u8) -> bool, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for &byte in bytes {
        if forbidden(byte) {
            out.extend_from_slice(&[escape, DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
        } else {
            out.push(byte);
        }
    }
}
