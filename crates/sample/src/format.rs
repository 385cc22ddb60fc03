//! Custom log formats (manual, 8.2.6): text, aliases and expressions, compiled once; used for logs, headers and every `<fmt>`
//! argument.
//!
//! The aliases are in [`crate::alias`]; this module handles quoting and escaping.

use diag::{Diagnostic, Span};

use crate::alias::{self, Alias};
use crate::encode::{self, Encoding, Item, ItemType};
use crate::env::Env;
use crate::expression::Expression;
use crate::flags::{Flags, quoted, write_bytes};
use crate::scope::Scope;
use crate::value::{Type, Value};

/// The purpose of a format, which determines the treatment of blanks, the placeholder for missing values, and escaping.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FormatFor {
    /// A log line: blanks are merged, `-` stands for a missing value.
    Log,
    /// A unique ID: blanks are merged.
    UniqueId,
    /// The value of a header: control characters are escaped with `%`.
    Header,
    /// A URI or a part of it: escaped like a header.
    Uri,
    /// A response body or any other text (`set-var-fmt`): bytes are not escaped.
    Text,
}

/// The flags of items.
const FLAGS: [&str; 7] = ["Q", "X", "E", "M", "bin", "json", "cbor"];

#[derive(Debug)]
enum FormatPart {
    Text(Box<[u8]>),
    /// A blank that is dropped after another blank.
    Blank,
    Alias(Alias, Description),
    Expression(Box<Expression>, Description),
}

/// A compiled format.
#[derive(Debug)]
pub struct Format {
    parts: Box<[FormatPart]>,
    /// The encoding of the whole format. If it is set, only named items are written.
    encoding: Encoding,
    /// `+bin` for the whole format.
    raw: bool,
}

/// The log format of `udp-lb` sections, one line per session.
pub const UDP_LOG: &str = "%ci:%cp [%t] %ft %b/%s %Tt %U %B %ts %ac/%fc/%bc/%sc";
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

/// The format of TLS key logs (NSS key log format). `side` is `fc` for client connections, `bc` for server connections.
pub fn keylog(side: &str) -> String {
    const LINES: [(&str, &str); 8] = [
        ("CLIENT_RANDOM", "session_key,hex"),
        ("CLIENT_EARLY_TRAFFIC_SECRET", "client_early_traffic_secret"),
        ("CLIENT_HANDSHAKE_TRAFFIC_SECRET", "client_handshake_traffic_secret"),
        ("SERVER_HANDSHAKE_TRAFFIC_SECRET", "server_handshake_traffic_secret"),
        ("CLIENT_TRAFFIC_SECRET_0", "client_traffic_secret_0"),
        ("SERVER_TRAFFIC_SECRET_0", "server_traffic_secret_0"),
        ("EXPORTER_SECRET", "exporter_secret"),
        ("EARLY_EXPORTER_SECRET", "early_exporter_secret"),
    ];
    let line = |(label, fetch)| format!("{label} %[ssl_{side}_client_random,hex] %[ssl_{side}_{fetch}]");
    LINES.map(line).join("\n")
}

/// The name, type and flags between `%` and an item's name.
#[derive(Debug, Clone, Default)]
struct Description {
    flags: Flags,
    name: Option<Box<str>>,
    forced: Option<ItemType>,
}

struct Compiler<'a, 's> {
    text: &'a str,
    at: usize,
    span: Span,
    scope: &'a Scope<'s>,
    merge_blanks: bool,
    /// Whether `+Q` does not apply to expressions: in headers and URIs, HAProxy only quotes aliases.
    unquoted: bool,
    /// Flags set by `%o` for all following items.
    flags: Flags,
    parts: Vec<FormatPart>,
    pending: Vec<u8>,
}

impl crate::env::FormatText for Format {
    fn write(&self, env: &Env<'_>, out: &mut Vec<u8>) {
        self.render(env, out);
    }
}

impl Format {
    /// Compiles `text`, located at `span`.
    pub fn compile(
        text: &str,
        span: Span,
        scope: &Scope<'_>,
        used_for: FormatFor,
    ) -> Result<Self, Diagnostic> {
        let flags = Flags {
            dash: used_for == FormatFor::Log,
            percent: matches!(used_for, FormatFor::Header | FormatFor::Uri | FormatFor::UniqueId),
            bin: false,
            ..Flags::default()
        };
        let merge_blanks = matches!(used_for, FormatFor::Log | FormatFor::UniqueId);
        let mut compiler = Compiler {
            text,
            at: 0,
            span,
            scope,
            merge_blanks,
            unquoted: matches!(used_for, FormatFor::Header | FormatFor::Uri | FormatFor::UniqueId),
            flags,
            parts: Vec::new(),
            pending: Vec::new(),
        };
        compiler.run()?;
        Ok(Self { encoding: compiler.flags.encoding, raw: compiler.flags.raw, parts: compiler.parts.into() })
    }

    /// A format that produces `text` literally.
    pub fn constant(text: &[u8]) -> Self {
        let parts: Vec<FormatPart> =
            if text.is_empty() { Vec::new() } else { vec![FormatPart::Text(text.into())] };
        Self { parts: parts.into(), encoding: Encoding::Plain, raw: false }
    }

    /// The text, if no part of it depends on the request.
    pub fn as_constant(&self) -> Option<&[u8]> {
        match &*self.parts {
            [] => Some(b""),
            [FormatPart::Text(text)] if self.encoding == Encoding::Plain => Some(text),
            _ => None,
        }
    }

    /// Whether any part becomes known only after the transfer. A log line without such a part is written as soon as the server
    /// has answered (manual, `option logasap`).
    pub fn is_late(&self) -> bool {
        self.parts.iter().any(|part| match part {
            FormatPart::Alias(alias, _) => alias.late,
            FormatPart::Expression(expression, _) => expression.is_late(),
            FormatPart::Text(_) | FormatPart::Blank => false,
        })
    }

    /// Whether rendering has side effects: see [`Expression::has_side_effects`].
    pub fn has_side_effects(&self) -> bool {
        self.parts.iter().any(|part| match part {
            FormatPart::Expression(expression, _) => expression.has_side_effects(),
            FormatPart::Alias(..) | FormatPart::Text(_) | FormatPart::Blank => false,
        })
    }

    /// Appends the formatted text to `out`.
    pub fn render(&self, env: &Env<'_>, out: &mut Vec<u8>) {
        match self.encoding {
            Encoding::Plain => {}
            Encoding::Json => return self.render_json(env, out),
            Encoding::Cbor => return self.render_cbor(env, out),
        }
        // Leading blanks are dropped too.
        let mut after_blank = true;
        for part in &self.parts {
            let before = out.len();
            match part {
                FormatPart::Text(text) => out.extend_from_slice(text),
                FormatPart::Blank if after_blank => continue,
                FormatPart::Blank => {
                    out.push(b' ');
                    after_blank = true;
                    continue;
                }
                FormatPart::Alias(_, Description { flags, .. })
                | FormatPart::Expression(_, Description { flags, .. })
                    if flags.encoding != Encoding::Plain =>
                {
                    part.encode(env, out);
                }
                FormatPart::Alias(alias, own) => (alias.write)(env, own.flags, out),
                FormatPart::Expression(expression, own) => write_value(expression.eval(env), own.flags, out),
            }
            after_blank &= out.len() == before;
        }
    }

    /// Renders the named items as a JSON object.
    fn render_json(&self, env: &Env<'_>, out: &mut Vec<u8>) {
        out.push(b'{');
        let mut first = true;
        for (name, item) in self.named(env) {
            if !std::mem::take(&mut first) {
                out.extend_from_slice(b", ");
            }
            encode::json_text(name.as_bytes(), out);
            out.extend_from_slice(b": ");
            encode::json(&item, out);
        }
        out.push(b'}');
    }

    /// Renders the named items as a CBOR map, in hexadecimal unless the format is binary.
    fn render_cbor(&self, env: &Env<'_>, out: &mut Vec<u8>) {
        let mut map = vec![encode::CBOR_MAP];
        for (name, item) in self.named(env) {
            encode::cbor_text(name.as_bytes(), &mut map);
            encode::cbor(&item, &mut map);
        }
        map.push(encode::CBOR_BREAK);
        if self.raw { out.append(&mut map) } else { encode::hex(&map, out) }
    }

    /// The named items with their values.
    fn named<'s>(&'s self, env: &'s Env<'s>) -> impl Iterator<Item = (&'s str, Item<'s>)> {
        self.parts.iter().filter_map(|part| match part {
            FormatPart::Alias(_, Description { name: Some(name), .. })
            | FormatPart::Expression(_, Description { name: Some(name), .. }) => {
                Some((&**name, part.item(env)))
            }
            _ => None,
        })
    }
}

impl FormatPart {
    /// The item's value, cast to the requested type.
    fn item<'s>(&'s self, env: &'s Env<'s>) -> Item<'s> {
        match self {
            Self::Alias(alias, own) => alias.item(env, own.flags).cast(own.forced),
            Self::Expression(expression, own) => Item::of(expression.eval(env), own.forced),
            Self::Text(_) | Self::Blank => Item::Null,
        }
    }

    /// Appends an item that has its own encoding.
    fn encode(&self, env: &Env<'_>, out: &mut Vec<u8>) {
        let (Self::Alias(_, own) | Self::Expression(_, own)) = self else { return };
        let item = self.item(env);
        if own.flags.encoding == Encoding::Json {
            return encode::json(&item, out);
        }
        let mut bytes = Vec::new();
        encode::cbor(&item, &mut bytes);
        if own.flags.raw { out.append(&mut bytes) } else { encode::hex(&bytes, out) }
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
                    if !matches!(self.parts.last(), Some(FormatPart::Blank)) {
                        self.parts.push(FormatPart::Blank);
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
            // Cutting at ASCII characters keeps the text valid.
            self.parts.push(FormatPart::Text(match text {
                Ok(text) => base::raw::bytes_of(&text).into(),
                Err(cut) => cut.into_bytes().into(),
            }));
        }
    }

    /// Whether positions in the text are positions in the configuration, because it has no quotes or escapes.
    fn is_exact(&self) -> bool {
        self.span.len() == self.text.len()
    }

    fn error(&self, start: usize, message: impl Into<String>) -> Diagnostic {
        Diagnostic::alert(message).at(if self.is_exact() {
            self.span.part(start, self.at.max(start + 1))
        } else {
            self.span
        })
    }

    /// Parses an item after its percent sign.
    fn item(&mut self) -> Result<(), Diagnostic> {
        let start = self.at;
        self.at += 1;
        let item = self.prefix(start)?;
        let rest = &self.text[self.at..];
        if rest.starts_with('[') {
            let item = self.without_bin(item);
            return self.expression(start, item);
        }
        let length = rest.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(rest.len());
        let name = &rest[..length];
        self.at += length;
        if name == "o" {
            self.flags = item.flags;
            return Ok(());
        }
        let item = self.without_bin(item);
        let Some(alias) = alias::find(name) else {
            let shown = if name.is_empty() { &self.text[start..] } else { name };
            return Err(self
                .error(start, format!("there is no log format alias `{shown}`"))
                .did_you_mean(diag::suggest(name, alias::names()))
                .help("to output a `%` character, double it: `%%`")
                .haproxy(format!(
                    "no such format alias '{shown}'. If you wanted to emit the '%' character verbatim, you need to use '%%'"
                )));
        };
        // Formats for logs and unique IDs keep the request line anyway.
        if !self.merge_blanks && matches!(name, "r" | "HM" | "HP" | "HPO" | "HQ" | "HU" | "HV") {
            self.scope.variables.borrow_mut().want_request_line();
        }
        if name == "rt" {
            self.scope.variables.borrow_mut().want_stream_numbers();
        }
        if matches!(name, "bi" | "bp") {
            self.scope.variables.borrow_mut().want_backend_source();
        }
        self.flush();
        self.parts.push(FormatPart::Alias(alias, item));
        Ok(())
    }

    /// Parses `(name:type)` and `{flags}`.
    fn prefix(&mut self, start: usize) -> Result<Description, Diagnostic> {
        let mut item = Description { flags: self.flags, ..Description::default() };
        if self.text[self.at..].starts_with('(') {
            let inner = self.until(start, ')')?;
            let (name, forced) = match inner.split_once(':') {
                Some((name, forced)) => (name, Some(self.item_type(start, forced)?)),
                None => (inner.as_str(), None),
            };
            item.name = (!name.is_empty()).then(|| name.into());
            item.forced = forced;
        }
        if self.text[self.at..].starts_with('{') {
            let inner = self.until(start, '}')?;
            for flag in inner.split(',').map(str::trim).filter(|flag| !flag.is_empty()) {
                let (on, name) = match flag.split_at_checked(1) {
                    Some(("+", name)) => (true, name),
                    Some(("-", name)) => (false, name),
                    _ if FLAGS.contains(&flag) => {
                        self.warn_without_sign(start, flag);
                        continue;
                    }
                    _ => (true, flag),
                };
                match name {
                    "Q" => item.flags.quote = on,
                    "X" => item.flags.hex = on,
                    "E" => item.flags.escape = on,
                    "M" => item.flags.dash = on,
                    "bin" => (item.flags.bin, item.flags.raw) = (on, on),
                    "json" => item.flags.encoding = if on { Encoding::Json } else { Encoding::Plain },
                    "cbor" => item.flags.encoding = if on { Encoding::Cbor } else { Encoding::Plain },
                    other => {
                        return Err(self
                            .error(start, format!("unknown flag `{other}` in a log format"))
                            .did_you_mean(diag::suggest(other, ["json", "cbor", "bin"]))
                            .help("use Q, X, E, bin, json or cbor"));
                    }
                }
            }
        }
        Ok(item)
    }

    fn warn_without_sign(&self, start: usize, flag: &str) {
        let span = if self.is_exact() { self.span.part(start, self.at) } else { self.span };
        self.scope.names.warn(
            Diagnostic::warning(format!("the log format flag `{flag}` is ignored because it has no sign"))
                .at(span)
                .help(format!("use `+{flag}` to set it, or remove it")),
        );
    }

    fn item_type(&self, start: usize, name: &str) -> Result<ItemType, Diagnostic> {
        let known = ItemType::NAMES.iter();
        known.clone().find(|(known, _)| *known == name).map(|(_, found)| *found).ok_or_else(|| {
            self.error(start, format!("unknown item type `{name}` in a log format"))
                .did_you_mean(diag::suggest(name, known.map(|(name, _)| *name)))
                .help("use str, sint or bool")
        })
    }

    /// Takes the text between the bracket at the cursor and `end`.
    fn until(&mut self, start: usize, end: char) -> Result<String, Diagnostic> {
        let rest = &self.text[self.at + 1..];
        let Some(length) = rest.find(end) else {
            self.at = self.text.len();
            return Err(self.error(start, format!("missing `{end}` in a log format")));
        };
        let inner = rest[..length].to_owned();
        self.at += length + 2;
        Ok(inner)
    }

    /// Removes `+bin`, which only applies to a whole format (manual, 8.2.6).
    fn without_bin(&self, mut item: Description) -> Description {
        (item.flags.bin, item.flags.raw) = (self.flags.bin, self.flags.raw);
        item
    }

    fn expression(&mut self, start: usize, mut item: Description) -> Result<(), Diagnostic> {
        item.flags.quote &= !self.unquoted;
        self.at += 1;
        let blanks = self.text[self.at..].len() - self.text[self.at..].trim_start().len();
        self.at += blanks;
        let span = if self.is_exact() { self.span.part(self.at, self.text.len()) } else { self.span };
        let from = &self.text[self.at..];
        let (expression, length) = Expression::begin(from, span, self.scope).map_err(|error| {
            error.wrap_line(&format!("failed to parse sample expression <{from}> : "), "")
        })?;
        self.at += length;
        expression.check_place(self.scope, span)?;
        if self.scope.mode == state::Mode::Http
            && self.scope.place.rules().is_some()
            && expression.reads_bytes()
        {
            let name = expression.name();
            self.scope.names.warn(
                crate::expression::bytes_in_http(name, span)
                    .haproxy(format!("L6 sample fetch <{name}> ignored in HTTP log-format string.")),
            );
        }
        let rest = self.text[self.at..].trim_start();
        if !rest.starts_with(']') {
            let shown = rest.split(']').next().unwrap_or_default().to_owned();
            let problem =
                if shown.is_empty() { "missing `]`".into() } else { format!("unexpected `{shown}`") };
            self.at = self.text.len() - rest.len() + shown.len();
            let error = self.error(start, format!("{problem} after the expression in a log format"));
            let is_open = !rest.contains(']');
            return Err(if is_open { error.haproxy(format!("missing ']' after '{from}'")) } else { error });
        }
        self.at = self.text.len() - rest.len() + 1;
        if !expression.gives().casts_to(Type::Str) {
            return Err(self.error(start, "the result of the expression cannot be converted to text"));
        }
        self.flush();
        self.parts.push(FormatPart::Expression(Box::new(expression), item));
        Ok(())
    }
}

/// Writes an expression's value.
fn write_value(value: Option<Value<'_>>, flags: Flags, out: &mut Vec<u8>) {
    match value {
        Some(value) => match value.bytes() {
            // Binary values end at the first NUL when cast to text.
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
